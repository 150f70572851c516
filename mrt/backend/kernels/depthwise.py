"""Depthwise convolutions by dots of bytes: a dot takes up to four taps of a column of one channel.

Channels are in lanes. The bytes of a column, one below the other, are put next to each other in each lane; a column
so made serves every position of a row whose window it is in, one vpdpbusd each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tvm import ir, te, tirx

from mrt.backend.expressions import Expression, constant, ravel, substitute
from mrt.backend.kernels.dot import DotForm
from mrt.backend.kernels.instructions import Dot, choose_dot
from mrt.backend.kernels.written import write_blocks, written_block
from mrt.backend.loops import divisors, extent, parallelize, product
from mrt.backend.machine import Machine
from mrt.backend.packing import Operand, Packed, Surroundings
from mrt.backend.stages import Hint, stage
from mrt.backend.storage import Storage, View
from mrt.symbol import Array
from mrt.symbol.types import type_of

DEPTH = 4
"""Taps in a dot."""
STRIP = 14
"""Positions of a row whose sums are in registers."""


class ColumnForm(DotForm):
    """How a depthwise weight lies in memory."""


def column_dot(data: str, weight: Array, accumulator: str, machine: Machine) -> Dot | None:
    """The dot for a depthwise weight (channels, 1, rows, columns) and data of a dtype; None where there is none."""
    if weight.ndim != 4:
        return None
    dot = choose_dot(data, weight, accumulator, machine)
    return dot if "vpdpbusd" in dot.instruction and dot.parts == 1 else None


def pack_columns(weight: Array, data: View, accumulator: str, surroundings: Surroundings) -> Packed | None:
    """The weight (channels, 1, rows, columns) as [block, rows / 4, column, lane, 4]; None if the data lies otherwise.

    Where memory holds more than the data's values, the second array takes it off again for each channel.
    """
    dot, storage = column_dot(data.dtype, weight, accumulator, surroundings.machine), data.storage
    if dot is None or storage is None or (storage.dtype, storage.offset) != (dot.data, dot.offset):
        return None
    if storage.depth != surroundings.walk.storage.length or storage.depth % dot.lanes:
        return None
    channels, _, rows, columns = weight.shape
    quads = -(-rows // DEPTH)
    laid = np.zeros((storage.depth, quads * DEPTH, columns), np.int8)
    laid[:channels, :rows] = weight[:, 0]
    packed = np.ascontiguousarray(
        laid.reshape(-1, dot.lanes, quads, DEPTH, columns).transpose(0, 2, 4, 1, 3),
    )
    arrays = [packed]
    if dot.offset:
        arrays.append(-dot.offset * packed.astype(np.int32).sum(axis=(1, 2, 4)))
    laid_as = tuple(Storage.plain(type_of(array)) for array in arrays)
    return Packed(ColumnForm(dot, flat=False, groups=1), tuple(arrays), laid_as)


def column_sums(data: View, weight: Operand, positions: Sequence[int], kernel: Sequence[int], window: Any) -> Any:
    """A function of (channel, n, y, x) that gives the sum over the taps.

    window: of a position (y, x) and a tap, where in the data it is.
    """
    form: ColumnForm = weight.form
    dot, packed, storage = form.dot, weight.views[0], data.storage
    if storage is None:
        raise ValueError("columns are read from memory")
    taps = [te.reduce_axis((0, n), f"tap{i}") for i, n in enumerate(kernel)]

    def total(*at: Expression) -> Expression:
        n, *position, block, lane = at
        held = data.tensor(*storage.places([n, block * dot.lanes + lane, *window(position, taps)]))
        row, column = taps
        factor = packed(block, tirx.floordiv(row, DEPTH), column, lane, tirx.floormod(row, DEPTH))
        return te.sum(held.astype(dot.accumulator) * factor.astype(dot.accumulator), axis=taps)

    sums = stage(
        (*positions, packed.shape[0], dot.lanes),
        total,
        "columns",
        columns=dot.instruction,
    )

    def element(channel: Expression, *position: Expression) -> Expression:
        block, lane = tirx.floordiv(channel, dot.lanes), tirx.floormod(channel, dot.lanes)
        value = sums(*position, block, lane)
        return value + weight.views[1](block, lane) if dot.offset else value

    return element


def schedule_columns(plan: Any, sums: Any, output: Any, machine: Machine) -> None:
    """A strip of a row of positions at a time, for one vector of channels; `write_columns` writes its sums."""
    *rows, row, channel = plan.get_loops(output)
    lanes = extent(plan, plan.get_loops(sums)[len(rows) + 2])
    strip = max(n for n in divisors(extent(plan, row)) if n <= STRIP)
    blocks, lane = plan.split(channel, [None, lanes])
    strips, near = plan.split(row, [None, strip])
    plan.reorder(*rows, blocks, strips, near, lane)
    taps = product(plan, list(plan.get_loops(sums))[len(rows) + 3 :])
    plan.compute_at(sums, strips, preserve_unit_loops=True)
    parallelize(plan, [*rows, blocks], taps * extent(plan, strips) * strip * lanes)
    plan.vectorize(lane)
    plan.unroll(near)


def write_columns(function: Any) -> Any:
    """The scheduled function with the sums of columns by dots."""
    return write_blocks(function, Hint.COLUMNS, _strip)


def _strip(loops: Sequence[Any], realize: Any) -> Any:
    """The sums of a strip of positions; ValueError if the loops are not those of one."""
    block, lengths = realize.block, [int(loop.extent) for loop in loops]
    if len(lengths) != 7 or lengths[:2] != [1, 1] or lengths[3] != 1:
        raise ValueError("columns are not read strip by strip")
    zeros = [constant(0, "int32")] * len(loops)
    base = substitute(realize.iter_values, [loop.loop_var for loop in loops], zeros)
    strip = _Strip(block, base, lengths)
    written = [ir.Range.from_min_extent(*pair) for pair in zip(base[:5], lengths[:5], strict=True)]
    region = tirx.BufferRegion(strip.sums, written)
    return written_block("columns", [strip.data.source, strip.weights.source], region, strip.statements())


class _Strip:
    """The axes of its block are [n, y, x, block, lane, row, column]; base: the index at which it begins."""

    def __init__(self, block: Any, base: Sequence[Expression], lengths: Sequence[int]) -> None:
        self._base, self._variables = base, [variable.var for variable in block.iter_vars]
        self._positions, self._lanes, self._rows, self._columns = lengths[2], *lengths[4:]
        self._instruction = str(block.annotations[Hint.COLUMNS])
        self.sums = block.body.buffer
        factors = block.body.value.b
        self.data, self.weights = (cast.value for cast in (factors.a, factors.b))

    def statements(self) -> Iterator[Any]:
        """Column by column of the data; each goes to all sums that it is part of."""
        readers: dict[int, list[tuple[int, int]]] = {}
        position, tap = self._pitch(2), self._pitch(6)
        for x in range(self._positions):
            for column in range(self._columns):
                readers.setdefault(x * position + column * tap, []).append((x, column))
        begun: set[int] = set()
        for _, reading in sorted(readers.items()):
            for first in range(0, self._rows, DEPTH):
                made = self._joined(first, *reading[0])
                for x, column in reading:
                    yield self._add(x, column, first, made, x in begun)
                    begun.add(x)

    def _pitch(self, axis: int) -> int:
        """The elements of data between neighbours along an axis of the block."""
        unit = [constant(int(i == axis), "int32") for i in range(len(self._variables))]
        places = [
            ravel(substitute(self.data.indices, self._variables, at), self.data.source.shape)
            for at in (unit, [constant(0, "int32")] * len(unit))
        ]
        return int(places[0]) - int(places[1])

    def _joined(self, first: int, x: int, column: int) -> Expression:
        """Up to four bytes of a column in each lane, from row `first` on, as the factor of a dot."""
        joined = None
        for place, row in enumerate(range(first, min(first + DEPTH, self._rows))):
            at = [
                *self._base[:2],
                self._base[2] + x,
                *self._base[3:5],
                constant(row, "int32"),
                constant(column, "int32"),
            ]
            *outer, channel = substitute(self.data.indices, self._variables, at)
            held = tirx.BufferLoad(self.data.source, [*outer, tirx.Ramp(channel, 1, self._lanes)])
            byte = held.astype(f"int32x{self._lanes}")
            if place:
                byte = byte << tirx.Broadcast(constant(8 * place, "int32"), self._lanes)
            joined = byte if joined is None else joined | byte
        return tirx.reinterpret(f"int8x{self._lanes * DEPTH}", joined)

    def _add(self, x: int, column: int, first: int, joined: Expression, begun: bool) -> Any:
        """Adds a dot to the sums of a position, or begins them with it."""
        kind, zero = f"int32x{self._lanes}", constant(0, "int32")
        place = [*self._base[:2], self._base[2] + x, self._base[3], tirx.Ramp(zero, 1, self._lanes)]
        held = tirx.BufferLoad(self.sums, place) if begun else tirx.Broadcast(zero, self._lanes)
        at = [self._base[3], constant(first // DEPTH, "int32"), constant(column, "int32"), zero]
        factor = tirx.BufferLoad(self.weights.source, [*at, tirx.Ramp(zero, 1, self._lanes * DEPTH)])
        return tirx.BufferStore(
            self.sums, tirx.call_llvm_pure_intrin(kind, self._instruction, held, joined, factor), place
        )
