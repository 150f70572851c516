"""`mrt.quantize` and `mrt.prepare` of whatever a user has: modules, programs, files, loaders of PyTorch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mrt
from mrt.errors import ConfigError, DataError, GraphError, MRTError
from mrt.symbol import NumpyRunner

torch = pytest.importorskip("torch")
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
RNG = np.random.default_rng(5)
FAST = mrt.QuantizationConfig(preset="fast")


class TwoHeads(torch.nn.Module):  # type: ignore[misc]
    """A network of two inputs and a dictionary of outputs, one of them behind a softmax, which is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU())
        self.scores = torch.nn.Linear(5, 4)
        self.dropout = torch.nn.Dropout()

    def forward(self, left: Any, right: Any, labels: Any = None) -> dict[str, Any]:
        hidden = self.dropout(self.body(left + right))
        return {"scores": self.scores(hidden).softmax(-1), "boxes": (hidden, left * 2)}


def given(*shape: int) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape).astype(np.float32))


LEFT, RIGHT, LABELS = given(8, 6), given(8, 6), torch.arange(8)


class Loader:
    """What DataLoader looks like to who iterates over it."""

    def __init__(self, *batches: Any) -> None:
        self.batches, self.dataset = batches, range(8)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def quantized(model: Any, batches: Any, **options: Any) -> mrt.QuantizedModel:
    return mrt.quantize(model, batches, FAST, runner=NumpyRunner(), **options)


@pytest.fixture(scope="module")
def layer() -> mrt.Graph:
    """A dense layer of six inputs."""
    return mrt.prepare(torch.nn.Linear(6, 2), example_inputs=LEFT)


LOADERS: Mapping[str, Callable[[], Any]] = {
    "pairs of inputs": lambda: Loader((LEFT[:5], RIGHT[:5]), (LEFT[5:], RIGHT[5:])),
    "lists with labels": lambda: Loader([LEFT, RIGHT, LABELS]),
    "inputs and labels": lambda: Loader(((LEFT, RIGHT), LABELS)),
    "mappings": lambda: Loader({"left": LEFT, "right": RIGHT, "labels": LABELS}),
    "mappings and labels": lambda: [({"left": LEFT.numpy(), "right": RIGHT.numpy()}, LABELS)],
    "a generator": lambda: (batch for batch in [(LEFT, RIGHT)]),
}


def test_every_kind_of_loader_gives_the_same_ranges() -> None:
    program = torch.export.export(TwoHeads().eval(), (LEFT[:1], RIGHT[:1]))
    graph = mrt.from_torch(program)
    meant = quantized(graph, {"left": LEFT.numpy(), "right": RIGHT.numpy()}).ranges
    assert len(meant) > 2
    for name, make in LOADERS.items():
        assert quantized(graph, make()).ranges == meant, name
    assert quantized(program, LOADERS["inputs and labels"]()).ranges == meant


@pytest.fixture(scope="module", params=["pairs of inputs", "mappings", "a generator"])
def traced(request: pytest.FixtureRequest) -> tuple[TwoHeads, mrt.QuantizedModel, mrt.Module]:
    """A module of which a part is in training, the integers of it as data trace it, and these compiled."""
    module = TwoHeads().train()
    module.body.eval()
    model = quantized(module, LOADERS[request.param]())
    assert module.training and module.dropout.training and not module.body.training
    return module.eval(), model, model.compile()


def test_a_module_is_traced_by_a_batch_and_stays_in_training(
    traced: tuple[TwoHeads, mrt.QuantizedModel, mrt.Module],
) -> None:
    module, model, compiled = traced
    assert [entry.name for entry in model.inputs] == ["left", "right"]
    meant = module(LEFT, RIGHT)
    found = compiled({"left": LEFT, "right": RIGHT})
    assert list(found.keys()) == ["scores", "boxes.0", "boxes.1"] == list(model.output_names)
    for name, value in zip(found.keys(), (meant["scores"], *meant["boxes"]), strict=True):
        np.testing.assert_allclose(found[name], value.detach().numpy(), atol=0.1)
    np.testing.assert_array_equal(dict(found)["scores"], found.scores)
    with pytest.raises(DataError, match="did you mean scores"):
        found["score"]


