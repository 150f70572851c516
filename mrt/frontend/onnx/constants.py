"""Values that do not depend on the data: shape arithmetic and constants are computed while reading."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mrt.errors import GraphError
from mrt.frontend.onnx.files import widen
from mrt.symbol import Array

_BROADCASTING_NAMES = """
    Add And Clip Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor
"""
_OTHER_NAMES = """
    Abs ArgMax ArgMin Cast CastLike Ceil Compress Concat ConstantOfShape Cos CumSum DequantizeLinear Dropout Erf Exp
    Expand EyeLike Flatten Floor Gather GatherElements GatherND Gemm Identity Log MatMul Neg NonZero Not OneHot Pad
    QuantizeLinear Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements ScatterND Sigmoid Sign Sin Slice Split
    Sqrt Squeeze Tanh Tile Transpose Trilu Unsqueeze
"""

_BROADCASTING = frozenset(_BROADCASTING_NAMES.split())

FOLDABLE = _BROADCASTING | frozenset(_OTHER_NAMES.split())
"""Operators that are computed where no input depends on the data. None draws random numbers or holds a graph."""

ALWAYS_KNOWN = frozenset({"Constant", "EyeLike", "Shape", "Size"})
"""Operators whose value is known whatever their input is, since every shape is."""

MOVING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators of these that only move the elements of their first input."""

_MADE = 2**25
_USES_OF_GIVEN = 16
_COST_OF_LOOP = 128


class Budget:
    """How many elements may be computed while a model is read, however much a few numbers of its file ask for.

    Constants that the file holds may be moved, cast and scaled as often as exporters do it.
    """

    def __init__(self) -> None:
        self._left = _MADE

    def grant(self, given: int) -> None:
        """Counts elements that the file holds."""
        self._left += _USES_OF_GIVEN * given

    def spend(self, elements: float) -> None:
        """ValueError where a result has more elements than are left."""
        if not elements <= self._left:
            raise ValueError(
                f"the result would have about {elements:.3g} elements; the constants of the model allow {self._left}"
            )
        self._left -= int(elements)


def _product(sizes: object) -> float:
    return float(np.prod(np.asarray(sizes, np.float64)))


def _attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(item.i) for item in node.attribute if item.name == name), default)


def _expanded(node: onnx.NodeProto, data: Array, shape: Array) -> float:
    return _product(np.broadcast_shapes(data.shape, tuple(shape.reshape(-1))))


def _gathered(node: onnx.NodeProto, data: Array, indices: Array) -> float:
    axis = _attribute(node, "axis", 0)
    return float(data.size / max(data.shape[axis], 1) * indices.size)


def _gathered_parts(node: onnx.NodeProto, data: Array, indices: Array) -> float:
    depth = _attribute(node, "batch_dims", 0) + int(indices.shape[-1])
    return _COST_OF_LOOP * indices.size * _product(data.shape[depth:])


def _scattered(node: onnx.NodeProto, data: Array, indices: Array, updates: Array) -> float:
    return float(data.size) + _COST_OF_LOOP * max(indices.size, updates.size)


def _matrix_product(node: onnx.NodeProto, lhs: Array, rhs: Array, *_: Array | None) -> float:
    """The result's elements, for each of which a sum is made."""
    if node.op_type == "Gemm":
        rows = lhs.shape[1 if _attribute(node, "transA", 0) else 0]
        return float(rows * rhs.shape[0 if _attribute(node, "transB", 0) else 1])
    return _product(np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])) * _product(
        (*lhs.shape[-2:-1], *(rhs.shape[-1:] if rhs.ndim > 1 else ()))
    )


def _padded(node: onnx.NodeProto, data: Array, *inputs: Array | None) -> float:
    stated = next((item.ints for item in node.attribute if item.name == "pads"), None)
    widths = np.abs(np.asarray(stated if stated is not None else inputs[0], np.float64)).sum()
    return _product(np.asarray(data.shape, np.float64) + widths)


def _ranged(node: onnx.NodeProto, start: Array, limit: Array, delta: Array) -> float:
    first, last, step = (float(each.reshape(())) for each in (start, limit, delta))
    return abs((last - first) / step) if step else 0.0


