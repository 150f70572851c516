"""Schedules: how the stages of a region become parallel, vectorized loops, and what is lowered in these.

No schedule changes the order in which one element's terms are added, so that results depend on neither threads nor
tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mrt.backend.kernels import KERNEL_PASSES
from mrt.backend.kernels.generic.accumulator_init import AccumulatorInit, blocks_of
from mrt.backend.kernels.generic.batch_dot import schedule_matrix_products
from mrt.backend.kernels.generic.crossed_dot import schedule_pairs
from mrt.backend.kernels.generic.depthwise_taps import schedule_taps
from mrt.backend.kernels.generic.dot_schedule import schedule_dots
from mrt.backend.kernels.generic.packed_schedule import schedule_bytes, schedule_packed
from mrt.backend.kernels.generic.rows import schedule_rows
from mrt.backend.kernels.generic.turn import Turn, turn_of
from mrt.backend.kernels.generic.turned_tiles import schedule_turned
from mrt.backend.kernels.generic.two_steps import TwoSteps
from mrt.backend.kernels.generic.unroll_and_jam import UnrollAndJam
from mrt.backend.kernels.generic.winograd_schedule import WinogradBlocks, schedule_winograd
from mrt.backend.kernels.x86.amx.tiles import tile_dots
from mrt.backend.kernels.x86.depthwise import schedule_columns
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Walk
from mrt.backend.schedule.elementwise import schedule_lanes, schedule_map, schedule_stage
from mrt.backend.schedule.tilings import Choose
from mrt.backend.te.stages import Hint
from mrt.backend.tir.plans import Plan
from mrt.symbol import Refusal
from mrt.symbol.passes import BasePass, BaseResult, run_in_order

WINOGRAD = frozenset({Hint.WINOGRAD_DATA, Hint.WINOGRAD_PRODUCTS, Hint.WINOGRAD_RESULTS, Hint.WINOGRAD_SUMS})
CROSSED = frozenset({Hint.PAIRS, Hint.OF_DATA})
SPECIAL = frozenset({Hint.DOT, Hint.COLUMNS, Hint.TAPS, Hint.SLICES, Hint.MATRIX, Hint.UNPACKED}) | CROSSED | WINOGRAD
"""Marks of blocks that schedules know."""


@dataclass(frozen=True)
class Request:
    """What is to be scheduled: the PrimFunc of a region, whose last blocks, one for each output, share their loops.

    walk: the order of the output's elements; walked: how many of its trailing axes can be walked as one without an
    index division. choose: see `tilings`. by_rows: whether every step is one along rows. once: whether each element
    must be computed once only.
    """

    function: Any
    walk: Walk
    outputs: int
    walked: int
    machine: Machine
    choose: Choose
    by_rows: bool = False
    once: bool = False

    @cached_property
    def hints(self) -> list[str]:
        """Those of all blocks, one for each block that has it."""
        return [str(hint) for block in blocks_of(self.function) if block is not None for hint in block.annotations]

    @cached_property
    def turn(self) -> Turn | None:
        """What is read across the order in which it is written, if each element may be computed twice."""
        is_plain = self.outputs == 1 and self.walk.turns == 1 and not (self.once or self.by_rows or self.hints)
        return turn_of(self.function) if is_plain else None


class Blocks:
    """The blocks of a function that is being scheduled. output: the last one; inside: those before the outputs."""

    def __init__(self, plan: Any, outputs: int) -> None:
        self._plan = plan
        blocks = plan.get_child_blocks(plan.get_sblock("root"))
        self.inside, self.output = blocks[:-outputs], blocks[-1]
        self._hints = [frozenset(map(str, plan.get(block).annotations)) for block in self.inside]

    def marked(self, hint: str) -> list[Any]:
        return [block for block, hints in zip(self.inside, self._hints, strict=True) if hint in hints]

    def schedule_others(self, inlined: str = Hint.WHOLE, kept: str = "") -> None:
        """Schedules the blocks that no schedule knows, but those marked `kept`; those marked `inlined` are inlined."""
        for block, hints in zip(self.inside, self._hints, strict=True):
            if inlined in hints:
                self._plan.compute_inline(block)
            elif not hints & {*SPECIAL, kept}:
                schedule_stage(self._plan, block)


Apply = Callable[[Any, Blocks, Request], "Sequence[Refusal] | str"]
"""Schedules the blocks of a plan; gives what it left alone, or why it cannot do it."""


@dataclass(frozen=True)
class Schedule:
    """applies: of what is to be scheduled. apply: how. before, after: passes on the function that is not scheduled yet,
    and on the scheduled one."""

    applies: Callable[[Request], bool]
    apply: Apply
    before: tuple[BasePass[Any], ...] = (AccumulatorInit(),)
    after: tuple[BasePass[Any], ...] = KERNEL_PASSES


def schedule(request: Request) -> BaseResult[Any]:
    """The scheduled function by the first of SCHEDULES that applies and does not refuse, and what was left alone."""
    refusals: list[Refusal] = []
    for each in SCHEDULES:
        if not each.applies(request):
            continue
        plan = Plan(run_in_order(request.function, each.before).made)
        found = each.apply(plan, Blocks(plan, request.outputs), request)
        if isinstance(found, str):
            refusals.append(Refusal(each.apply.__name__, found))
            continue
        lowered = run_in_order(plan.mod["main"], each.after)
        return BaseResult(lowered.made, (*refusals, *found, *lowered.refusals))
    raise ValueError("no schedule applies")


def _is_tiled(request: Request) -> bool:
    hints = request.hints
    others = any(hint in hints for hint in (Hint.SLICES, Hint.MATRIX, Hint.UNPACKED))
    return request.machine.has_tiles and not request.by_rows and hints.count(Hint.DOT) == 1 and not others


def amx_tiles(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal] | str:
    """Sums of dots in tile registers, which begin with 0."""
    (sums,) = blocks.marked(Hint.DOT)
    if not plan.get_consumers(sums):
        return "bounds prove what is made of the sums to be constant"
    blocks.schedule_others(inlined=Hint.ACCUMULATOR_INIT, kept=Hint.WHOLE)
    whole = next(iter(blocks.marked(Hint.WHOLE)), None)
    return tile_dots(plan, sums, blocks.output, request.choose, whole) or ()


def rows(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    schedule_rows(plan, blocks.inside, blocks.output, request.machine)
    return ()


def depthwise_columns(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    blocks.schedule_others()
    (sums,) = blocks.marked(Hint.COLUMNS)
    schedule_columns(plan, sums, blocks.output, request.machine)
    return ()


def depthwise_taps(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    blocks.schedule_others()
    (sums,) = blocks.marked(Hint.TAPS)
    schedule_taps(plan, sums, blocks.output, request.machine)
    return ()


def matrix_products(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    blocks.schedule_others()
    (sums,) = blocks.marked(Hint.DOT)
    prepared = blocks.marked(Hint.MATRIX)
    schedule_matrix_products(plan, prepared, sums, blocks.output, request.machine, request.choose)
    return ()


def packed_weights(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    """Sums of dots in vector registers, of weights that are unpacked there."""
    blocks.schedule_others(kept=Hint.BYTES)
    for block in blocks.marked(Hint.BYTES):
        schedule_bytes(plan, block)
    (unpacked,), (sums,) = blocks.marked(Hint.UNPACKED), blocks.marked(Hint.DOT)
    schedule_packed(plan, unpacked, sums, blocks.output, next(iter(blocks.marked(Hint.SLICES)), None))
    return ()


def register_tiles(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    """Sums of dots in vector registers."""
    blocks.schedule_others()
    (sums,) = blocks.marked(Hint.DOT)
    for pairs, of_data in zip(blocks.marked(Hint.PAIRS), blocks.marked(Hint.OF_DATA), strict=True):
        schedule_pairs(plan, pairs, of_data)
    total = next(iter(blocks.marked(Hint.SLICES)), None)
    return schedule_dots(
        plan, sums, blocks.output, request.machine, choose=request.choose, total=total, once=request.once
    )


def winograd(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    """Tiles of convolutions by Winograd's algorithm."""
    blocks.schedule_others()
    marks = (Hint.WINOGRAD_DATA, Hint.WINOGRAD, Hint.WINOGRAD_PRODUCTS, Hint.WINOGRAD_RESULTS, Hint.WINOGRAD_SUMS)
    stages = WinogradBlocks(*(block for mark in marks for block in blocks.marked(mark)))
    schedule_winograd(plan, stages, blocks.output, request.machine)
    return ()


