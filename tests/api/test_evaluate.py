"""`QuantizedModel.evaluate`: float against integer over any data, with labels of any shape that fits, or without."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mrt
from mrt.errors import ConfigError, DataError, ModelFileError
from mrt.frontend.anything import read_anything
from mrt.symbol import Evaluate, Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.linear import FullyConnected
from tests.pipeline.runs import save_network

RNG = np.random.default_rng(3)
X = RNG.standard_normal((23, 8)).astype(np.float32)
CLASSES = 5


@pytest.fixture(scope="module")
def graph() -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8)))
    weight = builder.parameter("weight", RNG.standard_normal((CLASSES, 8)).astype(np.float32))
    scores = builder.apply(FullyConnected(num_hidden=CLASSES, no_bias=True), [x, weight], "scores")
    return builder.graph([builder.apply(Relu(), [scores], "kept"), scores])


@pytest.fixture(scope="module")
def model(graph: Graph) -> mrt.QuantizedModel:
    config = mrt.QuantizationConfig(weight={"bits": 3}, activation={"bits": 4}, preset="mrt")
    return mrt.quantize(graph, X, config, runner=NumpyRunner())


@pytest.fixture(scope="module")
def module(model: mrt.QuantizedModel) -> mrt.Module:
    return model.compile()


def outputs(model: mrt.QuantizedModel, graph: Graph) -> tuple[list[Any], list[Any]]:
    """Both outputs of both networks, by NumPy, sample by sample."""
    floats = [graph.evaluate({"x": x[None]}) for x in X]
    integers = [model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x[None]))) for x in X]
    return [[np.concatenate(part) for part in zip(*found, strict=True)] for found in (floats, integers)]  # type: ignore[return-value]


def test_scores_are_those_of_numpy(model: mrt.QuantizedModel, module: mrt.Module, graph: Graph) -> None:
    floats, integers = outputs(model, graph)
    labels = integers[0].argmax(1)
    labels[:4] += 1 - 2 * (labels[:4] > 0)
    loader = [(X[:7], labels[:7]), [X[7:20], labels[7:20, None]], {"x": X[20:], "labels": labels[20:]}]
    found = model.evaluate(loader, module=module)
    assert found.samples == len(X)
    assert [output.name for output in found.outputs] == ["kept", "scores"]
    for f, q, output in zip(floats, integers, found.outputs, strict=True):
        f, q = f.astype(np.float64), q.astype(np.float64)
        assert output.sqnr_db == pytest.approx(10 * math.log10((f**2).sum() / ((f - q) ** 2).sum()))
        assert output.largest == pytest.approx(np.abs(f - q).max())
        assert output.agreement.value == pytest.approx(float((f.argmax(1) == q.argmax(1)).mean()))
    assert found.float_top1 == pytest.approx((floats[0].argmax(1) == labels).mean())
    assert found.integer_top1 == pytest.approx((integers[0].argmax(1) == labels).mean())
    assert found.integer_top1 != found.float_top1 and found.agreement is not None and found.agreement < 1
    assert "23 samples" in str(found) and f"{100 * found.float_top1:.2f} %" in str(found)  # type: ignore[operator]


def test_labels_that_fit_nothing_are_left_out_and_told(model: mrt.QuantizedModel, module: mrt.Module) -> None:
    for labels in (np.zeros((23, 4), int), np.zeros(23), ["a"] * 23, None):
        found = model.evaluate([(X, labels)], module=module)
        assert found.float_top1 is None and found.samples == 23
        assert any("left out" in note for note in found.notes) == (labels is not None), labels
    with pytest.raises(DataError, match="labels go up to 5, the network has 5 classes"):
        model.evaluate([(X, np.full(23, 5))], module=module)


def test_a_class_is_scored_at_every_place_and_padding_is_not() -> None:
    from mrt.scoring import _class_axis, _top1

    scores = RNG.standard_normal((2, 3, 4))
    labels = scores.argmax(-1)
    labels[0] = -100
    labels[1, 0] = (labels[1, 0] + 1) % 4
    axis = _class_axis(scores, labels)
    assert axis == -1 and (_top1(scores, labels, axis).hits, _top1(scores, labels, axis).total) == (2, 3)
    image = np.moveaxis(scores, -1, 1)
    assert _class_axis(image, labels) == 1 and _top1(image, labels, 1) == _top1(scores, labels, -1)
    assert _class_axis(scores.reshape(2, 12, 1, 1), np.zeros(2, int)) == 1
    assert _class_axis(scores, np.zeros(2, int)) is None


def test_only_so_many_samples_are_read(model: mrt.QuantizedModel, module: mrt.Module) -> None:
    assert model.evaluate((x[None] for x in X), module=module, samples=3).samples == 3
    assert model.evaluate(X, module=module, samples=9).samples == 9
    with pytest.raises(DataError, match="no sample"):
        model.evaluate([], module=module)


def test_a_loaded_model_is_given_its_network(
    model: mrt.QuantizedModel, module: mrt.Module, graph: Graph, tmp_path: Path
) -> None:
    model.save(tmp_path)
    again = mrt.load(tmp_path)
    with pytest.raises(ConfigError, match=r"network is missing.*evaluate\(loader, 'model.onnx'\)"):
        again.evaluate(X, module=module)
    assert again.evaluate(X, graph, module) == model.evaluate(X, module=module)


def test_a_model_and_its_graph_print_as_a_page(model: mrt.QuantizedModel, graph: Graph) -> None:
    for shown in (repr(model), str(model), repr(graph)):
        assert len(shown.splitlines()) <= 40 and max(map(len, shown.splitlines())) <= 118
    assert "scores" in repr(model) and "proven: every tensor fits" in repr(model) and "model.compile()" in repr(model)
    weight = [line for line in repr(model).splitlines() if "FullyConnected" in line]
    assert weight[0].split()[2:4] == ["5×8", "3"]
    assert "<pre>" in model._repr_html_() and "<pre>" in graph._repr_html_()


def test_a_long_graph_is_cut_in_print_and_whole_in_text() -> None:
    builder = GraphBuilder()
    symbol = builder.input("x", TensorType((1, 8)))
    for place in range(300):
        symbol = builder.apply(Relu(), [symbol], f"step{place}")
    graph = builder.graph([symbol])
    assert len(str(graph).splitlines()) <= 61 and "graph.text()" in str(graph) and "step299" in str(graph)
    assert all(f"%step{place} " in graph.text() for place in range(300))
    assert len(repr(graph).splitlines()) <= 40


def test_the_network_of_a_file_is_read_again_and_not_held_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_network(tmp_path / "net.onnx")
    x = RNG.standard_normal((6, 2, 6, 6)).astype(np.float32)
    read: list[weakref.ref[Graph]] = []
    held: list[bool] = []

    def watched(*given: Any) -> Graph:
        graph = read_anything(*given)
        read.append(weakref.ref(graph))
        return graph

    class Watching(NumpyRunner):
        def prepare(self, graph: Graph) -> Evaluate:
            gc.collect()
            held.append(read[0]() is not None)
            return super().prepare(graph)

    monkeypatch.setattr("mrt.api.read_anything", watched)
    model = mrt.quantize(tmp_path / "net.onnx", x, runner=Watching(), progress=None)
    assert held and not any(held)
    found = model.evaluate(x, progress=None)
    assert found.samples == 6 and found.sqnr_db == model.evaluate(x, tmp_path / "net.onnx").sqnr_db
    (tmp_path / "net.onnx").unlink()
    with pytest.raises(ModelFileError, match="net.onnx"):
        model.evaluate(x, progress=None)
