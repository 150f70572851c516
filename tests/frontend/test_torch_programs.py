"""What a program is as a whole: names, sizes, state, inputs that are no tensors, what torch took apart before."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from torch_programs import Each, check, compare, export, operators, outputs_of, random, randomized

import mrt
from mrt.errors import GraphError, ModelFileError
from mrt.frontend.torch import from_torch

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional


class Block(nn.Module):
    """A convolution, a normalisation and a residual, whose batch norm has statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = randomized(nn.BatchNorm2d(4))

    def forward(self, x: Any) -> Any:
        return F.relu(self.norm(self.conv(x)) + x)


def dynamic(model: Any, *inputs: Any, **options: Any) -> Any:
    """A program whose inputs have a batch of any length."""
    batch = torch.export.Dim("batch", **options)
    shapes: Any = tuple({0: batch} for _ in inputs)
    return export(model, *inputs, dynamic_shapes=shapes if isinstance(model, nn.Module) else (shapes,))


# Names


def test_symbols_are_called_as_the_nodes_and_parameters_of_the_program() -> None:
    program = export(Block(), random(2, 4, 5, 6))
    graph = from_torch(program)
    assert [symbol.name for symbol in graph.operators] == ["conv2d", "batch_norm", "add", "relu"]
    assert {symbol.name for symbol in graph.operators} <= {node.name for node in program.graph.nodes}
    assert {"p_conv_weight", "p_norm_weight", "p_norm_bias"} <= set(graph.parameters)
    assert [symbol.name for symbol in graph.inputs] == ["x"]


def test_a_parameter_that_is_shared_stays_one() -> None:
    first, last = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    last.weight = first.weight
    graph = check(nn.Sequential(first, nn.ReLU(), last), random(2, 4))
    assert operators(graph) == ["FullyConnected", "relu", "FullyConnected"]

    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(3, 4)

        def forward(self, n: Any) -> Any:
            return self.table(n) + self.table(n + 1)

    assert len(check(Norms(), torch.tensor([0, 1])).parameters) == 1


# Sizes


def test_a_batch_of_any_length_is_fixed() -> None:
    model = Block()
    program = dynamic(model, random(2, 4, 5, 6))
    for batch in (1, 3):
        graph = from_torch(program, batch)
        assert graph.inputs[0].shape == (batch, 4, 5, 6)
        compare(graph, model, random(batch, 4, 5, 6))
    assert str(from_torch(program)) == str(from_torch(export(model, random(1, 4, 5, 6))))


def test_sizes_computed_from_the_batch_are_fixed() -> None:
    def body(x: Any, y: Any) -> Any:
        batch = x.shape[0]
        rows = x.reshape(batch * 4, 5) @ torch.ones(5, 3)
        return rows.reshape(batch, 4, 3).mean(1) + y, torch.zeros(batch, 3) + batch

    for batch in (1, 4):
        graph = from_torch(dynamic(body, random(2, 4, 5), random(2, 3)), batch)
        compare(graph, body, random(batch, 4, 5), random(batch, 3, seed=1))


def test_a_batch_that_has_a_smallest_length_may_be_shorter_where_operators_allow_it() -> None:
    graph = from_torch(dynamic(Block(), random(3, 4, 5, 6), min=2), 1)
    assert graph.outputs[0].shape == (1, 4, 5, 6)


def test_another_dynamic_axis_is_refused() -> None:
    sizes = ({2: torch.export.Dim("height"), 3: torch.export.Dim("width")},)
    program = export(Block(), random(2, 4, 5, 6), dynamic_shapes=sizes)
    with pytest.raises(
        GraphError, match=r"input x has the dynamic axes 2 \((.*)\), 3 \((.*)\); .* give --shape x=2,4,\1,\2 "
    ):
        from_torch(program)


def test_a_batch_of_none_is_refused() -> None:
    with pytest.raises(GraphError, match="batch is 0; a whole number, 1 or more, is needed"):
        from_torch(export(Block(), random(2, 4, 5, 6)), 0)


# Inputs and outputs