def test_names_of_outputs_are_saved(traced: tuple[TwoHeads, mrt.QuantizedModel, mrt.Module], tmp_path: Path) -> None:
    _, model, compiled = traced
    model.save(tmp_path)
    assert mrt.load(tmp_path).output_names == ("scores", "boxes.0", "boxes.1")
    compiled.save(tmp_path / "model.so")
    assert mrt.load_module(tmp_path / "model.so").output_names == ("scores", "boxes.0", "boxes.1")


def test_examples_of_inputs_go_before_the_data() -> None:
    module = TwoHeads()
    for example in ((LEFT, RIGHT), {"left": LEFT.numpy(), "right": RIGHT.numpy().astype(np.float64)}):
        graph = mrt.prepare(module, example_inputs=example)
        assert [(symbol.name, symbol.shape) for symbol in graph.inputs] == [("left", (1, 6)), ("right", (1, 6))]


def test_a_batch_that_a_module_fixes_is_one_sample() -> None:
    class Fixed(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.relu(x) * float(x.shape[0])

    assert mrt.prepare(Fixed(), example_inputs=LEFT).inputs[0].shape == (1, 6)


def test_a_path_takes_open_sizes_from_named_batches(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    x, y = (helper.make_tensor_value_info(name, 1, ["batch", "length", 3]) for name in ("x", "y"))
    made = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "nonlinear")], "g", [x], [y])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "m.onnx"))
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        assert quantized(source, [{"x": np.ones((2, 7, 3), np.float32)}]).inputs[0].shape == (1, 7, 3)
    with pytest.raises(GraphError, match="length"):
        quantized(model, [np.ones((2, 7, 3), np.float32)])
    assert quantized(model, [np.ones((2, 7, 3), np.float32)], shapes={"x": (1, 7, 3)}).inputs[0].shape == (1, 7, 3)
    labelled = {"x": np.ones((2, 7, 3), np.float32), "labels": np.ones(2, np.int64)}
    assert quantized(tmp_path / "m.onnx", [labelled]).inputs[0].shape == (1, 7, 3)


def test_a_model_that_cannot_be_read_with_the_sizes_of_data_says_both_reasons(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    x, y = (helper.make_tensor_value_info(name, 1, ["batch", "length", 3]) for name in ("x", "y"))
    made = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "nonlinear")], "g", [x], [y])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    wide = [{"x": np.ones((2, 7, 4), np.float32)}]
    told = refusal(lambda: quantized(tmp_path / "m.onnx", wide), GraphError)
    assert "dynamic axis 1 (length)" in told and "with the sizes of the first batch, x=1,7,4: " in told
    named = [{"z": np.ones((2, 7, 3), np.float32)}]
    told = refusal(lambda: quantized(tmp_path / "m.onnx", named), GraphError)
    assert "dynamic axis 1 (length)" in told and "z=1,7,3" in told


def test_tensors_of_double_precision_are_traced_in_single() -> None:
    module = torch.nn.Linear(6, 2)
    assert mrt.prepare(module, example_inputs=LEFT.double()).inputs[0].dtype == "float32"
    assert mrt.prepare(module.double(), example_inputs=LEFT.double()).inputs[0].dtype == "float32"


