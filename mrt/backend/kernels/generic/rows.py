"""Rows, some at a time: each step of a computation along the last axis is done for a tile of rows before the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from tvm import s_tir, te, tirx
from tvm.tirx.op import vectorhigh, vectorlow

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_blocks, without_marks
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import VECTOR, Storage, View
from mrt.backend.schedule.loops import REDUCTION, divisors, extent, has_reduction, parallelize, product
from mrt.backend.te.stages import Hint, inlined, stage
from mrt.backend.tir.expressions import Expression, as_term, bind, constant
from mrt.backend.tir.statements import nested
from mrt.symbol import TensorType
from mrt.symbol.passes import Property

FEW_ROWS, MANY_ROWS = 8, 32
"""Rows of a tile: numbers of them, one for each row, fill vectors, and what is made on the way stays near. Where their
number has no divisor between these, the last tile has fewer."""
NEAR_ELEMENTS = 1 << 15
"""Elements of a tile at most, if it has several rows: they and what is made of them stay in the second cache."""
PIECE, MOST_PIECES, TILES = 256, 64, 4
"""Vectors of a piece of a row at least, pieces of a row at most; below how many tiles for a thread it shares pieces."""

COMBINED: dict[Any, tuple[Any, Any]] = {
    te.sum: (lambda a, b: a + b, partial(constant, 0)),
    te.max: (te.max, tirx.min_value),
    te.min: (te.min, tirx.max_value),
}
"""Of a TE reduction, how two numbers are combined, and, of a dtype, with which one nothing changes."""


def whole_rows(data: View) -> View:
    """`data` with rows of whole vectors along its last axis: as it lies in memory, or else a copy."""
    last, length = len(data.shape) - 1, -(-data.shape[-1] // VECTOR) * VECTOR
    lies = data.storage is not None and data.inner == last and data.length >= length
    return data if lies else stored_rows(data, length, True)


def reduced_rows(data: View, shape: tuple[int, ...], reducer: Any, dtype: str) -> View:
    """`data`, whose last axis is innermost in memory and padded to vectors, combined along that axis.

    Vectors are combined with each other first, those of a piece of a long row before pieces are, then what is in one:
    integers may be combined in any order, and sums of floats are the same each time.
    """
    accumulator = dtype if dtype.startswith("float") else "int32"
    combine, neutral = COMBINED[reducer]
    leading, length = data.shape[:-1], data.shape[-1]
    vectors = -(-length // VECTOR)
    pieces = _pieces(vectors)
    each = vectors // pieces
    vector, piece = te.reduce_axis((0, each), "vector"), te.reduce_axis((0, pieces), "piece")

    def combined(*at: Expression) -> Expression:
        *row, place, lane = at
        column = (place * each + vector) * VECTOR + lane
        value = as_term(data(*row, column).astype(accumulator))
        whole = length % VECTOR == 0
        return reducer(value if whole else tirx.Select(column < length, value, neutral(accumulator)), axis=vector)

    def of_pieces(*at: Expression) -> Expression:
        *row, lane = at
        return reducer(lanes_of_pieces(*row, piece, lane), axis=piece)

    if pieces > 1:
        lanes_of_pieces = stage((*leading, pieces, VECTOR), combined, "piece", pieces=1)
        lanes = stage((*leading, VECTOR), of_pieces, "partial")
    else:
        lanes = stage((*leading, VECTOR), lambda *at: combined(*at[:-1], constant(0, "int32"), at[-1]), "partial")

    def across(*at: Expression) -> Expression:
        row = at[: len(leading)]
        found = [lanes(*row, constant(lane, "int32")) for lane in range(VECTOR)]
        while len(found) > 1:
            half = len(found) // 2
            found = [combine(a, b) for a, b in zip(found[:half], found[half:], strict=True)]
        return found[0]

    whole = stage((*leading, 1), across, "across", across=1)
    return inlined(shape, dtype, lambda *at: whole(*at[: len(leading)], constant(0, "int32")).astype(dtype))


def _pieces(vectors: int) -> int:
    """In how many pieces threads may share a row."""
    return next(n for n in reversed(divisors(vectors)) if n == 1 or n <= min(MOST_PIECES, vectors // PIECE))


def stored_rows(value: View, length: int, guarded: bool) -> View:
    """`value` as a stage with rows of `length`, or with a single number for each row if that is what it is.

    guarded: what pads a row cannot be computed.
    """
    width = 1 if value.shape[-1] == 1 else length
    columns = value.shape[-1]

    def element(*at: Expression) -> Expression:
        found = value(*at).astype(value.dtype)
        if width == columns or not guarded:
            return found
        return tirx.if_then_else(at[-1] < columns, found, constant(0, value.dtype))

    tensor = stage((*value.shape[:-1], width), element, "stored")
    if width == 1:
        return inlined(value.shape, value.dtype, lambda *at: tensor(*at), non_negative=value.non_negative)
    kind = TensorType(value.shape, value.dtype)
    storage = replace(Storage.with_inner(kind, len(value.shape) - 1, length), bordered=True)
    return View(
        value.shape,
        value.dtype,
        lambda *at: tensor(*at),
        storage.inner,
        tensor,
        storage,
        non_negative=value.non_negative,
    )


def schedule_rows(plan: Any, steps: Sequence[Any], output: Any, machine: Machine) -> None:
    """The loop over tiles of rows is outermost; within it each step walks its rows.

    Where rows are too few for the threads, these share pieces of them, step by step. What one other step alone reads is
    made where it is read, vector by vector.
    """
    *positions, channel = plan.get_loops(output)
    rows, length = extent(plan, positions[-1]), extent(plan, channel)
    tile, pieces = _tile(rows, length), _pieces(-(-length // VECTOR))
    if machine.threads > 1 < pieces and product(plan, positions) < TILES * machine.threads * tile:
        tiles, outer = None, []
    else:
        tiles, _ = plan.split(positions[-1], [None, tile])
        outer = [*positions[:-1], tiles]
    walks: dict[str, Any] = {}
    started = []
    for block in (output, *reversed(steps)):
        if (at := walks.get(_only_reader(plan, block))) is not None:
            plan.compute_at(block, at, preserve_unit_loops=True)
            plan.vectorize(plan.get_loops(block)[-1])
        else:
            if tiles is not None and block != output:
                plan.compute_at(block, tiles, preserve_unit_loops=True)
            at, sums = _schedule_step(plan, block)
            if tiles is None:
                at = _shared(plan, block, at, pieces)
            if sums is not None:
                started.append((block, sums))
        walks[_name(plan, block)] = at
    # Threads are told apart before sums are started in blocks of their own, after which TVM refuses.
    parallelize(plan, outer)
    if rows % tile and tiles is not None:
        plan.annotate(plan.get_loops(output)[0], Hint.FEWER_ROWS, [tile, rows])
    for block, loop in started:
        plan.vectorize(plan.get_loops(plan.decompose_reduction(block, loop))[-1])


@dataclass(frozen=True)
class CombineHalves(KernelPass):
    """The elements of a vector are combined by halves of it. One by one, LLVM would gather them for several rows at
    once."""

    marks: ClassVar[tuple[str, ...]] = (Hint.HALVES,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.HALVES),)

    def lower(self, function: Any) -> Any:
        return lower_blocks(function, Hint.HALVES, _by_halves)


def _by_halves(loops: Sequence[Any], realize: Any) -> Any:
    block, store = realize.block, realize.block.body
    combine, dtype, (read,) = type(store.value), str(store.buffer.dtype), block.reads
    *row, _ = (each.min for each in read.region)
    value, lanes = tirx.BufferLoad(read.source, [*row, tirx.Ramp(constant(0, "int32"), 1, VECTOR)]), VECTOR
    while lanes > 1:
        lanes //= 2
        value = bind(value, partial(_combined_halves, combine, dtype, lanes))
    body = tirx.BufferStore(store.buffer, value, store.indices)
    made = s_tir.SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, body)
    return nested(loops, s_tir.SBlockRealize(realize.iter_values, realize.predicate, made))


def _combined_halves(combine: Any, dtype: str, lanes: int, vector: Expression) -> Expression:
    """What a vector of twice as many lanes becomes."""
    if lanes == 1:
        return combine(*(tirx.Shuffle([vector], [constant(lane, "int32")]) for lane in range(2)))
    half = f"{dtype}x{lanes}"
    return combine(vectorlow(half, vector), vectorhigh(half, vector))


def _tile(rows: int, length: int) -> int:
    most = min(max(NEAR_ELEMENTS // length, 1), MANY_ROWS)
    fitting = max(n for n in divisors(rows) if n <= most)
    return fitting if fitting >= min(FEW_ROWS, rows, most) else min(VECTOR, most)


def _shared(plan: Any, block: Any, vectors: Any, pieces: int) -> Any:
    """Has threads share pieces of the rows that a step walks by the loop over `vectors`; gives that of a piece."""
    if Hint.PIECES in plan.get(block).annotations:
        *rows, piece = plan.get_loops(block)[: len(plan.get(block).iter_vars) - 2]
    elif vectors is not None and extent(plan, vectors) > pieces and not has_reduction(plan, block):
        rows = plan.get_loops(block)[: len(plan.get(block).iter_vars) - 1]
        piece, vectors = plan.split(vectors, [pieces, None])
    else:
        return vectors
    parallelize(plan, [*rows, piece])
    return vectors


def _only_reader(plan: Any, block: Any) -> str:
    """The name of the step that alone reads the rows that an elementwise step makes; none where there is no such."""
    found, readers = plan.get(block), plan.get_consumers(block)
    makes_rows = int(found.iter_vars[-1].dom.extent) > 1 and Hint.ACROSS not in found.annotations
    alone = len(readers) == 1 and makes_rows and not has_reduction(plan, block)
    return _name(plan, readers[0]) if alone else ""


def _name(plan: Any, block: Any) -> str:
    return str(plan.get(block).name_hint)


def _schedule_step(plan: Any, block: Any) -> tuple[Any, Any]:
    """Vectorizes what one step does.

    Gives the loop over the vectors of a row, None where a row has none, and the loop before which its sums are to be
    started, None where it sums nothing.
    """
    found = plan.get(block)
    kinds = [int(variable.iter_type) for variable in found.iter_vars]
    loops = plan.get_loops(block)[-len(kinds) :]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != REDUCTION]
    reduction = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCTION]
    if Hint.ACROSS in found.annotations:
        plan.annotate(block, Hint.HALVES, 1)
        return None, None
    column = spatial[-1]
    if extent(plan, column) > 1:
        columns, vector = plan.split(column, [None, VECTOR])
    else:
        columns, vector = None, max(spatial, key=lambda loop: extent(plan, loop))
    if reduction:
        plan.reorder(*reduction, vector)
    plan.vectorize(vector)
    inner = columns if not reduction else None if columns is None else reduction[-1]
    return inner, next(iter(reduction), None)