_RESULT_SIZES: dict[str, Callable[..., float]] = {
    "ConstantOfShape": lambda node, shape: _product(shape),
    "Expand": _expanded,
    "Gather": _gathered,
    "GatherElements": lambda node, data, indices: _COST_OF_LOOP * indices.size,
    "GatherND": _gathered_parts,
    "Gemm": _matrix_product,
    "MatMul": _matrix_product,
    "NonZero": lambda node, data: data.size * max(data.ndim, 1),
    "OneHot": lambda node, indices, depth, values: indices.size * abs(float(depth.reshape(-1)[0])),
    "Pad": _padded,
    "Range": _ranged,
    "ScatterElements": _scattered,
    "ScatterND": _scattered,
    "Tile": lambda node, data, repeats: data.size * _product(repeats),
}
"""At most how many elements the results have, of operators that give more than they are given; those that the
reference evaluator computes one by one count for many.
"""


def is_standard(node: onnx.NodeProto) -> bool:
    """Whether a node's operator is one of ONNX itself."""
    return node.domain in ("", "ai.onnx")


def folds(node: onnx.NodeProto, inputs_known: bool) -> bool:
    """Whether a node's outputs are known while reading."""
    if not is_standard(node):
        return False
    return node.op_type in ALWAYS_KNOWN or (inputs_known and node.op_type in FOLDABLE)


def evaluate_node(node: onnx.NodeProto, inputs: Sequence[Array | None], opset: int, budget: Budget) -> dict[str, Array]:
    """The outputs of a node by name, for its inputs (None where one is left out).

    Raises GraphError where the node cannot be computed, or its result is so large that the model must be malformed.
    """
    label = f"{node.name or node.output[0]} ({node.op_type})"
    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if array is not None}
    for place in _NUMBERS.get(node.op_type, ()):
        if place < len(inputs) and (array := inputs[place]) is not None and array.size == 1:
            feeds[node.input[place]] = array.reshape(())
    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node], "node", [_any_value(name) for name in feeds], [_any_value(name) for name in outputs]
    )
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            budget.spend(_result_size(node, inputs))
            least = _EVALUATED_AS_OF.get(node.op_type, opset)
            if node.op_type == "GatherElements":
                results = [_elements(node, *feeds.values())]
            else:
                results = ReferenceEvaluator(graph, opsets={"": max(opset, least)}).run(None, feeds)
    except Exception as error:  # what an evaluator raises on malformed nodes is said nowhere
        reason = " ".join(str(error).split())[:_REASON] or type(error).__name__
        raise GraphError(f"{label}: cannot be computed on its constant inputs: {reason}") from None
    if not all(isinstance(result, (np.ndarray, np.generic)) for result in results):
        raise GraphError(f"{label}: gives no tensors; only tensors are read")
    return {name: widen(np.asarray(result)) for name, result in zip(outputs, results, strict=True)}


_NUMBERS = {"Range": (0, 1, 2), "OneHot": (1,)}
"""Inputs that the evaluator wants without axes. Functions of ONNX itself, such as AffineGrid, give Range tensors of one
element, and the standard has the depth of OneHot as one, too."""
_EVALUATED_AS_OF = {"DequantizeLinear": 21, "QuantizeLinear": 21}
"""Operators that the evaluator knows from an opset on, in which they are what they were before."""

_REASON = 300
"""How much of another program's error is shown."""


def _elements(node: onnx.NodeProto, data: Array, indices: Array) -> Array:
    """GatherElements, of which the evaluator knows indices of the data's own shape only."""
    axis = _attribute(node, "axis", 0) % data.ndim
    own = tuple(slice(None if place == axis else size) for place, size in enumerate(indices.shape))
    return np.take_along_axis(data[own], indices, axis)


def _result_size(node: onnx.NodeProto, inputs: Sequence[Array | None]) -> float:
    size_of = _RESULT_SIZES.get(node.op_type)
    if size_of is not None:
        return float(size_of(node, *inputs))
    given = [array.shape for array in inputs if array is not None]
    if node.op_type in _BROADCASTING:
        return _product(np.broadcast_shapes(*given))
    return sum(map(_product, given))


def _any_value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None)