class Options(nn.Module):
    """Inputs and outputs that are nested, or no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", random(3), persistent=False)
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any, pair: Any, flag: Any = None, *, scale: float = 1.0) -> Any:
        added = self.linear(x) if flag is None else x
        return {"sum": added + pair[0] * scale + self.kept, "rest": (pair[1]["y"] + torch.tensor([1.0, 2, 3]), None, 3)}


@pytest.mark.parametrize("any_batch", [False, True])
def test_inputs_and_outputs_are_nested_or_no_tensors(any_batch: bool) -> None:
    model, x, y, z = Options().eval(), random(2, 3), random(2, 3, seed=1), random(2, 3, seed=2)
    batch = {0: torch.export.Dim("batch")} if any_batch else None
    shapes = {"x": batch, "pair": (batch, {"y": batch}), "flag": None, "scale": None}
    program = torch.export.export(model, (x, (y, {"y": z}), None), {"scale": 2.5}, dynamic_shapes=shapes)
    graph = from_torch(program, 2)
    assert len(graph.inputs) == 3
    feeds = dict(zip([symbol.name for symbol in graph.inputs], (x.numpy(), y.numpy(), z.numpy()), strict=True))
    expected = model(x, (y, {"y": z}), scale=2.5)
    found = graph.evaluate(feeds)
    np.testing.assert_allclose(found[0], expected["sum"].detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], expected["rest"][0].detach(), rtol=1e-5, atol=1e-5)


def test_an_output_may_be_an_input_or_a_parameter() -> None:
    bias = random(3)
    graph = check(lambda x: (x, x + bias, bias * 2), random(2, 3))
    assert graph.outputs[0] is graph.inputs[0]


def test_a_program_without_tensors_is_refused() -> None:
    with pytest.raises(GraphError, match="the program gives no tensor"):
        from_torch(export(lambda x: 3, random(2, 3)))


def test_what_tvm_cannot_import_is_one_error() -> None:
    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scales", torch.ones(3, dtype=torch.float8_e4m3fn))

        def forward(self, x: Any) -> Any:
            return x + 1

    with pytest.raises(GraphError, match="TVM cannot import the program: "):
        from_torch(export(Narrow(), random(2, 3)))


@pytest.mark.parametrize("given", [nn.Linear(2, 2), 3, None])
def test_what_is_no_program_is_refused(given: Any) -> None:
    with pytest.raises(GraphError, match=rf"a {type(given).__name__} is given; an exported program is needed"):
        from_torch(given)


# Training and state


def test_a_model_in_training_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    program = torch.export.export(model, (random(2, 3, 5, 5),))
    message = r"of a model in training: batch_norm \(batch_norm.default\), dropout \(dropout.default\) would"
    with pytest.raises(GraphError, match=message):
        from_torch(program)
    with pytest.raises(GraphError, match="of a model in training"):
        from_torch(program.run_decompositions())


def test_attention_that_drops_weights_is_refused() -> None:
    with pytest.raises(GraphError, match=r"in training: scaled_dot_product_attention"):
        from_torch(export(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1), random(1, 2, 3, 4)))


def test_normalization_without_statistics_is_refused() -> None:
    with pytest.raises(GraphError, match="let normalisation track its statistics"):
        from_torch(export(nn.BatchNorm2d(4, track_running_stats=False), random(2, 4, 5, 5)))


# Programs that torch took apart


def test_a_program_that_was_taken_apart_is_read_too() -> None:
    model = nn.Sequential(
        Block(),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.GroupNorm(2, 4),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(16),
        nn.Linear(16, 8),
        nn.ELU(),
        nn.Dropout(),
        nn.Softmax(-1),
    ).eval()
    x = random(2, 4, 9, 8)
    program = torch.export.export(model, (x,)).run_decompositions()
    compare(from_torch(program), model, x)


def test_attention_that_torch_took_apart_is_read() -> None:
    x = random(1, 2, 5, 4)
    program = export(lambda x: F.scaled_dot_product_attention(x, x, x), x)
    graph = from_torch(program.run_decompositions())
    (found,) = graph.evaluate({graph.inputs[0].name: x.numpy()})
    np.testing.assert_allclose(found, F.scaled_dot_product_attention(x, x, x), rtol=1e-5, atol=1e-6)


# What is loaded


def test_neither_torch_nor_tvm_is_loaded_before_it_is_needed(tmp_path: Any) -> None:
    code = (
        "import sys, mrt; mrt.from_torch; mrt.load_model\n"
        "assert not {'torch', 'tvm'} & set(sys.modules)\n"
        "open(sys.argv[1], 'wb').write(b'PK\\x03\\x04 and no more')\n"
        "try: mrt.load_model(sys.argv[1])\n"
        "except mrt.MRTError as error: assert 'no whole archive' in str(error), error\n"
        "assert not {'torch', 'tvm'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model.pt2")], check=True)


def test_a_missing_torch_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelFileError, match=r"needs the package torch; install it with: pip install .*\[torch\]"):
        mrt.from_torch(None)


def test_many_functions_are_exported_in_one_go() -> None:
    """What the tests of operators build upon: the outputs stand in the order of the functions."""
    parts = Each({"first": lambda x: x + 1, "last": lambda x: (x * 2, x * 3)})
    assert [round(float(item[0] / 1.0), 3) for item in outputs_of(parts, torch.ones(1))] == [2, 2, 3]
