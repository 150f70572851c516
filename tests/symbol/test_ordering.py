"""Elements in their order, with ties by place: the record, its bounds, compiled, in integers and behind a softmax."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import mrt
from mrt.backend import TvmRunner
from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx
from mrt.preparation import prepare
from mrt.symbol import Array, Graph, GraphBuilder, Interval, NumpyRunner, TensorType
from mrt.symbol.operators.ordering import TopK

RNG = np.random.default_rng(4)
TIED = RNG.integers(-2, 3, (3, 4, 5))


def in_order(x: Array, axis: int, k: int, ascends: bool) -> tuple[Array, Array]:
    """By Python: sorted by value, then place."""
    rows = np.moveaxis(x, axis, -1)
    found = [
        sorted(range(rows.shape[-1]), key=lambda i: (row[i] if ascends else -float(row[i]), i))[: k or None]
        for row in rows.reshape(-1, rows.shape[-1]).tolist()
    ]
    places = np.reshape(found, (*rows.shape[:-1], -1))
    return np.moveaxis(np.take_along_axis(rows, places, -1), -1, axis), np.moveaxis(places, -1, axis)


def graph_of(x: Array, *operators: TopK) -> Graph:
    builder = GraphBuilder()
    data = builder.input("x", TensorType(x.shape, x.dtype.name))
    return builder.graph([builder.apply(operator, [data]) for operator in operators])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_order_and_ties_are_pythons_in_numpy_and_compiled(dtype: str) -> None:
    x = TIED.astype(dtype)
    asked = [(1, 0, False), (-1, 3, True), (2, 1, False), (2, 5, True)]
    graph = graph_of(x, *(TopK(axis, k, kind, up) for axis, k, up in asked for kind in ("value", "indices")))
    wanted = [each for axis, k, up in asked for each in in_order(x, axis, k, up)]
    for runner in (NumpyRunner(), TvmRunner()):
        for symbol, found, right in zip(graph.outputs, runner.prepare(graph)({"x": x}), wanted, strict=True):
            assert found.dtype == symbol.dtype and np.array_equal(found, right)


def test_bounds_hold_for_every_tensor_within_them_and_are_reached() -> None:
    lo, hi = np.array([[-1, 0, -2]]), np.array([[1, 1, 0]])
    every = np.array(list(product(*(range(a, b + 1) for a, b in zip(lo[0], hi[0], strict=True)))), np.int32)
    for kind, ascends in product(("value", "indices"), (False, True)):
        operator = TopK(1, 2, kind, ascends)
        found, bounds = operator.evaluate(every), operator.bounds(Interval(lo, hi, (1, 3)))
        assert (bounds.lo <= found).all() and (found <= bounds.hi).all()
        assert bounds.max == (1 if kind == "value" else 2) and bounds.min == (-2 if kind == "value" else 0)


def test_malformed_attributes_are_refused() -> None:
    for operator, words in ((TopK(1, 9), "k is 9"), (TopK(1, -1), "k is -1"), (TopK(0, 1, "both"), "ret_typ is")):
        with pytest.raises(GraphError, match=words):
            graph_of(TIED, operator)
    assert "ordered" in TopK(0).batch_obstacle(TensorType((3, 4)))


def onnx_model(count: int, axis: int, largest: int, length: int = 5) -> tuple[Graph, onnxruntime.InferenceSession]:
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=axis, largest=largest)
    outputs = [helper.make_tensor_value_info("values", 1, None), helper.make_tensor_value_info("places", 7, None)]
    graph = helper.make_graph(
        [node],
        "topk",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 4, length))],
        outputs,
        [numpy_helper.from_array(np.array([count], np.int64), "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return from_onnx(model), onnxruntime.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize(("count", "axis", "largest"), [(2, -1, 1), (4, 1, 0), (5, 2, 1)])
def test_onnx_has_these_ties(count: int, axis: int, largest: int) -> None:
    graph, session = onnx_model(count, axis, largest)
    x = TIED.astype(np.float32)
    for found, wanted in zip(graph.evaluate({"x": x}), session.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_more_than_can_be_compared_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="the length of the axis is 20000"):
        onnx_model(2, -1, 1, length=20000)


class Classes(torch.nn.Module):
    """The best classes, by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 20)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores, classes = torch.topk(torch.softmax(self.layer(x), -1), 5)
        return {"scores": scores, "classes": classes, "lowest": torch.sort(self.layer(x)[:, :6])[0]}


def test_a_choice_behind_a_softmax_is_run_as_postprocessing(tmp_path) -> None:
    network, x = Classes().eval(), torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    program = torch.export.export(network, (x[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    graph = mrt.from_torch(program)
    assert prepare(graph).postprocess is not None
    model = mrt.quantize(graph, [x.numpy()], mrt.QuantizationConfig(preset="fast"), runner=NumpyRunner())
    model.save(tmp_path / "model")
    model = mrt.load(tmp_path / "model")
    assert model.postprocess is not None and len(model.postprocess.outputs) == 3
    module = model.compile()
    floats = {name: value.detach().numpy() for name, value in network(x[:8]).items()}
    for row in range(4):
        found = module(x[row : row + 1].numpy())
        integers = model.graph.evaluate(model.quantize_inputs(x[row : row + 1].numpy()))
        evaluated = model.postprocess.evaluate(
            dict(zip((s.name for s in model.postprocess.inputs), model.dequantize_outputs(integers), strict=True))
        )
        for one, other, (name, wanted) in zip(found, evaluated, floats.items(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)
            if name in ("scores", "lowest"):
                assert np.abs(one - wanted[row]).max() < 0.05
        assert found[1][0, 0] == floats["classes"][row, 0]
