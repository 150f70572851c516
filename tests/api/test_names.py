"""Overrides by the names of a user's model, and errors that name what would be right."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mrt
from mrt.errors import ConfigError, MRTError, QuantizationError
from mrt.frontend.shared.refusals import list_uncovered
from mrt.frontend.shared.split import FileOperator
from mrt.progress import Reporter
from mrt.quantization.names import with_given_names
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import LogSoftmax

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
RNG = np.random.default_rng(8)
X = RNG.standard_normal((6, 1, 8, 8)).astype(np.float32)


def weight_levels(model: mrt.QuantizedModel) -> dict[str, int]:
    """The largest magnitude among the integers of each layer's weight, by prepared symbol."""
    found = {}
    for symbol in model.graph.operators:
        weight = model.graph.value(symbol.inputs[1]) if symbol.channel_axis is not None else None
        if weight is not None:
            found[symbol.origin] = int(np.abs(weight.astype(int)).max())
    return found


@pytest.mark.parametrize("name", ["stem.convolution", "stem.weight", "stem.norm", "stem.conv*", "stem.norm_product"])
def test_a_layer_of_the_file_has_the_bits_that_are_given_to_it(name: str) -> None:
    """The convolution is folded into its batch normalisation, and its bias is apart: none has the name of the file."""
    config = mrt.QuantizationConfig(preset="mrt", overrides={name: {"weight": {"bits": 4}}})
    levels = weight_levels(mrt.quantize(DIGITS, X, config, runner=NumpyRunner()))
    assert len(levels) == 7
    assert {layer for layer, level in levels.items() if level <= 7} == {"stem.norm_product"}


def test_modules_of_pytorch_are_their_symbols() -> None:
    torch = pytest.importorskip("torch")
    body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    module = torch.nn.Sequential(body, torch.nn.Linear(4, 2))
    config = mrt.QuantizationConfig(
        preset="mrt", overrides={"0": {"weight": {"bits": 5}}, "0.2": {"weight": {"bits": 3}}}
    )
    model = mrt.quantize(module, RNG.standard_normal((6, 4)).astype(np.float32), config, runner=NumpyRunner())
    first, second, last = weight_levels(model).values()
    assert 7 < first <= 15 and second == 3 and last > 15


def network(names: Mapping[str, tuple[str, ...]]) -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4)))
    for place in (1, 2):
        weight = builder.parameter(f"w{place}", RNG.standard_normal((4, 4)).astype(np.float32))
        x = builder.apply(FullyConnected(num_hidden=4, no_bias=True), [x, weight], f"fc{place}")
        x = builder.apply(Relu(), [x], f"act{place}")
    made = builder.graph([x])
    return Graph(made.inputs, made.outputs, made.parameters, other_names=names)


def overrides(graph: Graph, given: Mapping[str, Any]) -> Mapping[str, Any]:
    config = mrt.QuantizationConfig(overrides=given)
    return with_given_names(config, graph, mrt.prepare(graph)).overrides


def test_activations_of_a_part_are_those_that_its_operators_give() -> None:
    graph = network({"block": ("fc1", "act1")})
    found = overrides(
        graph, {"*": {"activation": {"bits": 9}}, "block": {"activation": {"bits": 5}, "weight": {"bits": 3}}}
    )
    assert {name: each.activation.bits for name, each in found.items()} == {
        **dict.fromkeys(("x", "w1", "w2", "fc2", "act2"), 9),
        **dict.fromkeys(("fc1", "act1"), 5),
    }
    assert {name for name, each in found.items() if each.weight.bits == 3} == {"fc1", "act1"}
    given = {"fc1": {"weight": {"bits": 3}}}
    assert overrides(graph, given) == mrt.QuantizationConfig(overrides=given).overrides