def test_a_loaded_model_is_scored_against_a_module_or_a_file_of_open_sizes(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    x, y = (helper.make_tensor_value_info(name, 1, ["batch", "length"]) for name in ("x", "y"))
    made = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "nonlinear")], "g", [x], [y])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    data = [torch.linspace(-1, 1, 12).reshape(2, 6)]

    class Positive(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.relu(x)

    model = quantized(Positive(), data)
    module = model.compile()
    named = quantized(tmp_path / "m.onnx", data, shapes={"x": (1, 6)})
    named.save(tmp_path / "saved")
    loaded = mrt.load(tmp_path / "saved")
    for network in (Positive(), tmp_path / "m.onnx"):
        whole = loaded.evaluate([{"x": data[0]}], network, named.compile(), progress=None)
        assert whole.samples == 2 and whole.outputs[0].largest < 0.01
    assert model.evaluate(iter(data), None, module, progress=None).samples == 2, "which is read once"


def refusal(call: Callable[[], object], kind: type[MRTError]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_what_cannot_be_traced_is_told() -> None:
    class Branching(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    class AnyNumber(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *parts: Any) -> Any:
            return parts[0]

    told = refusal(lambda: mrt.prepare(Branching(), example_inputs=LEFT), GraphError)
    assert "torch.export cannot trace Branching" in told and "(torch.float32[1, 6])" in told
    assert "example_inputs=" in refusal(lambda: mrt.prepare(TwoHeads()), GraphError)
    misnamed = [{"lft": LEFT, "right": RIGHT}]
    assert "forward() does not take" in refusal(lambda: quantized(TwoHeads(), misnamed), GraphError)
    assert "any number" in refusal(lambda: quantized(AnyNumber(), [(LEFT, LABELS)]), GraphError)
    assert "no torch.nn.Module" in refusal(lambda: mrt.prepare(DIGITS, example_inputs=LEFT), GraphError)
    assert "graph that is read" in refusal(
        lambda: mrt.prepare(mrt.load_model(DIGITS), shapes={"image": (1, 1, 8, 8)}), GraphError
    )


def test_data_that_does_not_fit_is_told(layer: mrt.Graph) -> None:
    dataset = torch.utils.data.TensorDataset(LEFT, LABELS)
    assert "DataLoader(dataset" in refusal(lambda: quantized(layer, dataset), DataError)
    assert "tuple of 3 parts" in refusal(lambda: quantized(layer, [(LEFT, LABELS, LABELS)]), DataError)
    assert "['other']" in refusal(lambda: quantized(layer, [{"other": LEFT}]), DataError)
    assert "empty" in refusal(lambda: quantized(torch.nn.Linear(6, 2), []), DataError)


def test_an_unknown_argument_names_the_nearest() -> None:
    told = refusal(lambda: mrt.quantize(DIGITS, LEFT, calibation=5), ConfigError)  # type: ignore[call-arg]
    assert told == "quantize: calibation is no argument (found 5); did you mean calibration?"
    assert "missing a required argument: 'graph'" in refusal(lambda: mrt.prepare(), ConfigError)  # type: ignore[call-arg]


def test_tensors_are_arrays_wherever_they_come_from(layer: mrt.Graph) -> None:
    learning = torch.nn.Parameter(LEFT)
    assert quantized(layer, learning).ranges == quantized(layer, LEFT.numpy()).ranges
    half = LEFT.to(torch.bfloat16)
    assert quantized(layer, [half]).ranges == quantized(layer, [half.float()]).ranges


def test_pytorch_is_not_loaded_for_who_does_not_use_it() -> None:
    code = (
        "import sys, numpy, mrt\nfrom mrt.symbol import NumpyRunner\n"
        f"mrt.quantize({str(DIGITS)!r}, numpy.zeros((2, 1, 8, 8)), mrt.QuantizationConfig(preset='mrt'), "
        "runner=NumpyRunner())\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


def test_progress_is_shown_on_a_terminal_alone(layer: mrt.Graph, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    for progress, is_shown in ((True, True), (None, False), (False, False), (lambda done: None, False)):
        quantized(layer, [LEFT], progress=progress)
        shown = capsys.readouterr()
        assert not shown.out
        assert all((name in shown.err) == is_shown for name in ("read", "prepare", "calibrate", "quantize")), progress
    monkeypatch.setattr("rich.console.Console.is_terminal", False)
    quantized(layer, [LEFT])
    assert capsys.readouterr() == ("", "")
    assert "True for bars" in refusal(lambda: quantized(layer, [LEFT], progress=5), ConfigError)


def test_a_notebook_without_widgets_gets_one_line(
    layer: mrt.Graph, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("mrt.progress.rich_draws_in_notebooks", lambda: False)
    quantized(layer, Loader(LEFT))
    shown = capsys.readouterr()
    assert "calibrate: 8 of 8 samples" in shown.out and "\n" not in shown.out and shown.out.endswith("\r")
    assert not shown.err
