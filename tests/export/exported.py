"""Running an exported model by ONNX Runtime or by ONNX itself and comparing it with what the graph means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator
from packaging.version import Version

from mrt.export.onnx import to_onnx
from mrt.frontend.onnx import from_onnx
from mrt.symbol import Array, Graph
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.quantized_tensor import TensorQuantization

Feeds = Mapping[str, Array]
MULTIPLIES_BYTES = Version(onnxruntime.__version__) >= Version("1.25")
"""Whether ONNX Runtime does; earlier ones, such as the last for Python 3.10, are wrong where the processor has AMX."""


def facts(graph: Graph, ranges: Mapping[str, tuple[int, int]] | None = None) -> list[TensorQuantization]:
    """The facts of a graph's inputs: of scale 1, in the given ranges or anywhere in their dtypes."""
    ranges = ranges or {}
    return [
        TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, *ranges.get(s.name, DTYPE_RANGES[s.dtype]))
        for s in graph.inputs
    ]


def exported(graph: Graph, inputs: Sequence[TensorQuantization] | None = None) -> onnx.ModelProto:
    """The graph's ONNX model, checked by ONNX with its shapes and dtypes inferred."""
    outputs = [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, 0, 0) for s in graph.outputs]
    model = to_onnx(graph, facts(graph) if inputs is None else inputs, outputs, "digest")
    onnx.checker.check_model(model, full_check=True)
    return model


def load(graph: Graph, paths: Sequence[Path]) -> onnx.ModelProto:
    """The model that a quantized model's `to_onnx` wrote."""
    (path,) = paths
    return onnx.load(path)


ALL, NONE = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model: onnx.ModelProto, samples: Sequence[Feeds], level: Any = ALL) -> list[list[Array]]:
    """What ONNX Runtime makes of each sample; ONNX's own implementation where that cannot be trusted.

    level: of its graph optimizations, which are all on unless told otherwise.
    """
    if not MULTIPLIES_BYTES:
        reference = ReferenceEvaluator(model)
        return [reference.run(None, dict(feeds)) for feeds in samples]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [session.run(None, dict(feeds)) for feeds in samples]


def read(model: onnx.ModelProto, samples: Sequence[Feeds]) -> list[list[Array]]:
    """What MRT's own reader makes of each sample."""
    graph = from_onnx(model)
    return [graph.evaluate(feeds) for feeds in samples]


def assert_same(graph: Graph, model: onnx.ModelProto, samples: Sequence[Feeds]) -> None:
    """What `run` gives is the graph's integers, in their shapes and dtypes."""
    for feeds, found in zip(samples, run(model, samples), strict=True):
        for symbol, a, b in zip(graph.outputs, found, graph.evaluate(feeds), strict=True):
            assert (a.shape, a.dtype.name) == (symbol.shape, symbol.dtype), symbol
            np.testing.assert_array_equal(a, b, err_msg=f"{symbol} {symbol.operator}")
