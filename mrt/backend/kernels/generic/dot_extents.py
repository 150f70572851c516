"""What sums of dots go over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mrt.backend.kernels.generic.crossed_dot import STEPS
from mrt.backend.kernels.generic.overlap_pairs import PAIR
from mrt.backend.schedule.cost import lanes_at_once
from mrt.backend.schedule.loops import FIRST_BYTES, LINE_BYTES, extent, product, split_loops
from mrt.backend.te.stages import Hint


@dataclass(frozen=True)
class DotExtents:
    """What sums of dots go over.

    length, count: positions of a row, and rows. lines: rows of the last axis of these. line: see `DotForm`. blocks,
    group_blocks: of output channels, all and those of a group. depth, dots: products of a sum and what they are formed
    in, of all slices. taps: of one slice. element: bytes of one of the data. by_instruction: whether one multiplies.
    sliced: whether a total is in registers beside the sums of a slice. crossed: whether two dots are one product of
    sums. alone: whether nothing else is scheduled within the same loops. paired: whether what is done to two blocks of
    sums takes as long as to one.
    """

    length: int
    count: int
    lines: int
    line: int | None
    lanes: int
    blocks: int
    group_blocks: int
    parts: int
    depth: int
    dots: int
    taps: int
    element: int
    by_instruction: bool
    sliced: bool
    crossed: bool
    alone: bool
    paired: bool

    @property
    def multiple(self) -> int:
        """Of which the blocks of a tile are one."""
        return PAIR if self.paired and self.parts == 1 and self.group_blocks % PAIR == 0 else self.parts

    @property
    def copies(self) -> int:
        """Of the accumulators."""
        return 2 if self.sliced else 1

    @property
    def is_plain(self) -> bool:
        """Whether elements are multiplied and added one by one, and nothing else is done."""
        return self.alone and not self.by_instruction

    @property
    def data(self) -> int:
        """Elements of the data, those that several taps read counted once."""
        return self.count * self.length * self.depth // self.taps

    @property
    def lines_of_dot(self) -> float:
        """Lines of data that a position reads for a dot from beyond the first cache."""
        is_far = self.data * self.element > FIRST_BYTES
        return self.depth / self.dots * self.element / (LINE_BYTES * self.taps) if is_far else 0.0

    @property
    def may_jam(self) -> bool:
        """Whether tiles may be jammed (see `UnrollAndJam`)."""
        return not self.sliced


def extents_of(
    plan: Any, sums: Any, output: Any, row: Any, rows: Sequence[Any], own: Sequence[Any], total: Any
) -> DotExtents:
    annotations, data = plan.get(sums).annotations, plan.get(sums).reads[-1].source
    spatial, reduction = split_loops(plan, sums)
    by_instruction = bool(annotations[Hint.DOT])
    crossed = Hint.CROSSED in annotations
    depth = product(plan, reduction) * (1 if total is None else extent(plan, spatial[0])) * (STEPS if crossed else 1)
    return DotExtents(
        length=extent(plan, row),
        count=product(plan, rows),
        lines=extent(plan, rows[-1]) if rows else 1,
        line=int(annotations[Hint.LINE]) if Hint.LINE in annotations else None,
        lanes=extent(plan, spatial[-1]),
        blocks=extent(plan, spatial[-2]),
        group_blocks=int(annotations[Hint.GROUP_BLOCKS]),
        parts=int(annotations[Hint.PARTS]),
        depth=depth,
        dots=depth // (extent(plan, reduction[-1]) if by_instruction else 1),
        taps=product(plan, reduction[: -2 if by_instruction else -1]),
        element=data.dtype.itemsize,
        by_instruction=by_instruction,
        sliced=total is not None,
        crossed=crossed,
        alone=not own and total is None,
        paired=lanes_at_once(plan.get(output)) > extent(plan, spatial[-1]),
    )
