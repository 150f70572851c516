"""Software prefetch while dots are summed: of weights, and of the memory that results are written to.

Each weight is read once for each tile of positions, and comes from far memory the first time. Hardware prefetches it
within a page of memory only, so that dots would wait at every new one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import s_tir, tirx
from tvm.tirx.op import address_of

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_loops, marks_but, without_marks
from mrt.backend.schedule.loops import LINE_BYTES, product
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant, ravel, substitute
from mrt.backend.tir.statements import loop_around, sequence
from mrt.symbol.passes import Property

MOST_LINES, MOST_AT_ONCE = 4, 48
"""At most that a step prefetches: if it had to be more, memory would limit, and one stream is faster than two; and that
a tile does before its steps, all of them at once."""
READ, WRITE = 0, 1
FIRST_CACHE, SECOND_CACHE = 3, 2
DATA = 1
"""What LLVM's prefetch takes: whether a write is to come, where to, no instructions."""
SPREAD_BITS = 16
"""Of the fraction in numbers by which steps are multiplied."""


@dataclass(frozen=True)
class Prefetches:
    """What each step prefetches of sums that are in registers for `blocks` of output channels x `tile` positions.

    tiles: those that are summed for the same blocks, while the weights of the next ones go into the second cache, a
    share with each step; 0 if none do. at_once: whether all that a tile fetches of these goes there before its steps,
    which do nothing else then. ahead: how many steps before they are needed weights go into the first cache;
    0 if they stay there. results: whether the lines that a tile is written to go there, too, with each tap or, where
    there is one, with each step. written: whether all of these go there before the sums begin, which is for sums that
    an instruction forms in few steps.
    """

    blocks: int
    tile: int
    tiles: int
    at_once: bool
    ahead: int
    results: bool
    written: bool

    def annotate(self, plan: Any, loops: Sequence[Any]) -> None:
        """Marks those of the loops over taps and steps, the last, that have anything to fetch."""
        *over_taps, steps = loops
        if self.written:
            plan.annotate(loops[0], Hint.PREFETCH_WRITTEN, 1)
        if self.tiles and self.at_once:
            plan.annotate(loops[0], Hint.PREFETCH_BLOCKS, [self.blocks, self.tile, self.tiles])
        taps = product(plan, over_taps)
        by_taps = self.results and taps > 1
        if by_taps:
            plan.annotate(over_taps[-1], Hint.PREFETCH_RESULTS, taps)
        tiles = 0 if self.at_once else self.tiles
        if tiles or self.ahead or (self.results and not by_taps):
            numbers = self.blocks, self.tile, tiles, self.ahead, self.results and not by_taps
            plan.annotate(steps, Hint.PREFETCH, [int(number) for number in numbers])


@dataclass(frozen=True)
class Prefetch(KernelPass):
    """Prefetches in the loops over taps and over steps that are marked by `Prefetches.annotate`, or as a stream."""

    marks: ClassVar[tuple[str, ...]] = (
        Hint.PREFETCH_BLOCKS,
        Hint.PREFETCH_WRITTEN,
        Hint.PREFETCH_RESULTS,
        Hint.PREFETCH,
        Hint.PREFETCH_STREAM,
    )
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(*marks),)

    def lower(self, function: Any) -> Any:
        function = lower_loops(function, Hint.PREFETCH_STREAM, _prefetching_stream)
        function = lower_loops(function, Hint.PREFETCH_BLOCKS, _prefetching_blocks)
        loops, output = _last_nest(function.body.block.body)
        written = lower_loops(
            function, Hint.PREFETCH_WRITTEN, lambda loop: _prefetching_written(loop, loops[-3:], output)
        )
        by_taps = lower_loops(
            written, Hint.PREFETCH_RESULTS, lambda loop: _prefetching_results(loop, loops[-3:], output)
        )
        return lower_loops(by_taps, Hint.PREFETCH, lambda loop: _prefetching(loop, loops[-3:], output))


def _prefetching(loop: Any, inside: Sequence[Any], output: Any) -> Any:
    """The loop of a step over the reduction, which also fetches. inside: the loops over what a tile writes."""
    held, tile, tiles, ahead, results = (int(number) for number in loop.annotations[Hint.PREFETCH])
    block, at = _first_turn(loop.body)
    sums, weights = block.writes[0].source, block.reads[-1].source
    # The axes of the block are [positions..., block, lane, taps..., step, ...], those of weights [block, taps..., step,
    # lane, depth].
    rank, (_, *reduced, lane, depth) = len(sums.shape) - 2, [int(length) for length in weights.shape]
    number, step = at[rank], ravel(at[rank + 2 : rank + 2 + len(reduced)], reduced)
    prefetches: list[Any] = []
    if tiles:
        steps, done = math.prod(reduced), _tiles_before(at, sums, tile)
        prefetches += _of_next_blocks(weights, number, held, done * steps + step, tiles * steps, step)
    if ahead:
        place = (step + ahead) * lane * depth
        prefetches += [_prefetch(_place(weights, number + i, place), READ, FIRST_CACHE) for i in range(held)]
    if results:
        position, blocks, _ = inside
        at_step = _spread(loop.loop_var, int(loop.extent), int(position.extent))
        turn = [at_step, tirx.floormod(loop.loop_var, blocks.extent), 0]
        prefetches.append(_prefetch(_result(turn, inside, output), WRITE, FIRST_CACHE))
    return _fetching(loop, prefetches, Hint.PREFETCH)


