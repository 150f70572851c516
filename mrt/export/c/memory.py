"""Where the tensors of a program lie in one workspace, of which they share what they do not need at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 4
"""Bytes that every tensor starts at a multiple of: the size of the widest dtype."""

Gap = tuple[int, int]
"""Bytes that are free: where they begin and where they end."""


@dataclass(frozen=True)
class Lifetime:
    """size: in bytes. first, last: the steps at which the tensor is written first and read last, both included."""

    size: int
    first: int
    last: int

    @property
    def room(self) -> int:
        """The size, rounded up to the alignment."""
        return -(-self.size // ALIGNMENT) * ALIGNMENT

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are needed at some step."""
        return self.first <= other.last and other.first <= self.last


def plan_offsets(tensors: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The place of each tensor in bytes, and the bytes of the workspace: the smaller one of two plans."""
    plans = (_by_size(tensors), _from_both_ends(tensors))
    return min(((offsets, _end(tensors, offsets)) for offsets in plans), key=lambda plan: plan[1])


def _by_size(tensors: Sequence[Lifetime]) -> list[int]:
    """The largest first, each in the smallest gap that the tensors needed at the same time leave.

    "Greedy by Size for Offset Calculation" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
    Inference" (2020).
    """
    placed: dict[int, int] = {}
    for index in sorted(range(len(tensors)), key=lambda i: (-tensors[i].room, i)):
        *gaps, (open_end, _) = _gaps(tensors, placed, index, 0)
        fitting = [(end - begin, begin) for begin, end in gaps if end - begin >= tensors[index].room]
        placed[index] = min(fitting)[1] if fitting else open_end
    return [placed[index] for index in range(len(tensors))]


def _from_both_ends(tensors: Sequence[Lifetime]) -> list[int]:
    """In the order of their steps, in turns at either end of the least memory that any plan needs.

    So a chain needs no more than its two largest neighbours: what is written lies opposite to what is read.
    """
    most = _most_at_once(tensors)
    placed: dict[int, int] = {}
    for count, index in enumerate(sorted(range(len(tensors)), key=lambda i: (tensors[i].first, i))):
        room = tensors[index].room
        gaps = _gaps(tensors, placed, index, most)
        fitting = [(begin, end) for begin, end in gaps if end - begin >= room]
        if not fitting:
            placed[index] = gaps[-1][0]
        else:
            placed[index] = fitting[0][0] if count % 2 == 0 else fitting[-1][1] - room
    return [placed[index] for index in range(len(tensors))]


def _gaps(tensors: Sequence[Lifetime], placed: dict[int, int], index: int, size: int) -> list[Gap]:
    """What tensors that are placed and needed at the same time leave free; the last gap ends at `size` or beyond."""
    taken = sorted(
        (at, at + tensors[other].room) for other, at in placed.items() if tensors[other].overlaps(tensors[index])
    )
    gaps, free = [], 0
    for begin, end in taken:
        if begin > free:
            gaps.append((free, begin))
        free = max(free, end)
    return [*gaps, (free, max(free, size))]


def _most_at_once(tensors: Sequence[Lifetime]) -> int:
    """The most bytes that are needed at one step, which no plan can do without."""
    steps = {tensor.first for tensor in tensors}
    return max((sum(t.room for t in tensors if t.first <= step <= t.last) for step in steps), default=0)


def _end(tensors: Sequence[Lifetime], offsets: Sequence[int]) -> int:
    return max((at + tensor.room for at, tensor in zip(offsets, tensors, strict=True)), default=0)