def test_a_name_that_means_two_things_or_none_is_refused() -> None:
    graph = network({"fc1": ("fc2",), "encoder.layer": ("act1",)})
    with pytest.raises(ConfigError, match=r"overrides\.fc1 is a symbol, and a part .* fc2; .*\[f\]c1 for the symbol"):
        overrides(graph, {"fc1": {}})
    assert list(overrides(graph, {"[f]c1": {}})) == ["[f]c1"]
    with pytest.raises(ConfigError, match=r"overrides\.encoder\.layr matches no .*did you mean encoder\.layer"):
        overrides(graph, {"encoder.layr": {}})
    with pytest.raises(ConfigError, match="mrt.prepare"):
        overrides(graph, {"§§§": {}})


# What messages tell to write is what works


def in_python(message: str) -> list[str]:
    (found,) = re.findall(r"mrt\.PreparationConfig\(split=(\[.*?\])\)", message)
    names = ast.literal_eval(found)
    assert isinstance(names, list)
    return names


def test_the_option_that_an_error_names_in_python_works() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 20_000)))
    y = builder.apply(LogSoftmax(), [builder.apply(Relu(), [x], "kept")], "scores")
    graph = builder.graph([builder.apply(Relu(), [y], "last")])
    data, config = RNG.standard_normal((2, 20_000)), mrt.QuantizationConfig(preset="mrt")
    with pytest.raises(QuantizationError, match=r"20000 classes.*prepare: \{split: \[scores\]\}.*--set") as caught:
        mrt.quantize(graph, data, config, runner=NumpyRunner())
    split = mrt.PreparationConfig(split=in_python(str(caught.value)))
    assert mrt.quantize(graph, data, config, preparation=split, runner=NumpyRunner()).postprocess is not None


def test_pixels_that_were_not_declared_are_named_in_python() -> None:
    model = mrt.quantize(network({}), RNG.integers(0, 255, (5, 4)).astype(np.uint8), runner=NumpyRunner())
    (note,) = [note for note in model.notes if "taken as the real values" in note]
    assert "quantize.inputs.x" in note and "mrt.QuantizationConfig(inputs={'x': {…}})" in note


def test_a_split_that_leaves_almost_nothing_is_not_proposed() -> None:
    def told(*kinds: str) -> str:
        operators = [FileOperator(f"n{at}", kind, [f"t{at - 1}"], [f"t{at}"]) for at, kind in enumerate(kinds)]
        uncovered = {"acme.Odd": [each.name for each in operators if each.kind == "acme.Odd"]}
        return list_uncovered("the model", uncovered, "replace it", operators, [f"t{len(kinds) - 1}"])

    assert "split" not in told("Relu", "acme.Odd")
    assert "split" not in told("Cast", "Relu", "acme.Odd", "Conv", "Relu", "Gemm")
    assert "with 2 of its 6 operators" in told("Conv", "Relu", "acme.Odd", "Conv", "Relu", "Gemm")
    assert "with 3 of its 5 operators" in told("Cast", "Relu", "Relu", "acme.Odd", "Relu")


def test_sizes_that_depend_on_the_data_are_told_in_words() -> None:
    pytest.importorskip("torch")
    import operator

    from mrt.frontend.torch.node import called

    assert called(operator.ge) == "ge of sizes" and called("aten.relu.default") == "aten.relu.default"


def test_progress_of_an_unknown_total_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter().progress("count", 0) as tell:
        tell(3)
    with Reporter().progress("count", 4) as tell:
        tell(2)
    assert capsys.readouterr().out == "count: 2 of 4 samples\n"


WRONG: Mapping[str, Any] = {
    "a type": lambda: mrt.QuantizationConfig(activation=5),
    "a key": lambda: mrt.QuantizationConfig(activaton={}),
    "an argument by place": lambda: mrt.QuantizationConfig(5),  # type: ignore[call-arg]
    "a value set later": lambda: setattr(mrt.QuantizationConfig(), "max_extra_operations", 2),
    "a text": lambda: mrt.CalibrationConfig.model_validate_json("{"),
    "a key of a text": lambda: mrt.CalibrationConfig.model_validate_json('{"sample": 3}'),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_options_are_errors_of_mrt(kind: str) -> None:
    with pytest.raises(MRTError) as caught:
        WRONG[kind]()
    assert isinstance(caught.value, ConfigError) and "Config" in str(caught.value)
