"""Tilings: what a schedule leaves open, offered with the rule's own answer first, and who chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import MOST_BLOCKS, divisors, register_room

Choose = Callable[[Iterable[Any]], Any]
"""Gives one of the tilings that it is offered, frozen dataclasses of numbers any of which gives the same integers.

It is asked once for a function at most."""
Scheduled = Callable[[Choose], Any]
"""Gives a PrimFunc scheduled by the tiling that is chosen."""
Scheduler = Callable[[Any, Scheduled], Any]
"""Of a PrimFunc that is not scheduled, and what schedules it, gives the scheduled one."""


def by_rule(tilings: Iterable[Any]) -> Any:
    """The tiling that needs no measuring."""
    return next(iter(tilings))


def schedule_by_rule(function: Any, scheduled: Scheduled) -> Any:
    return scheduled(by_rule)


@dataclass(frozen=True)
class VectorTiling:
    """How sums of dots are walked: `positions` x `blocks` of them in registers, `near` such tiles in a row.

    weights_outermost: whether the weights are walked once, and the data again for each part of them; else the data is.
    jammed: how many tiles, neighbours in a row or whole rows, are in registers together; the last ones may be fewer.
    """

    positions: int
    blocks: int
    near: int
    weights_outermost: bool
    jammed: int = 1

    def alternatives(
        self, row: int, blocks: int, parts: int, steps: int, machine: Machine, copies: int = 1
    ) -> Iterator[VectorTiling]:
        """This tiling, then all of whole tiles whose sums stay in registers.

        row: positions that can be next to each other. blocks: of output channels that read the same data. parts: sums
        that make one of a block. steps: dots of a sum. copies: of the accumulators that are held.
        """
        yield self
        for held in (n for n in divisors(blocks) if n * parts <= MOST_BLOCKS):
            room = register_room(held * parts, steps, machine, copies)
            for positions in (n for n in divisors(row) if n <= room):
                for near in divisors(row // positions):
                    for outermost in (False, True):
                        tiling = VectorTiling(positions, held, near, outermost)
                        if tiling != self:
                            yield tiling