def _prefetching_blocks(loop: Any) -> Any:
    """The first loop of the reduction, and before it fetches of a share of the next blocks' weights."""
    held, tile, tiles = (int(number) for number in loop.annotations[Hint.PREFETCH_BLOCKS])
    block, at = _first_turn(loop.body)
    sums, weights = block.writes[0].source, block.reads[-1].source
    done = _tiles_before(at, sums, tile)
    fetches = _of_next_blocks(weights, at[len(sums.shape) - 2], held, done, tiles, done, MOST_AT_ONCE)
    return sequence([*fetches, loop_around(loop, loop.body, marks=marks_but(loop, Hint.PREFETCH_BLOCKS))])


def _tiles_before(at: Sequence[Expression], sums: Any, tile: int) -> Expression:
    """How many tiles of positions are summed before the one of sums [positions..., block, lane] at this place."""
    rank = len(sums.shape) - 2
    return ravel(at[:rank], [int(length) for length in sums.shape[:rank]]) // tile


def _spread(step: Expression, steps: int, count: int) -> Expression:
    """The number of the thing that is fetched at a step, of `count` that are spread over all of them.

    By a product and a shift, and not step * count // steps: where the quotient is multiplied again by what divided it,
    LLVM computes a remainder, for which the registers did not suffice: sums of 480 channels took twice as long.
    """
    factor = (count << SPREAD_BITS) // steps
    return (step * constant(factor, "int32")) >> constant(SPREAD_BITS, "int32")


