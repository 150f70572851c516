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
    "BITWISE_XOR": np.bitwise_xor,
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
    "RIGHT_SHIFT": np.right_shift,
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


@converter("BROADCAST_ARGS")
def broadcast_shape(node: Node) -> Array:
    """The shape to which tensors of two known shapes broadcast."""
    shapes = node.known_integers(0, "shape"), node.known_integers(1, "shape")
    try:
        return np.asarray(np.broadcast_shapes(*shapes), dtype=node.outputs[0].dtype())
    except ValueError:
        raise GraphError(f"{node.label}: shapes {shapes[0]} and {shapes[1]} do not broadcast") from None


@converter("WHERE")
def places_of(node: Node) -> Array:
    """The places where a known condition holds, one in each row."""
    return np.argwhere(node.known(0, "condition")).astype(node.outputs[0].dtype())


@converter("SCATTER_ND")
def scattered(node: Node) -> Array:
    """Known updates added at known places of zeros."""
    indices, updates = node.known(0, "indices"), node.known(1, "updates")
    result = np.zeros(node.made(node.known_integers(2, "shape")), updates.dtype)
    if indices.dtype.kind != "i" or not indices.ndim or indices.shape[-1] > result.ndim:
        raise GraphError(f"{node.label}: indices of shape {indices.shape} for the shape {result.shape}")
    limits = result.shape[: indices.shape[-1]]
    if indices.size and ((indices < 0).any() or (indices >= np.asarray(limits)).any()):
        raise GraphError(f"{node.label}: indices reach beyond the shape {result.shape}")
    if updates.shape != indices.shape[:-1] + result.shape[len(limits) :]:
        raise GraphError(f"{node.label}: updates of shape {updates.shape} for indices of shape {indices.shape}")
    np.add.at(result, tuple(np.moveaxis(indices, -1, 0)), updates)
    return result


@converter("REDUCE_PROD")
def product(node: Node) -> Array:
    data = node.known(0, "data")
    axes = tuple(sorted({node.axis(axis, data.ndim) for axis in node.known_integers(1, "axes")}))
    kept: Any = node.options("ReducerOptions").flag("KeepDims")  # NumPy 2.5 is annotated for literals only.
    return np.asarray(np.prod(data, axis=axes, keepdims=kept, dtype=data.dtype))
