"""Building blocks of many converters: reshaping with the batch left free, broadcasting, new axes, borders, defaults."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import ExpandDims, Flatten, Reshape, Transpose


def reshaped(node: ModelNode, data: Symbol, shape: Sequence[int], suffix: str = "") -> Symbol:
    """`data` in another shape. Where the first axis keeps its size it is copied, whatever that size will be, so that
    the batch can be changed later; the other sizes are written out.
    """
    shape = tuple(shape)
    if shape == data.shape:
        return data
    if len(shape) == 2 and data.type.rank > 2 and shape[0] == data.shape[0]:
        return node.apply(Flatten(), [data], suffix)
    if shape and data.shape and shape[0] == data.shape[0]:
        return node.apply(Reshape(shape=(0, *shape[1:])), [data], suffix)
    return node.apply(Reshape(shape=shape), [data], suffix)


def broadcast_shape(node: ModelNode, *shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which all of them broadcast; GraphError where there is none."""
    try:
        return tuple(np.broadcast_shapes(*map(tuple, shapes)))
    except ValueError:
        raise GraphError(f"{node.label}: shapes {[*map(tuple, shapes)]} do not broadcast") from None


def broadcast(node: ModelNode, data: Symbol, shape: Sequence[int], suffix: str = "") -> Symbol:
    """`data` repeated to a shape that it broadcasts to, exactly: times ones that have only the axes that grow."""
    shape = tuple(shape)
    if shape == data.shape:
        return data
    own = (1,) * (len(shape) - data.type.rank) + data.shape
    growing = tuple(size if size != old else 1 for size, old in zip(shape, own, strict=True))
    ones = node.parameter(np.ones(node.made(growing), dtype=data.dtype), f"{suffix}_ones" if suffix else "ones")
    return node.apply(BroadcastMul(), [data, ones], suffix)


def expanded(node: ModelNode, data: Symbol, axes: Sequence[int], suffix: str = "") -> Symbol:
    """`data` with new axes of size 1, counted in the result and sorted; put in from the first to the last."""
    for axis in axes:
        data = node.apply(ExpandDims(axis=axis), [data], suffix if axis == axes[-1] else f"{suffix}axis{axis}")
    return data


def moved_last(node: ModelNode, data: Symbol, axis: int, suffix: str = "") -> Symbol:
    """`data` with its last axis moved to place `axis`, counted from the front."""
    last = data.type.rank - 1
    if axis == last:
        return data
    order = (*range(axis), last, *range(axis, last))
    return node.apply(Transpose(axes=order), [data], suffix)


def bordered(node: ModelNode, data: Symbol, begins: Sequence[int], ends: Sequence[int], suffix: str = "") -> Symbol:
    """`data` with zeros before and after its spatial axes, which are all but the first two."""
    widths = [width for pair in zip(begins, ends, strict=True) for width in pair]
    return node.apply(Pad(pad_width=(0, 0, 0, 0, *widths)), [data], suffix)


def unless_default(values: tuple[int, ...], default: int) -> tuple[int, ...]:
    """The values as an attribute: nothing where all are the default."""
    return () if set(values) == {default} else values