def _prefetching_stream(loop: Any) -> Any:
    """The loop over steps of weights that follow each other in memory, and are read once."""
    ahead, axes = (int(number) for number in loop.annotations[Hint.PREFETCH_STREAM])
    block, at = next(_blocks(loop.body, ()))
    read = block.reads[-1]
    before = substitute([each.min for each in read.region[:-axes]], [each.var for each in block.iter_vars], at)
    element, first = read.source.dtype.itemsize, [constant(0, "int32")] * (axes - 1)
    size = math.prod(int(length) for length in read.source.shape[-axes:]) * element

    def fetched(line: int) -> Any:
        place = constant((ahead + line) // element, "int32")
        return _prefetch(tirx.BufferLoad(read.source, [*before, *first, place]), READ, FIRST_CACHE)

    fetches = [fetched(line) for line in range(0, size - size % LINE_BYTES, LINE_BYTES)]
    if size < LINE_BYTES:
        turns = constant(LINE_BYTES // size, "int32")
        fetches = [tirx.IfThenElse(tirx.floormod(loop.loop_var, turns).equal(0), fetched(0), None)]
    return _fetching(loop, fetches, Hint.PREFETCH_STREAM)


def _fetching(loop: Any, fetches: Sequence[Any], mark: str) -> Any:
    """The loop with what it fetches first, without the mark that said so."""
    return loop_around(loop, sequence([*fetches, loop.body]), marks=marks_but(loop, mark))


def _blocks(statement: Any, variables: tuple[Any, ...]) -> Iterator[tuple[Any, list[Expression]]]:
    """The blocks within a statement, each with its index in the first turn of the loops."""
    if isinstance(statement, tirx.SeqStmt):
        for each in statement.seq:
            yield from _blocks(each, variables)
    elif isinstance(statement, tirx.For):
        yield from _blocks(statement.body, (*variables, statement.loop_var))
    elif isinstance(statement, s_tir.SBlockRealize):
        zeros = [constant(0, "int32")] * len(variables)
        yield statement.block, substitute(statement.iter_values, variables, zeros)


def _prefetching_written(loop: Any, inside: Sequence[Any], output: Any) -> Any:
    """The first loop of the reduction, and before it fetches of the lines of all that a tile is written to.

    inside: the loops over that. What lies there may be read as well, as the sum of a residual network that grows in its
    place. Of blocks that share a line the first one's is fetched.
    """
    positions, blocks, lanes = (int(each.extent) for each in inside)
    fetches: list[Any] = []
    for region in output.block.writes:
        apart = max(LINE_BYTES // (lanes * region.source.dtype.itemsize), 1)
        places = [[i, j, 0] for i in range(positions) for j in range(0, blocks, apart)]
        fetches += [_prefetch(_result(place, inside, output, region), WRITE, FIRST_CACHE) for place in places]
    return sequence([*fetches, loop_around(loop, loop.body, marks=marks_but(loop, Hint.PREFETCH_WRITTEN))])


def _prefetching_results(loop: Any, inside: Sequence[Any], output: Any) -> Any:
    """The loop over the last axis of taps, which also fetches a share of what a tile is written to, before its steps.

    inside: the loops over that.
    """
    position, blocks, _ = inside
    tile = int(position.extent)
    block, at = _first_turn(loop.body)
    # As in `_prefetching`; a tap is known by the axes before that of steps.
    rank, (_, *reduced, _, _) = len(block.writes[0].source.shape) - 2, block.reads[-1].source.shape
    tap = ravel(at[rank + 2 : rank + 1 + len(reduced)], [int(length) for length in reduced[:-1]])
    share = -(-tile // int(loop.annotations[Hint.PREFETCH_RESULTS]))
    last = constant(tile - 1, "int32")
    places = [[tirx.min(tap * share + i, last), j, 0] for i in range(share) for j in range(int(blocks.extent))]
    prefetches = [_prefetch(_result(place, inside, output), WRITE, FIRST_CACHE) for place in places]
    return _fetching(loop, prefetches, Hint.PREFETCH_RESULTS)


def _of_next_blocks(
    weights: Any,
    number: Expression,
    held: int,
    done: Expression,
    shares: int,
    turn: Expression,
    most: int = MOST_LINES,
) -> Iterator[Any]:
    """Fetches one of so many `shares` of the weights of the blocks after the `held` ones from `number` on, with `done`
    before it; nothing if that is more than `most` lines.

    turn: of the loop whose turns fetch a share each. Where several shares fill a line, one turn of so many does: a line
    that is asked for while it is under way is waited for twice.
    """
    blocks, element = int(weights.shape[0]), weights.dtype.itemsize
    length = math.prod(int(each) for each in weights.shape[1:])
    share = -(-length * held // shares)
    lines = -(-share * element // LINE_BYTES)
    first = tirx.min(number + held, blocks - held)
    # A remainder by a power of 2 is one instruction.
    turns = 1 << max((LINE_BYTES // (share * element)).bit_length() - 1, 0)
    for line in range(lines if lines <= most else 0):
        place = _place(weights, first, done * share + line * (LINE_BYTES // element))
        fetch = _prefetch(place, READ, SECOND_CACHE)
        is_first = tirx.floormod(turn, constant(turns, "int32")).equal(0) if turns > 1 else None
        yield fetch if is_first is None else tirx.IfThenElse(is_first, fetch, None)


def _result(at: Sequence[Any], inside: Sequence[Any], output: Any, region: Any = None) -> Any:
    """The element that the tile writes in such a turn of the loops `inside`: to this region, or to the first."""
    values = substitute(output.iter_values, [each.loop_var for each in inside], [tirx.convert(each) for each in at])
    region, axes = region or output.block.writes[0], [each.var for each in output.block.iter_vars]
    return tirx.BufferLoad(region.source, substitute([each.min for each in region.region], axes, values))


def _last_nest(statement: Any) -> tuple[list[Any], Any]:
    """The loops around the block that is executed last, and its realization."""
    loops: list[Any] = []
    while not isinstance(statement, s_tir.SBlockRealize):
        if isinstance(statement, tirx.SeqStmt):
            statement = statement.seq[-1]
        else:
            loops, statement = [*loops, statement], statement.body
    return loops, statement


def _first_turn(statement: Any) -> tuple[Any, list[Expression]]:
    """The block within loops, and its index in the first turn of them; ValueError if there is more in the loops."""
    variables: list[Any] = []
    while isinstance(statement, tirx.For):
        variables, statement = [*variables, statement.loop_var], statement.body
    if not isinstance(statement, s_tir.SBlockRealize):
        raise ValueError("weights are not read in a loop of their own")
    zeros = [constant(0, "int32")] * len(variables)
    return statement.block, substitute(statement.iter_values, variables, zeros)


def _place(weights: Any, block: Expression, place: Expression) -> Any:
    """What lies `place` elements after the beginning of a block."""
    return tirx.BufferLoad(weights, [block, *[constant(0, "int32")] * (len(weights.shape) - 2), place])


def _prefetch(element: Any, access: int, cache: int) -> Any:
    """Fetches the line of an element. It may lie beyond the end of its memory, where nothing is fetched."""
    numbers = (constant(number, "int32") for number in (access, cache, DATA))
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address_of(element), *numbers))
