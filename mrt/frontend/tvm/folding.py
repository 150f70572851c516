"""Values that do not depend on the data are computed while reading."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.folding import MOST_ELEMENTS, check_size, folded
from mrt.frontend.shared.node import Value
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Array


def _arange(start: Array, stop: Array, step: Array) -> Array:
    if not step or (stop - start) / step > MOST_ELEMENTS:
        raise ValueError(f"from {start} to {stop} in steps of {step} are no or too many numbers")
    numbers: Array = start + step * np.arange(math.ceil((stop - start) / step))
    return numbers


def _divide(a: Array, b: Array) -> Array:
    """a / b, for integers cut towards 0 and exact."""
    if not a.dtype.kind == b.dtype.kind == "i":
        return np.asarray(a / b)
    quotient = np.floor_divide(a, b)
    return np.asarray(quotient + ((quotient < 0) & (quotient * b != a)))


_NUMPY: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "arange": _arange,
    "ceil": np.ceil,
    "bitwise_and": np.bitwise_and,
    "cos": np.cos,
    "divide": _divide,
    "equal": np.equal,
    "exp": np.exp,
    "floor": np.floor,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "isnan": np.isnan,
    "less": np.less,
    "less_equal": np.less_equal,
    "log": np.log,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.fmod,
    "multiply": np.multiply,
    "negative": np.negative,
    "not_equal": np.not_equal,
    "power": np.power,
    "round": np.rint,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
    "where": np.where,
}
"""Operators whose meaning NumPy has; used only where no input depends on the data."""


_Node = TypeVar("_Node", bound=TVMNode)


def is_foldable(kind: str) -> bool:
    """Whether NumPy has the operator, so that it is computed where none of its inputs depends on the data."""
    return kind in _NUMPY


def fold(node: _Node, convert: Callable[[_Node], Value] | None) -> Value:
    """The value of a call none of whose inputs depends on the data: by NumPy, else by what its converter makes.

    Raises GraphError where it cannot be computed or is larger than any constant of a network.
    """
    compute = _NUMPY.get(node.kind)
    if compute is not None:
        try:
            check_size(node, np.broadcast_shapes(*(node.shape(index) for index in range(len(node.inputs)))))
            with np.errstate(all="ignore"):
                return np.asarray(compute(*node.inputs)).astype(node.result_dtype)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise GraphError(f"{node.label}: cannot be computed on its constant inputs: {error}") from None
    if convert is None:
        raise node.unsupported("the operator", "not covered", "another one")
    return folded(node, convert)
