"""Values that do not depend on the data: shapes, filled tensors, and the integer arithmetic of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Array


@converter("SHAPE")
def shape(node: Node) -> Array:
    return np.asarray(node.shape(0), dtype=node.outputs[0].dtype())


@converter("RANK")
def rank(node: Node) -> Array:
    return np.asarray(len(node.shape(0)), dtype=node.outputs[0].dtype())


@converter("ZEROS_LIKE")
def zeros_like(node: Node) -> Array:
    return np.zeros(node.made(node.shape(0)), dtype=node.outputs[0].dtype())


@converter("FILL")
def fill(node: Node) -> Array:
    dimensions = node.made(node.known_integers(0, "dims"))
    return np.full(dimensions, node.known_number(1, "value"), dtype=node.outputs[0].dtype())


@converter("RANGE")
def range_(node: Node) -> Array:
    """From start in steps of delta, limit left out."""
    start, limit, delta = (node.known_number(index, role) for index, role in enumerate(("start", "limit", "delta")))
    count = (limit - start) / delta if delta else math.nan
    if not math.isfinite(count):
        raise GraphError(f"{node.label}: from {start} to {limit} in steps of {delta} are no numbers")
    (length,) = node.made((math.ceil(count),))
    return (start + delta * np.arange(length)).astype(node.outputs[0].dtype())


_NUMPY: dict[str, Callable[..., Any]] = {
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_NOT": np.logical_not,
    "LOGICAL_OR": np.logical_or,
}
"""Operators that graphs do not have; they are computed where no input depends on the data."""


@converter(*_NUMPY)
def compute(node: Node) -> Array:
    values = [node.known(index, f"{index}") for index in range(len(node.inputs))]
    try:
        node.made(np.broadcast_shapes(*(value.shape for value in values)))
        with np.errstate(all="ignore"):
            return np.asarray(_NUMPY[node.operator](*values)).astype(node.outputs[0].dtype())
    except (TypeError, ValueError) as error:
        raise GraphError(f"{node.label}: cannot be computed on its constant inputs: {error}") from None


@converter("REDUCE_PROD")
def product(node: Node) -> Array:
    data = node.known(0, "data")
    axes = tuple(sorted({node.axis(axis, data.ndim) for axis in node.known_integers(1, "axes")}))
    kept: Any = node.options("ReducerOptions").flag("KeepDims")  # NumPy 2.5 is annotated for literals only.
    return np.asarray(np.prod(data, axis=axes, keepdims=kept, dtype=data.dtype))
