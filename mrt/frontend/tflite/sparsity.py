"""Sparse constants: what the schema's SparsityParameters say, and the dense array that they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrt.symbol import Array


@dataclass(frozen=True)
class Level:
    """How one level of the traversal is stored: densely, or the places of each parent in compressed rows (CSR)."""

    size: int = 0
    """The number of places of a dense level."""
    segments: Array | None = None
    """Of a sparse level: where the places of each parent begin in `indices`, and where the last one's end."""
    indices: Array | None = None

    @property
    def is_dense(self) -> bool:
        return self.segments is None

    def extended(self, parents: Array, limit: int) -> Array:
        """The coordinates (elements, levels) of what this level stores below each of these coordinates.

        ValueError where they are more than `limit`, or the segments do not fit the parents.
        """
        if self.segments is None or self.indices is None:
            if self.size < 1 or len(parents) * self.size > limit:
                raise ValueError(f"a level of {self.size} places below {len(parents)} others")
            below = np.tile(np.arange(self.size), len(parents))
            return np.column_stack([np.repeat(parents, self.size, axis=0), below])
        counts = np.diff(self.segments)
        if (
            len(counts) != len(parents)
            or (len(counts) and (self.segments[0] != 0 or counts.min() < 0))
            or self.segments[-1] != len(self.indices)
        ):
            raise ValueError(f"segments of {len(self.indices)} indices that do not fit the {len(parents)} rows")
        return np.column_stack([np.repeat(parents, counts, axis=0), self.indices])


@dataclass(frozen=True)
class Sparsity:
    """In which order and form the elements of a sparse tensor of rank n are stored.

    order: the dimensions in the order of traversal; n + j means the j-th dimension of blocks.
    block_map: the dimension of the tensor that each dimension of blocks divides.
    """

    order: tuple[int, ...]
    block_map: tuple[int, ...]
    levels: tuple[Level, ...]

    def dense(self, values: Array, shape: Sequence[int]) -> Array:
        """The tensor, 0 where no value is stored; ValueError where the parts do not fit each other."""
        count, rank = len(self.order), len(shape)
        fits = sorted(self.order) == list(range(count)) and count == len(self.levels) == rank + len(self.block_map)
        if not fits or any(not 0 <= dimension < rank for dimension in self.block_map):
            raise ValueError(f"traversal {self.order} of blocks {self.block_map} for the shape {tuple(shape)}")
        sizes = self._block_sizes(rank)
        coordinates = np.empty((1, 0), np.int64)
        for level in self.levels:
            coordinates = level.extended(coordinates, math.prod(shape))
        if len(coordinates) != len(values):
            raise ValueError(f"{len(values)} values for {len(coordinates)} places")
        of_dimension = coordinates[:, np.argsort(self.order)]
        places = of_dimension[:, :rank].copy()
        for block, dimension in enumerate(self.block_map):
            places[:, dimension] = places[:, dimension] * sizes[block] + of_dimension[:, rank + block]
        if len(places) and ((places < 0).any() or (places >= np.asarray(shape)).any()):
            raise ValueError(f"places outside of the shape {tuple(shape)}")
        result = np.zeros(tuple(shape), values.dtype)
        result[tuple(places.T)] = values
        return result

    def _block_sizes(self, rank: int) -> list[int]:
        levels = [self.levels[self.order.index(rank + block)] for block in range(len(self.block_map))]
        if not all(level.is_dense for level in levels):
            raise ValueError("blocks that are sparse themselves")
        return [level.size for level in levels]


def stored_sparsity(table: Any, read: Sequence[Any], vector: Any) -> Sparsity:
    """What a SparsityParameters table of the schema says.

    read: the schema's tables of indices by their kind, None for none; vector: reads a vector of numbers, counting it.
    """

    def places(level: Any, name: str) -> Array:
        kind, found = getattr(level, f"{name}Type")(), getattr(level, name)()
        if not 0 < kind < len(read) or found is None:
            raise ValueError(f"a sparse level without {name}")
        numbers = read[kind]()
        numbers.Init(found.Bytes, found.Pos)
        return np.asarray(vector(numbers.ValuesAsNumpy()), np.int64)

    def stored_level(level: Any) -> Level:
        if level.Format() == 0:
            return Level(size=level.DenseSize())
        if level.Format() != 1:
            raise ValueError(f"a level of format {level.Format()}")
        segments, indices = places(level, "ArraySegments"), places(level, "ArrayIndices")
        if not len(segments):
            raise ValueError("a sparse level without segments")
        return Level(segments=segments, indices=indices)

    count = table.DimMetadataLength()
    order, block_map = vector(table.TraversalOrderAsNumpy()), vector(table.BlockMapAsNumpy())
    if count != len(order):
        raise ValueError(f"{count} levels in the order {order[:8]}")
    return Sparsity(order, block_map, tuple(stored_level(table.DimMetadata(index)) for index in range(count)))
