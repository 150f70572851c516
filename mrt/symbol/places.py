"""Where the places along an axis of an operator's output come from, of those along an axis of one of its inputs.

What a constant behind operators that move elements is before them follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.symbol.interval import Array, Interval
from mrt.symbol.symbol import Symbol

NOWHERE = -1


@dataclass(frozen=True, eq=False)
class Places:
    """axis: of the output. sources: int64, for each of its places that of the input which it comes from.

    NOWHERE where it holds nothing of the input, but zeros or another one.
    """

    axis: int
    sources: Array


def places_behind(symbol: Symbol, index: int, axis: int) -> Places | None:
    """Where the places along `axis` of input `index` are in the output; None where the operator mixes them.

    An operator that keeps the axis apart says where it is. Of one that selects elements it is seen: places are numbered
    from 1, upwards and downwards, so that what takes the larger of two is told from what takes one whatever it holds.
    """
    types = [source.type for source in symbol.inputs]
    kept = symbol.operator.kept_axis(axis, index, *types)
    length = types[index].shape[axis]
    if kept is not None:
        return Places(kept, np.repeat(np.arange(length), symbol.shape[kept] // length)) if length else None
    if not symbol.operator.selects or 0 in symbol.shape:
        return None
    numbers = np.arange(1, length + 1)
    seen, reverse = (_moved(symbol, index, axis, labels) for labels in (numbers, numbers[::-1]))
    if not np.array_equal(reverse, np.where(seen > 0, length + 1 - seen, 0)):
        return None
    for behind in range(symbol.type.rank):
        others = tuple(a for a in range(symbol.type.rank) if a != behind)
        found = seen.max(axis=others, keepdims=True)
        if ((seen == found) | (seen == 0)).all():
            return Places(behind, found.reshape(-1) - 1)
    return None


def _moved(symbol: Symbol, index: int, axis: int, labels: Array) -> Array:
    """The output, int64, where input `index` holds `labels` along `axis` and the others zeros."""
    values = [np.zeros(source.shape) for source in symbol.inputs]
    shape = tuple(-1 if a == axis else 1 for a in range(values[index].ndim))
    values[index] = np.broadcast_to(labels.reshape(shape), values[index].shape)
    return np.rint(symbol.operator.evaluate(*values)).astype(np.int64)


def before_moves(value: Array, movers: Sequence[Symbol], axis: int) -> Array | None:
    """A constant that broadcasts to what is moved as a vector of numbers along `axis` of what it was before.

    movers: operators that keep every element, the first of them first, each of which reads the one before. None where
    elements of one place along the axis get several numbers.
    """
    shape = movers[0].inputs[0].shape
    numbers = np.arange(shape[axis]).reshape(tuple(-1 if a == axis else 1 for a in range(len(shape))))
    place_of = Interval.of(numbers, numbers, shape)
    for mover in movers:
        place_of = mover.operator.bounds(place_of)
    if not place_of.is_constant:
        return None
    places, values = np.broadcast_arrays(place_of.lo, value)
    vector = np.zeros(shape[axis], value.dtype)
    vector[places] = values
    return vector if (vector[places] == values).all() else None
