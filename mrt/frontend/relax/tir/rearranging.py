"""A load at indices that depend on the place alone: the operators that move the elements of a tensor there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mrt.frontend.relax.node import Node
from mrt.frontend.relax.tir.blocks import UnreadError
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.shared.slicing import sliced
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Take, Transpose

_MOST_PLACES = 2**24
"""So many places a load may have whose indices are looked at one by one."""


def rearranged(node: Node, data: Symbol, indices: Sequence[Array], places: Sequence[int]) -> Symbol:
    """The elements of `data` at indices that are known: a tensor that broadcasts to the shape `places`.

    indices: for each axis of the data an array that broadcasts to `places`. Case 1: every index depends on one axis of
    the places, none on the same as another: a part, a border or a choice along each axis, then the axes in order.
    Case 2: all elements in order are a reshape. UnreadError in any other case.
    """
    depends = [[axis for axis, size in enumerate(index.shape) if size != 1] for index in indices]
    single = [axes[0] for axes in depends if axes]
    if any(len(axes) > 1 for axes in depends) or len(set(single)) != len(single):
        return _in_order(node, data, indices, places)
    for axis, index in enumerate(indices):
        data = _along(node, data, axis, index.reshape(-1))
    offset = len(places) - len(indices)
    if offset >= 0 and all(axes in ([], [axis + offset]) for axis, axes in enumerate(depends)):
        return data
    kept = [axis for axis, axes in enumerate(depends) if axes]
    # Axes of one element may stand anywhere: behind the others they are none.
    order = sorted(kept, key=lambda axis: depends[axis][0])
    if order != kept:
        rest = [axis for axis in range(len(indices)) if axis not in kept]
        data = node.apply(Transpose(axes=(*rest, *order)), [data], "axes")
    shape = [1] * len(places)
    for axis in kept:
        shape[depends[axis][0]] = places[depends[axis][0]]
    return reshaped(node, data, shape, "shaped")


def _along(node: Node, data: Symbol, axis: int, index: Array) -> Symbol:
    """Elements along one axis: as it is, a part with a step, a border of MXNet's modes, or any choice."""
    size = data.shape[axis]
    if np.array_equal(index, np.arange(size)):
        return data
    if index.size == 0 or index.min() < 0 or index.max() >= size:
        raise UnreadError("it loads elements outside of a buffer")
    step = int(index[1] - index[0]) if index.size > 1 else 1
    if step and np.array_equal(index, index[0] + step * np.arange(index.size)):
        end = int(index[-1]) + (1 if step > 0 else -1)
        return sliced(node, data, {axis: slice(int(index[0]), end if end >= 0 else None, step)}, f"part{axis}")
    border = _border(index, size)
    if border is not None:
        mode, before, after = border
        widths = [0] * (2 * data.type.rank)
        widths[2 * axis : 2 * axis + 2] = before, after
        return node.apply(Pad(pad_width=tuple(widths), mode=mode, constant_value=0.0), [data], f"border{axis}")
    positions = node.parameter(index.astype(np.int32), f"places{axis}")
    return node.apply(Take(axis=axis), [data, positions], f"taken{axis}")


def _border(index: Array, size: int) -> tuple[str, int, int] | None:
    """Mode and widths of the border that the indices put around an axis, None where they put none."""
    wider = index.size - size
    for mode in ("edge", "reflect") if wider > 0 else ():
        for before in range(wider + 1):
            widths = (before, wider - before)
            if (mode == "edge" or max(widths) < size) and np.array_equal(index, np.pad(np.arange(size), widths, mode)):
                return mode, *widths
    return None


def _in_order(node: Node, data: Symbol, indices: Sequence[Array], places: Sequence[int]) -> Symbol:
    if math.prod(places) != data.type.size or data.type.size > _MOST_PLACES:
        raise UnreadError("its loads mix axes")
    at = np.zeros((), np.int64)
    for index, size in zip(indices, data.shape, strict=True):
        at = at * size + index
    if not np.array_equal(np.broadcast_to(at, places).reshape(-1), np.arange(data.type.size)):
        raise UnreadError("its loads mix axes")
    return reshaped(node, data, places, "shaped")
