"""The transforms of Winograd's algorithms (`winograd.py`) of a vector of channels of a tile.

The matrices are applied along one axis, then along the other; what their lines have in common is computed once. Where a
window is more than registers hold, each is a loop, and memory holds what the first one made. Written out it would be
six to nine times the code, which goes through memory, too: it runs no faster, and took half as long again to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, sym, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_blocks, statement_block, without_marks
from mrt.backend.kernels.generic.winograd_algorithms import F2, F2_OF_STRIDE_2, F4, F4_OF_STRIDE_2
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant, dtype_of, substitute
from mrt.backend.tir.statements import (
    ROLLED,
    bound,
    nested,
    plain_block,
    sequence,
    serial,
    unrolled,
    vectorized,
    whole_region,
)
from mrt.symbol.passes import Property

HELD = 32
"""Vectors of the largest window whose transforms are written out: registers hold most of it, or all."""
Hold = Callable[[Expression], Expression]
"""Gives the variable that an expression is bound to."""
Lines = Callable[[Sequence[Expression], Hold], list[Expression]]
"""Gives a matrix times a column of elements."""


@dataclass(frozen=True)
class WinogradTransforms(KernelPass):
    """The blocks that apply D and A, whose loops over results, a vector of channels, and the elements of a window are
    the last. The marks are the points along an axis of a tile."""

    marks: ClassVar[tuple[str, ...]] = (Hint.WINOGRAD_DATA, Hint.WINOGRAD_RESULTS)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(*marks),)

    def lower(self, function: Any) -> Any:
        made = lower_blocks(function, Hint.WINOGRAD_DATA, _of_data)
        return lower_blocks(made, Hint.WINOGRAD_RESULTS, _of_results)


def _of_data(loops: Sequence[Any], realize: Any) -> Any:
    *outer, point, lane, row, column = loops
    lines, _ = LINES[int(realize.block.annotations[Hint.WINOGRAD_DATA])]
    return nested(outer, _Transform(realize, [point], lane, [row, column]).block(lines))


def _of_results(loops: Sequence[Any], realize: Any) -> Any:
    *outer, line, column, lane, point_row, point_column = loops
    _, lines = LINES[int(realize.block.annotations[Hint.WINOGRAD_RESULTS])]
    return nested(outer, _Transform(realize, [line, column], lane, [point_row, point_column]).block(lines))


def data_lines_of_4(d: Sequence[Expression], hold: Hold) -> list[Expression]:
    """D of `F4` times a column."""
    four = constant(4, dtype_of(d[0]))
    inner, outer = hold(d[3] - d[1]), hold(d[4] - d[2])
    odd, even, twice = hold(d[3] - d[1] * four), hold(d[4] - d[2] * four), hold(inner + inner)
    first, last = (d[0] - d[2]) * four + outer, d[5] - d[3] - twice - twice
    return [first, even + odd, even - odd, outer + twice, outer - twice, last]


def result_lines_of_4(m: Sequence[Expression], hold: Hold) -> list[Expression]:
    """A of `F4` times a column."""
    four, eight = (constant(n, dtype_of(m[0])) for n in (4, 8))
    near, far = hold(m[1] + m[2]), hold(m[3] + m[4])
    near_difference, far_difference = hold(m[1] - m[2]), hold(m[3] - m[4])
    return [
        m[0] + near + far,
        near_difference + far_difference + far_difference,
        near + far * four,
        near_difference + (far_difference + m[5]) * eight,
    ]


def data_lines_of_2(d: Sequence[Expression], hold: Hold) -> list[Expression]:
    """D of `F2` times a column."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def result_lines_of_2(m: Sequence[Expression], hold: Hold) -> list[Expression]:
    """A of `F2` times a column."""
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def strided_data_lines_of_4(d: Sequence[Expression], hold: Hold) -> list[Expression]:
    """D of `F4_OF_STRIDE_2` times a column."""
    even, odd = d[::2], d[1::2]
    outer, inner, first = hold(even[3] - even[1]), hold(even[1] - even[2]), hold(even[0] - even[2])
    last = even[4] - even[2] - outer - outer
    return [first + first + outer, outer - even[1] - even[2], outer + inner + inner + inner, outer, last, *odd]


def strided_result_lines_of_4(m: Sequence[Expression], hold: Hold) -> list[Expression]:
    """A of `F4_OF_STRIDE_2` times a column."""
    two, four, eight = (constant(n, dtype_of(m[0])) for n in (2, 4, 8))
    near, difference = hold(m[1] + m[2]), hold(m[1] - m[2])
    return [
        m[0] + near + m[3] + m[5],
        difference + m[3] * two + m[6],
        near + m[3] * four + m[7],
        difference + m[3] * eight + m[4] + m[8],
    ]


def strided_data_lines_of_2(d: Sequence[Expression], hold: Hold) -> list[Expression]:
    """D of `F2_OF_STRIDE_2` times a column."""
    return [d[0] - d[2], d[2], d[4] - d[2], d[1], d[3]]


