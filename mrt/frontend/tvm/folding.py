"""Values that do not depend on the data are computed while reading."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.node import Value
from mrt.frontend.tvm.node import TVMNode, TVMScope
from mrt.symbol import Array, Symbol


def _arange(start: Array, stop: Array, step: Array) -> Array:
    if not step or (stop - start) / step > _MOST_ELEMENTS:
        raise ValueError(f"from {start} to {stop} in steps of {step} are no or too many numbers")
    return start + step * np.arange(math.ceil((stop - start) / step))


_NUMPY: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "arange": _arange,
    "ceil": np.ceil,
    "divide": lambda a, b: np.trunc(a / b) if a.dtype.kind == b.dtype.kind == "i" else a / b,
    "equal": np.equal,
    "exp": np.exp,
    "floor": np.floor,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "log": np.log,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negative": np.negative,
    "not_equal": np.not_equal,
    "power": np.power,
    "round": np.rint,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sign": np.sign,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
    "where": np.where,
}
"""Operators whose meaning NumPy has; used only where no input depends on the data."""


_MOST_ELEMENTS = 2**26
"""The largest array that is computed: a few numbers in a model may ask for any amount of memory."""

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
    scratch = TVMScope(())
    return _evaluated(node, convert(replace(node, scope=scratch)), scratch)


def _evaluated(node: TVMNode, value: Value, scratch: TVMScope) -> Value:
    if isinstance(value, tuple):
        return tuple(_evaluated(node, item, scratch) for item in value)
    if not isinstance(value, Symbol):
        return value
    graph = scratch.builder.graph([value])
    for symbol in graph.operators:
        check_size(node, symbol.shape)
    result: Array = graph.evaluate({})[0]
    return result


def check_size(node: TVMNode, shape: tuple[int, ...]) -> None:
    """GraphError where a constant of this shape is larger than any that a network has."""
    if math.prod(shape) > _MOST_ELEMENTS or min(shape, default=0) < 0:
        raise GraphError(
            f"{node.label}: a constant of shape {shape} is asked for; {_MOST_ELEMENTS} elements are the most"
        )
