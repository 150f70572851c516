"""Passes on scheduled PrimFuncs: what marks in loops and blocks ask for is written statement by statement."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from tvm import s_tir, tirx

from mrt.backend.tir.statements import loop_around, nested, sequence, whole_region, with_root
from mrt.symbol.passes import BasePass, BaseResult, Property

Lower = Callable[[Sequence[Any], Any], Any]
"""Of the loops around a block and its realization, gives the statement that stands for them."""


@dataclass(frozen=True)
class KernelPass(BasePass[Any]):
    """Base of passes on scheduled PrimFuncs. marks: the annotations of loops and blocks that it lowers."""

    marks: ClassVar[tuple[str, ...]]

    def run(self, function: Any, /) -> BaseResult[Any]:
        return BaseResult(function if marks_of(function).isdisjoint(self.marks) else self.lower(function))

    @abstractmethod
    def lower(self, function: Any) -> Any:
        """The function, which has such a mark, without one."""


def without_marks(*marks: str) -> Property:
    """The property that no loop or block of a PrimFunc has such an annotation."""

    def violation(function: Any) -> str:
        return next(iter(marks_of(function).intersection(marks)), "")

    return Property(f"no {' or '.join(marks)} left", violation)


def marks_but(node: Any, mark: str) -> dict[str, Any]:
    """The annotations of a loop or a block, without one."""
    return {name: value for name, value in node.annotations.items() if name != mark}


@lru_cache(maxsize=4)
def marks_of(function: Any) -> frozenset[str]:
    """The annotations of a PrimFunc's loops, and of blocks that are not within others.

    Most passes change nothing, and the next one asks for the same.
    """
    return frozenset(_marks(function.body.block.body))


def _marks(statement: Any) -> Iterator[str]:
    if isinstance(statement, tirx.SeqStmt):
        for each in statement.seq:
            yield from _marks(each)
    elif isinstance(statement, tirx.For):
        yield from map(str, statement.annotations)
        yield from _marks(statement.body)
    elif isinstance(statement, s_tir.SBlockRealize):
        yield from map(str, statement.block.annotations)


def lower_blocks(function: Any, mark: str, lower: Lower) -> Any:
    """The function with what `lower` gives in place of every block that has the annotation `mark`.

    The loops that it is given are those within the last that has something else in it, too.
    """
    return with_root(function, _with_blocks(function.body.block.body, mark, lower))


def _with_blocks(statement: Any, mark: str, lower: Lower) -> Any:
    loops: list[Any] = []
    inner = statement
    while isinstance(inner, tirx.For):
        loops, inner = [*loops, inner], inner.body
    if isinstance(inner, s_tir.SBlockRealize):
        return lower(loops, inner) if mark in inner.block.annotations else statement
    if isinstance(inner, tirx.SeqStmt):
        inner = tirx.SeqStmt([_with_blocks(each, mark, lower) for each in inner.seq])
    return nested(loops, inner)


def lower_loops(function: Any, mark: str, lower: Callable[[Any], Any]) -> Any:
    """The function with what `lower` gives in place of every loop that has the annotation `mark`."""
    return with_root(function, _with_loops(function.body.block.body, mark, lower))


def _with_loops(statement: Any, mark: str, lower: Callable[[Any], Any]) -> Any:
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_with_loops(each, mark, lower) for each in statement.seq])
    if not isinstance(statement, tirx.For):
        return statement
    if mark in statement.annotations:
        return lower(statement)
    return loop_around(statement, _with_loops(statement.body, mark, lower))


def statement_block(
    name: str, reads: Sequence[Any], region: Any, statements: Iterable[Any], own: Any = None, wrote: Any = None
) -> Any:
    """Statements that read the tensors `reads` anywhere, and the region `own`, if any, and write `region`.

    wrote: one more region that they write, if any.
    """
    read = [whole_region(each) for each in reads]
    # Else TVM would keep memory only for the elements whose addresses it sees.
    marks = {"explicit_write_region": [0]} | ({"explicit_read_region": [len(read)]} if own is not None else {})
    made = s_tir.SBlock(
        [],
        [*read, own] if own is not None else read,
        [region] if wrote is None else [region, wrote],
        name,
        sequence(statements),
        annotations=marks,
    )
    return s_tir.SBlockRealize([], True, made)
