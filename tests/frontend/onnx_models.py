"""Small ONNX models for tests, and what they mean by ONNX Runtime or by ONNX itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mrt.frontend.onnx import from_onnx
from mrt.symbol import Graph

OPSETS = (9, 11, 13, 17, 21)


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    dtypes: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of float inputs (other element types in `dtypes`) that states no output shapes."""
    kinds = dtypes or {}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def single(
    op_type: str,
    shape: Sequence[int],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    inputs: Sequence[str] | None = None,
    **attributes: object,
) -> onnx.ModelProto:
    """One node on the input `x` and, after it, the constants (or `inputs` in the order given)."""
    names = list(inputs) if inputs is not None else ["x", *(constants or {})]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    return make_model([node], {"x": shape}, constants=constants, opset=opset)


def run_onnxruntime(model: onnx.ModelProto | str, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    feeds = {name: np.asarray(value) for name, value in feeds.items()}
    content = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def run_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """By ONNX's own implementation: the oracle where ONNX Runtime 1.23, the last for Python 3.10, is wrong."""
    return ReferenceEvaluator(model).run(None, dict(feeds))


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        symbol.name: rng.standard_normal(symbol.shape).astype(symbol.dtype)
        if symbol.type.is_float
        else rng.integers(0, 4, symbol.shape).astype(symbol.dtype)
        for symbol in graph.inputs
    }


def assert_agrees(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray] | None = None,
    batch: int = 1,
    run: Callable[..., list[np.ndarray]] = run_onnxruntime,
) -> Graph:
    """Reads the model, compares every output with that of `run` on random data, and gives the graph."""
    graph = from_onnx(model, batch)
    feeds = random_feeds(graph) if feeds is None else feeds
    expected = run(model, feeds)
    found = graph.evaluate(feeds)
    assert len(found) == len(expected)
    assert [symbol.name for symbol in graph.outputs] == [output.name for output in model.graph.output]
    for got, wanted in zip(found, expected, strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
    return graph


def operators_of(graph: Graph) -> list[str]:
    return [symbol.op for symbol in graph.operators]
