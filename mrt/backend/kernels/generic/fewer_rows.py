"""The last tile of rows, where their number is no multiple of a tile: the same statements, of fewer rows.

A schedule asks for every row whether there is one. So that vectors of rows are computed, it is asked once for a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_loops, marks_but, without_marks
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import constant
from mrt.backend.tir.statements import loop_around, with_values
from mrt.symbol.passes import Property


@dataclass(frozen=True)
class FewerRows(KernelPass):
    """Writes what a loop over tiles does twice, for whole tiles and for the last one, which has fewer rows.

    The loop's mark is the rows of a tile, and in all.
    """

    marks: ClassVar[tuple[str, ...]] = (Hint.FEWER_ROWS,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.FEWER_ROWS),)

    def lower(self, function: Any) -> Any:
        made = lower_loops(function, Hint.FEWER_ROWS, _told_apart)
        # Both kinds of tiles have loops and values of their own, which bear the same names.
        return s_tir.transform.ConvertSSA()(tvm.IRModule({"main": made}))["main"]


def _told_apart(loop: Any) -> Any:
    tile, rows = (int(each) for each in loop.annotations[Hint.FEWER_ROWS])
    whole, _ = _Tile(loop.loop_var, tile, tile).of(loop.body)
    fewer, has_last = _Tile(loop.loop_var, tile, rows % tile).of(loop.body)
    if has_last is None:
        raise ValueError("a schedule asks of no row whether there is one")
    return loop_around(loop, tirx.IfThenElse(has_last, whole, fewer), marks=marks_but(loop, Hint.FEWER_ROWS))


@dataclass(frozen=True, eq=False)
class _Tile:
    """number: the variable of the loop over tiles. length: turns of the loops over rows. rows: how many there are."""

    number: Any
    length: int
    rows: int

    def of(self, statement: Any) -> tuple[Any, Any]:
        """The statement with loops over `rows`, without the question whether there is a row; and that question, asked
        of the last one of `length`, None where the statement does not ask it."""
        if isinstance(statement, tirx.SeqStmt):
            made, asked = zip(*map(self.of, statement.seq), strict=True)
            return tirx.SeqStmt(list(made)), next((each for each in asked if each is not None), None)
        if not isinstance(statement, tirx.For):
            return self._block(statement)
        body, asked = self.of(statement.body)
        variable = statement.loop_var
        if asked is None or int(statement.extent) != self.length or not _depends(asked, variable):
            return loop_around(statement, body), asked
        marks, rows = statement.annotations, constant(self.rows, "int32")
        fewer = tirx.For(variable, statement.min, rows, statement.kind, body, annotations=marks)
        return fewer, _at(asked, variable, self.length - 1)

    def _block(self, realize: Any) -> tuple[Any, Any]:
        terms = list(_terms(realize.predicate))
        asked = [term for term in terms if _depends(term, self.number)]
        others = [term for term in terms if not _depends(term, self.number)]
        predicate = reduce(tirx.And, others) if others else True
        return s_tir.SBlockRealize(realize.iter_values, predicate, realize.block), next(iter(asked), None)


def _terms(condition: Any) -> Iterator[Any]:
    if isinstance(condition, tirx.And):
        yield from _terms(condition.a)
        yield from _terms(condition.b)
    else:
        yield condition


def _depends(condition: Any, variable: Any) -> bool:
    return not tvm_ffi.structural_equal(_at(condition, variable, 0), _at(condition, variable, 1))


def _at(condition: Any, variable: Any, value: int) -> Any:
    """The condition with a number in place of a variable."""
    return with_values(tirx.Evaluate(condition), {variable: constant(value, "int32")}).value
