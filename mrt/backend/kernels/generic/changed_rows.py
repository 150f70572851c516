"""Functions that change some rows of a tensor where it lies: one test for each row, and nothing of those that stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from mrt.backend.tir.statements import serial, with_root


def changing_rows(function: Any, held: int, around: int) -> Any:
    """A function of one block that stores Select(is_new, new, old), changed to store what is new only.

    held: the place of the parameter that holds what is old: it is the last one, the result, from now on. around: how
    many axes there are rows along; is_new is the same for all of a row.
    """
    loops: list[Any] = []
    inner = function.body.block.body
    while isinstance(inner, tirx.For):
        loops, inner = [*loops, inner], inner.body
    block = inner.block
    axes, store = [axis.var for axis in block.iter_vars], block.body
    is_new, new = store.value.condition, store.value.true_value
    row = _within(loops[around:], axes[around:], tirx.BufferStore(store.buffer, new, store.indices))
    body = _within(loops[:around], axes[:around], tirx.IfThenElse(is_new, row, None))
    made = with_root(function, body).without_attr("global_symbol")
    return made.specialize({made.params[held]: made.params[-1]})


def _within(loops: Sequence[Any], variables: Sequence[Any], body: Any) -> Any:
    for loop, variable in reversed(list(zip(loops, variables, strict=True))):
        body = serial(variable, loop.extent, body)
    return body
