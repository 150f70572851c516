"""Loops that one core runs by itself: all of a function, or those that threads would take longer for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir, tirx

from mrt.backend.machine import Machine
from mrt.backend.schedule.cost import Cost
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import ravel
from mrt.backend.tir.statements import around, loop_around, serial, with_root, with_values

WORTH_THREADS = 16_000
"""Cycles from which on threads gain: 4.6 µs at 3.5 GHz. To share a loop takes about 1 µs where they wait for it, and
what each writes is in its own caches, where what follows does not find all of it."""


def without_threads(function: Any) -> Any:
    """The scheduled PrimFunc with plain loops for its parallel ones, so that no threads are started."""
    return _rewritten(function, lambda loops: False)


def with_threads_that_pay(function: Any, machine: Machine) -> Any:
    """The scheduled PrimFunc with plain loops for parallel ones of so little work that one core does it in less time.

    What is computed does not depend on it.
    """
    cost = Cost(function, machine, WORTH_THREADS)
    return _rewritten(function, cost.reaches)


def _rewritten(function: Any, stays: Callable[[Any], bool]) -> Any:
    """The function with plain loops for those parallel ones that do not stay so."""
    return with_root(function, _serial(function.body.block.body, stays))


def _serial(statement: Any, stays: Callable[[Any], bool]) -> Any:
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_serial(each, stays) for each in statement.seq])
    if isinstance(statement, tirx.AttrStmt):
        # Where threads would start.
        return statement if stays(statement.body) else _serial(statement.body, lambda loops: False)
    if isinstance(statement, s_tir.SBlockRealize) and not statement.iter_values:
        return around(statement, _serial(statement.block.body, stays))
    if not isinstance(statement, tirx.For):
        return statement
    if statement.kind != tirx.ForKind.PARALLEL:
        return loop_around(statement, _serial(statement.body, stays))
    if stays(statement):
        return statement
    return _apart(statement, _serial(statement.body, stays))


def _apart(loop: Any, body: Any) -> Any:
    """The loops that were fused for threads to share them.

    TVM and LLVM see more of indices that are variables of loops than of i mod n and i // n.
    """
    turns = [int(count) for count in loop.annotations[Hint.FUSED]]
    places = [tirx.Var(f"place{axis}", "int32") for axis in range(len(turns))]
    body = with_values(body, {loop.loop_var: ravel(places, turns)})
    for place, count in zip(reversed(places), reversed(turns), strict=True):
        body = serial(place, count, body)
    return body
