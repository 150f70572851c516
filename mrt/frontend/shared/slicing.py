"""Parts of a tensor by NumPy's slices and by constant indices, and borders around it."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Union

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.shaping import expanded, reshaped
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Slice, SliceAxis, Squeeze, Take


def slices_of(
    node: ModelNode, rank: int, axes: Sequence[int], begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]
) -> dict[int, slice]:
    """The slice of each named axis; GraphError where lengths differ, a step is 0, or an axis does not exist."""
    if len({len(axes), len(begins), len(ends), len(steps)}) != 1 or 0 in steps:
        raise GraphError(
            f"{node.label}: axes {axes}, begins {begins}, ends {ends}, steps {steps}; "
            "equal lengths and no step of 0 are needed"
        )
    return {
        node.axis(axis, rank): slice(begin, end, step)
        for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True)
    }


def sliced(node: ModelNode, data: Symbol, parts: Mapping[int, slice], suffix: str = "") -> Symbol:
    """The part of `data` on each named axis; axes that stay whole are not written, so that the batch stays free.

    An end that is open stays open, one that is stated is written as such.
    """
    bounds: list[tuple[int | None, int | None, int]] = [(None, None, 1)] * data.type.rank
    for axis, part in parts.items():
        size = data.shape[axis]
        begin, end, step = part.indices(size)
        if len(range(begin, end, step)) == 0:
            raise node.unsupported(f"the result on axis {axis}", "empty", "at least one element")
        if (begin, end, step) != (0, size, 1):
            # A backward slice that reaches the first element ends before it, which only an open end can say.
            bounds[axis] = begin, None if part.stop is None or end < 0 else end, step
    changed = [axis for axis, bound in enumerate(bounds) if bound != (None, None, 1)]
    if not changed:
        return data
    if len(changed) == 1 and bounds[changed[0]][2] == 1:
        (axis,) = changed
        begin_or_none, stop, _ = bounds[axis]
        stop = None if stop == data.shape[axis] else stop
        return node.apply(SliceAxis(axis=axis, begin=begin_or_none or 0, end=stop), [data], suffix)
    starts, stops, steps = zip(*bounds, strict=True)
    return node.apply(Slice(begin=starts, end=stops, step=() if set(steps) == {1} else steps), [data], suffix)


Index = Union[int, slice, None, "types.EllipsisType"]
"""One entry of NumPy's basic index: an element, a part, a new axis, or all axes that no other entry names."""


def indexed(node: ModelNode, data: Symbol, index: Sequence[Index], suffix: str = "") -> Symbol:
    """NumPy's data[index]; GraphError where the entries do not fit the data."""
    named = sum(1 for entry in index if entry is not None and entry is not ...)
    left = data.type.rank - named
    if left < 0 or sum(1 for entry in index if entry is ...) > 1:
        raise GraphError(f"{node.label}: the {len(index)} entries {list(index)} do not fit {data.type}")
    whole = [slice(None)] * left
    at = next((place for place, entry in enumerate(index) if entry is ...), len(index))
    entries = [*index[:at], *whole, *index[at + 1 :]]
    parts: dict[int, slice] = {}
    gone: list[int] = []
    added: list[int] = []
    axis = 0
    for entry in entries:
        if entry is None:
            added.append(axis - len(gone) + len(added))
            continue
        if isinstance(entry, slice):
            parts[axis] = entry
        else:
            element = _element(node, entry, data.shape[axis])
            parts[axis] = slice(element, element + 1)
            gone.append(axis)
        axis += 1
    lead = f"{suffix}_" if suffix else ""
    data = sliced(node, data, parts, f"{lead}part" if gone or added else suffix)
    if gone:
        data = node.apply(Squeeze(axis=tuple(gone)), [data], f"{lead}elements" if added else suffix)
    return expanded(node, data, added, suffix)


def _element(node: ModelNode, index: object, size: int) -> int:
    """An index counted from the front."""
    if not isinstance(index, int) or not -size <= index < size:
        raise GraphError(f"{node.label}: index {index} on an axis of size {size}")
    return index % size


def taken(node: ModelNode, data: Symbol, axis: int, indices: Array, kind: str) -> Symbol:
    """The elements of `data` at constant indices, counted from the front, that the node's input 1 stands for.

    Case 1: one index is a slice without its axis. Case 2: indices that follow each other are a slice, in the shape of
    the indices. Case 3: else take. `kind` names what the indices were made into, so that nodes of one `kind` share the
    parameter.
    """
    if indices.size == 0:
        raise node.unsupported("input indices", "empty", "at least one index")
    first = int(indices.flat[0])
    if indices.ndim == 0:
        one = sliced(node, data, {axis: slice(first, first + 1)}, "element")
        return node.apply(Squeeze(axis=(axis,)), [one])
    if np.array_equal(indices.ravel(), np.arange(first, first + indices.size)):
        is_flat = indices.ndim == 1
        part = sliced(node, data, {axis: slice(first, first + indices.size)}, "" if is_flat else "part")
        return part if is_flat else _viewed(node, part, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    positions = node.parameter_of(1, "indices", kind, lambda _: indices.astype(np.int32))
    return node.apply(Take(axis=axis), [data, positions])


def _viewed(node: ModelNode, data: Symbol, shape: Sequence[int]) -> Symbol:
    """`data` in another shape; what was flattened for a view of it, as PyTorch's exporter does, is not, so that the
    batch stays free."""
    source = data.inputs[0] if data.operator.keeps_order else data
    return reshaped(node, source if source.shape[:1] == shape[:1] else data, shape)


def padded(node: ModelNode, widths: Sequence[int], mode: str, value: float) -> Symbol:
    """The data with a border, in a mode that MXNet has."""
    data = node.symbol(0)
    if min(widths, default=0) < 0:
        raise node.unsupported("attribute pad_width", tuple(widths), "no negative entry")
    if not any(widths):
        return data
    if not np.isfinite(value):
        raise node.unsupported("the border's value", value, "a finite number")
    return node.apply(Pad(pad_width=tuple(widths), mode=mode, constant_value=value), [data])
