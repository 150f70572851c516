"""Values that do not depend on the data: shape arithmetic and constants are computed while reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mrt.errors import GraphError
from mrt.frontend.onnx.files import widen
from mrt.frontend.onnx.node import is_standard
from mrt.symbol import Array

_FOLDABLE_NAMES = """
    Abs Add And ArgMax ArgMin Cast CastLike Ceil Clip Compress Concat ConstantOfShape Cos CumSum DequantizeLinear Div
    Dropout Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gemm Greater GreaterOrEqual
    Identity Less LessOrEqual Log MatMul Max Mean Min Mod Mul Neg NonZero Not OneHot Or Pad Pow Range Reciprocal
    ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round
    ScatterElements ScatterND Sigmoid Sign Sin Slice Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze
    Where Xor
"""

FOLDABLE = frozenset(_FOLDABLE_NAMES.split())
"""Operators that are computed where no input depends on the data. None draws random numbers or holds a graph."""

ALWAYS_KNOWN = frozenset({"Constant", "Shape", "Size"})
"""Operators whose value is known whatever their input is, since every shape is."""

_MAX_ELEMENTS = 2**28

_RESULT_SIZES: dict[str, Callable[..., float]] = {
    "ConstantOfShape": lambda shape: np.prod(shape, dtype=np.float64),
    "Expand": lambda data, shape: data.size * np.prod(shape, dtype=np.float64),
    "Tile": lambda data, repeats: data.size * np.prod(repeats, dtype=np.float64),
    "Range": lambda start, limit, delta: abs((float(limit) - float(start)) / float(delta)) if delta else 0.0,
}


def folds(node: onnx.NodeProto, inputs_known: bool) -> bool:
    """Whether a node's outputs are known while reading."""
    if not is_standard(node):
        return False
    return node.op_type in ALWAYS_KNOWN or (inputs_known and node.op_type in FOLDABLE)


def evaluate_node(node: onnx.NodeProto, inputs: Sequence[Array | None], opset: int) -> dict[str, Array]:
    """The outputs of a node by name, for its inputs (None where one is left out).

    Raises GraphError where the node cannot be computed, or its result is so large that the model must be malformed.
    """
    label = f"{node.name or node.output[0]} ({node.op_type})"
    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if array is not None}
    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node], "node", [_any_value(name) for name in feeds], [_any_value(name) for name in outputs]
    )
    try:
        with np.errstate(all="ignore"):
            _check_size(node, inputs)
            results = ReferenceEvaluator(graph, opsets={"": opset}).run(None, feeds)
    except (
        ArithmeticError,
        AttributeError,
        IndexError,
        KeyError,
        MemoryError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise GraphError(f"{label}: cannot be computed on its constant inputs: {reason}") from None
    return {name: widen(np.asarray(result)) for name, result in zip(outputs, results, strict=True)}


def _check_size(node: onnx.NodeProto, inputs: Sequence[Array | None]) -> None:
    size_of = _RESULT_SIZES.get(node.op_type)
    size = size_of(*inputs) if size_of else 0
    if not size <= _MAX_ELEMENTS:
        raise ValueError(f"the result would have {size:.3g} elements, {_MAX_ELEMENTS} are allowed")


def _any_value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None)