def turned_tiles(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal] | str:
    if request.turn is None:
        return "nothing is read across the order in which it is written"
    schedule_turned(plan, blocks.output, request.turn)
    return ()


def innermost_axis(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    blocks.schedule_others()
    schedule_lanes(plan, blocks.output, request.walk)
    return ()


def any_order(plan: Any, blocks: Blocks, request: Request) -> Sequence[Refusal]:
    blocks.schedule_others()
    schedule_map(plan, blocks.output, request.walked)
    return ()


SCHEDULES = (
    Schedule(_is_tiled, amx_tiles, before=()),
    Schedule(lambda request: request.by_rows, rows),
    Schedule(lambda request: Hint.WINOGRAD in request.hints, winograd),
    Schedule(lambda request: Hint.COLUMNS in request.hints, depthwise_columns),
    Schedule(lambda request: Hint.TAPS in request.hints, depthwise_taps),
    # What `schedule_dots` marks there besides is meant for weights that lie in memory.
    Schedule(lambda request: Hint.MATRIX in request.hints, matrix_products, after=(UnrollAndJam(), TwoSteps())),
    Schedule(lambda request: Hint.UNPACKED in request.hints, packed_weights),
    Schedule(lambda request: Hint.DOT in request.hints, register_tiles),
    Schedule(lambda request: request.turn is not None, turned_tiles),
    Schedule(lambda request: request.walk.inner is not None, innermost_axis),
    Schedule(lambda request: True, any_order),
)
"""In the order in which they are tried."""
