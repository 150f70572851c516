"""Where tensors lie in one workspace: those that are needed at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrt.backend.memory.alignment import aligned


@dataclass(frozen=True)
class Lifetime:
    """A tensor of `size` bytes that is needed from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def plan_memory(tensors: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The byte at which each tensor begins, and the size of the workspace.

    Largest first, each where the first gap is that holds it between those that are needed at the same time ("greedy by
    size for offset calculation" of Pisarchyk and Lee, 2020).
    """
    offsets = [0] * len(tensors)
    alive: list[list[int]] = [[] for _ in range(max((tensor.last for tensor in tensors), default=-1) + 1)]
    for i in sorted(range(len(tensors)), key=lambda i: -tensors[i].size):
        steps = range(tensors[i].first, tensors[i].last + 1)
        around = {other for step in steps for other in alive[step]}
        for other in sorted(around, key=offsets.__getitem__):
            if offsets[i] + tensors[i].size <= offsets[other]:
                break
            offsets[i] = max(offsets[i], offsets[other] + aligned(tensors[other].size))
        for step in steps:
            alive[step].append(i)
    ends = (offset + aligned(tensor.size) for offset, tensor in zip(offsets, tensors, strict=True))
    return offsets, max(ends, default=0)
