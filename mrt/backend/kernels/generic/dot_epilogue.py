"""What is done with sums of dots while they are in registers: how many are read as one vector, how they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrt.backend.kernels.generic.dot_extents import DotExtents
from mrt.backend.kernels.generic.overlap_pairs import PAIR
from mrt.backend.kernels.x86.avx2.joined_lookups import joins_look_ups
from mrt.backend.kernels.x86.avx512.packed_store import stores_packed
from mrt.backend.schedule.cost import looks_up, operations
from mrt.backend.schedule.tilings import VectorTiling
from mrt.backend.te.stages import Hint
from mrt.symbol import Refusal

STORE = "packed_store"
"""What a refusal of a schedule is about."""
LONG_OUTPUT = 24
"""So many operations on a vector of float sums, as those of a sigmoid or loads one by one, are not written out for each
vector of a tile: a loop is as fast, and compiled in a third less time."""


def blocks_per_vector(blocks: int, parts: int) -> int:
    """How many blocks of output channels, of so many, have sums that follow each other and are read as one vector."""
    return PAIR if blocks % PAIR == 0 and parts == 1 else 1


def is_written_out(plan: Any, channel: Any, lanes: int) -> bool:
    """Whether what is done to float sums, within the loop over channels, is short enough for statements of its own for
    each vector of a tile."""
    return sum(operations(plan.get(block), lanes) for block in plan.get_child_blocks(channel)) < LONG_OUTPUT


@dataclass(frozen=True)
class Epilogue:
    """How the output reads the sums of a tile: so many `blocks` as one vector.

    packed: whether they are requantized to bytes (see `PackedStore`). overlaps: whether the last pair of an odd number
    of blocks may overlap the one before. written_out: whether each vector of a tile has statements of its own. joins:
    whether these look up together (see `JoinLookUps`). refusals: why they are not packed, if they are not.
    """

    blocks: int
    packed: bool
    overlaps: bool
    written_out: bool
    joins: bool
    refusals: tuple[Refusal, ...] = ()

    @classmethod
    def of(cls, plan: Any, channel: Any, extents: DotExtents, tiling: VectorTiling, once: bool) -> Epilogue:
        refusal = ""
        if extents.parts > 1:
            refusal = "weights have several bytes"
        elif not extents.alone:
            refusal = "other blocks are computed within the same loops"
        elif not stores_packed(plan, channel):
            refusal = "results are no bytes that were requantized by int16"
        whole = extents.by_instruction and extents.parts == 1 and extents.alone
        packed = whole and not refusal
        blocks = blocks_per_vector(tiling.blocks, extents.parts) if extents.by_instruction and not packed else 1
        stored = [plan.get(block) for block in plan.get_child_blocks(channel)]
        joins = extents.by_instruction and joins_look_ups(plan, channel)
        overlaps = whole and not packed and blocks == 1 and tiling.blocks > PAIR and not once
        # Twice a look-up costs more than half a vector.
        overlaps = overlaps and not joins and not any(map(looks_up, stored))
        written_out = extents.by_instruction or is_written_out(plan, channel, extents.lanes)
        return cls(blocks, packed, overlaps, written_out, joins, (Refusal(STORE, refusal),) if refusal else ())

    def apply(self, plan: Any, positions: Any, blocks: Any, lane: Any) -> None:
        """Forms the output's loops over a tile."""
        if self.packed:
            plan.annotate(positions, Hint.PACKED_STORE, 1)
            return
        if self.overlaps:
            plan.annotate(blocks, Hint.OVERLAPS, 1)
        if self.joins:
            plan.annotate(positions, Hint.JOINED_LOOK_UPS, 1)
        plan.vectorize(lane)
        if self.written_out:
            plan.unroll(positions)
            plan.unroll(blocks)
