"""Elements at constant places, and elements put there: places in some axes as one, whatever format names them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.symbol import Array


@dataclass(frozen=True, eq=False)
class Places:
    """Places in the axes [first, stop) of a tensor, taken as one axis; the same for every position of the others.

    shape: of the tensor. indices: int64 of any shape, which stands where those axes stood.
    """

    shape: tuple[int, ...]
    first: int
    stop: int
    indices: Array

    @property
    def merged(self) -> tuple[int, ...]:
        """The tensor's shape with these axes as one."""
        return (*self.shape[: self.first], self.length, *self.shape[self.stop :])

    @property
    def length(self) -> int:
        """How many places there are."""
        return math.prod(self.shape[self.first : self.stop])

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the elements at the places."""
        return (*self.shape[: self.first], *self.indices.shape, *self.shape[self.stop :])

    @property
    def flat(self) -> tuple[int, ...]:
        """`result` with one axis of places."""
        return (*self.shape[: self.first], self.indices.size, *self.shape[self.stop :])

    @property
    def replaced(self) -> Array:
        """Of the tensor followed by what is put there, along the one axis: which element each place then holds.

        Of several for one place, the last.
        """
        sources = np.arange(self.length)
        sources[self.indices.reshape(-1)] = self.length + np.arange(self.indices.size)
        return sources

    def rounds(self) -> list[Array]:
        """For what is put there, which of it each place of the one axis takes, -1 for none; each element once.

        Places that are named several times take one element a round.
        """
        flat = self.indices.reshape(-1)
        order = np.argsort(flat, kind="stable")
        starts = np.flatnonzero(np.diff(flat[order], prepend=-1))
        nth = np.empty(flat.size, np.int64)
        nth[order] = np.arange(flat.size) - np.repeat(starts, np.diff(starts, append=flat.size))
        found = []
        for turn in range(int(nth.max(initial=-1)) + 1):
            sources = np.full(self.length, -1)
            (chosen,) = np.nonzero(nth == turn)
            sources[flat[chosen]] = chosen
            found.append(sources)
        return found


MOST_ROUNDS = 64
"""So many elements may be put together in one place: each round is a step of the network."""


def along_axis(label: str, shape: Sequence[int], axis: int, indices: Array) -> Places:
    """Y[i, j, k] = X[i, indices[i, j, k], k] for axis 1: one index for every element of the result.

    Leading axes along which the indices do not differ, such as the batch, stay axes. GraphError for an index outside.
    """
    found = _counted_from_front(label, indices, shape[axis])
    first = 0
    while first < axis and found.shape[0] == shape[first] and (found == found[:1]).all():
        found, first = found[0], first + 1
    grid = np.indices(found.shape)
    grid[axis - first] = found
    places = np.asarray(np.ravel_multi_index(tuple(grid), tuple(shape[first:])))
    return Places(tuple(shape), first, len(shape), places)


def by_tuples(label: str, shape: Sequence[int], indices: Array, batch_axes: int = 0) -> Places:
    """Y[i] = X[indices[i, 0], indices[i, 1], …]: the last axis of the indices names a place in the first axes of X.

    batch_axes: how many axes X and the indices have in common before. Those of them along which the indices do not
    differ stay axes; so does a first axis that the indices name in order. GraphError for an index outside.
    """
    if not indices.ndim or not 0 < indices.shape[-1] <= len(shape) - batch_axes or not indices.size:
        raise GraphError(f"{label}: indices of shape {indices.shape} name no elements of a tensor of shape {shape}")
    count = indices.shape[-1]
    axes = range(batch_axes, batch_axes + count)
    named = [_counted_from_front(label, indices[..., i], shape[axis]) for i, axis in enumerate(axes)]
    lead = np.indices(indices.shape[:batch_axes])
    given = indices.shape[:-1]
    others = [np.broadcast_to(each.reshape(each.shape + (1,) * (len(given) - batch_axes)), given) for each in lead]
    parts, first = [*others, *named], 0
    while len(parts) > 1 and _is_in_order(parts, shape[first]):
        parts, first = [part[0] for part in parts[1:]], first + 1
    stop = batch_axes + count
    places = np.asarray(np.ravel_multi_index(tuple(parts), tuple(shape[first:stop])))
    return Places(tuple(shape), first, stop, places)


def in_a_row(label: str, shape: Sequence[int], indices: Sequence[Array]) -> Array:
    """Places in axes of this shape, one index array for each that broadcast, as places in one axis of all elements.

    GraphError for an index outside.
    """
    named = [_counted_from_front(label, each, size) for each, size in zip(indices, shape, strict=True)]
    return np.asarray(np.ravel_multi_index(tuple(np.broadcast_arrays(*named)), tuple(shape)))


def _is_in_order(parts: Sequence[Array], length: int) -> bool:
    """Whether the first index counts the first axis up and the others do not differ along it."""
    one = parts[0]
    if not one.ndim or one.shape[0] != length:
        return False
    counted = np.arange(length).reshape((length,) + (1,) * (one.ndim - 1))
    return bool((one == counted).all()) and all((part == part[:1]).all() for part in parts[1:])


def _counted_from_front(label: str, indices: Array, size: int) -> Array:
    if indices.dtype.kind not in "iu" or (indices.size and (indices.min() < -size or indices.max() >= size)):
        raise GraphError(f"{label}: indices are no integers in [{-size}, {size})")
    wide = indices.astype(np.int64)
    return np.asarray(np.where(wide < 0, wide + size, wide))