def strided_result_lines_of_2(m: Sequence[Expression], hold: Hold) -> list[Expression]:
    """A of `F2_OF_STRIDE_2` times a column."""
    return [m[0] + m[1] + m[3], m[1] + m[2] + m[4]]


LINES: dict[int, tuple[Lines, Lines]] = {
    F4.side: (data_lines_of_4, result_lines_of_4),
    F2.side: (data_lines_of_2, result_lines_of_2),
    F4_OF_STRIDE_2.side: (strided_data_lines_of_4, strided_result_lines_of_4),
    F2_OF_STRIDE_2.side: (strided_data_lines_of_2, strided_result_lines_of_2),
}
"""D and A times a column, by the points along an axis of a tile."""


class _Transform:
    """A block that adds up products of constants and the elements of a window.

    results: the loops that say which result. lane: over a vector of channels. window: over the elements.
    """

    def __init__(self, realize: Any, results: Sequence[Any], lane: Any, window: Sequence[Any]) -> None:
        self._realize, self._results, self._lane, self._window = realize, results, lane, window
        self._bound: list[Any] = []

    def block(self, lines: Lines) -> Any:
        """All results, by two loops: over the columns of the window, and over the rows that these give."""
        halfway, columns = self._into_halves(lines)
        whole = whole_region(halfway)
        reads = [each.source for each in self._realize.block.reads]
        made = [
            statement_block("columns", reads, whole, [columns]),
            statement_block("rows", [halfway], self._written(), [self._from_halves(lines, halfway)]),
        ]
        return plain_block("transform", sequence(made), [halfway])

    def _into_halves(self, lines: Lines) -> tuple[Any, Any]:
        """Memory for the matrix times the columns of a window, and the loop that fills it."""
        column, (rows, columns) = tirx.Var("column", "int32"), self._size
        (element,) = self._in_loops([self._realize.block.body.value.b.b])
        window = [self._bind(*_at([element], self._window, (constant(i, "int32"), column))) for i in range(rows)]
        made = lines(window, self._bind)
        halfway = tirx.decl_buffer((len(made), columns, int(self._lane.extent)), dtype_of(element), "halfway")
        at = [column, self._lane.loop_var]
        stores = [tirx.BufferStore(halfway, value, [i, *at]) for i, value in enumerate(made)]
        return halfway, self._loop(column, columns, stores)

    def _from_halves(self, lines: Lines, halfway: Any) -> Any:
        """The loop over rows of what is `halfway`, of each of which the matrix makes a row of results."""
        store, row = self._realize.block.body, tirx.Var("row", "int32")
        count, columns, _ = (int(length) for length in halfway.shape)
        lane = self._lane.loop_var
        made = lines([self._bind(tirx.BufferLoad(halfway, [row, j, lane])) for j in range(columns)], self._bind)
        indices, stores = self._in_loops(store.indices), []
        for i, value in enumerate(made):
            number = constant(i, "int32")
            place = [row * len(made) + number] if len(self._results) == 1 else [row, number]
            stores.append(tirx.BufferStore(store.buffer, value, _at(indices, self._results, place)))
        return self._loop(row, count, stores)

    @property
    def _size(self) -> tuple[int, int]:
        """Rows and columns of the window."""
        rows, columns = (int(loop.extent) for loop in self._window)
        return rows, columns

    def _loop(self, variable: Any, turns: int, stores: Sequence[Any]) -> Any:
        """A loop over vectors of channels of statements, behind what they use."""
        body = vectorized(self._lane.loop_var, int(self._lane.extent), sequence([*self._bindings(), *stores]))
        rows, columns = self._size
        return serial(variable, turns, body, ROLLED) if rows * columns > HELD else unrolled(variable, turns, body)

    def _bind(self, value: Expression) -> Expression:
        self._bound.append(bound("held", value))
        return self._bound[-1].var

    def _bindings(self) -> list[Any]:
        """Those that were made since it was last called."""
        bound, self._bound = self._bound, []
        return bound

    def _in_loops(self, values: Sequence[Expression]) -> list[Expression]:
        """Expressions of the block's axes as ones of the loops around it."""
        return substitute(values, [each.var for each in self._realize.block.iter_vars], self._realize.iter_values)

    def _written(self) -> Any:
        """The region of all results."""
        store, loops = self._realize.block.body, [*self._results, self._lane]
        ends = [int(loop.extent) - 1 for loop in loops]
        indices = self._in_loops(store.indices)
        places = ([constant(turn, "int32") for turn in turns] for turns in ([0] * len(loops), ends))
        first, last = (_at(indices, loops, turns) for turns in places)
        analyzer = sym.Analyzer()
        lengths = [int(analyzer.simplify(b - a)) + 1 for a, b in zip(first, last, strict=True)]
        ranges = [ir.Range.from_min_extent(a, length) for a, length in zip(first, lengths, strict=True)]
        return tirx.BufferRegion(store.buffer, ranges)


def _at(values: Sequence[Expression], loops: Sequence[Any], places: Sequence[Expression]) -> list[Expression]:
    """Expressions of loops where these are at such turns."""
    return substitute(values, [loop.loop_var for loop in loops], places)
