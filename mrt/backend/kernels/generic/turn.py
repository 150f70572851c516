"""What a block reads across the order in which it writes: which loops, split how, follow the memory of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from tvm import ir, s_tir, sym, tirx

from mrt.backend.schedule.cost import expressions_of, parts_of
from mrt.backend.schedule.loops import SPATIAL
from mrt.backend.tir.expressions import CHOICE, Expression, dtype_of, ravel, substitute

WIDTH = 16
"""The most elements of a tile along the memory that is written: a vector of int32."""
LEAST_WIDTH, LEAST_ROWS = 8, 4
"""Of axes that are shorter LLVM makes vectors of its own."""
ROW_BYTES = 16
"""The most bytes of a tile along the memory that is read: shuffles within 128 bits turn them."""


@dataclass(frozen=True)
class Turn:
    """load: what a block reads across the order in which it writes, by the block's axes. parts: for each loop, the
    lengths of those that it is split into, the outermost first, so that each goes on by equal steps in memory.

    row: which of all these follows the memory that is read; the last one follows the memory that is written. count: of
    the places of that one that are computed; what is behind them is padding.
    """

    load: Any
    parts: tuple[tuple[int, ...], ...]
    row: int
    count: int

    @property
    def lengths(self) -> list[int]:
        """Of all loops, once they are split."""
        return [length for parts in self.parts for length in parts]

    @property
    def rows(self) -> int:
        """Places of a tile along the memory that is read: a power of two that divides the width."""
        size = np.dtype(dtype_of(self.load)).itemsize
        return _power_of_two(min(self.lengths[self.row], ROW_BYTES // size, self.width))

    @property
    def width(self) -> int:
        """Places of a tile along the memory that is written, a power of two."""
        return _power_of_two(min(self.count, WIDTH))


def turn_of(function: Any) -> Turn | None:
    """What the only block of a PrimFunc that is not scheduled reads so.

    None where it is not exactly one tensor, axes are short, or there are several blocks.
    """
    loops: list[Any] = []
    inner = function.body.block.body
    while isinstance(inner, tirx.For):
        loops, inner = [*loops, inner], inner.body
    is_block = isinstance(inner, s_tir.SBlockRealize) and isinstance(inner.block.body, tirx.BufferStore)
    if not loops or not is_block or any(int(axis.iter_type) != SPATIAL for axis in inner.block.iter_vars):
        return None
    found = turn_within(loops, inner)
    return found if found and found.count >= LEAST_WIDTH and found.lengths[found.row] >= LEAST_ROWS else None


def turn_within(loops: Sequence[Any], realize: Any, outer: Sequence[Any] = ()) -> Turn | None:
    """The same of a block within loops; None where it is not exactly one tensor. outer: loops around these."""
    block = realize.block
    choices = [each for each in expressions_of(block) if isinstance(each, ir.Call) and each.op.name == CHOICE]
    count = _computed(choices, block)
    if count is None:
        return None
    loads = [each for each in expressions_of(block) if isinstance(each, ir.TensorLoad)]
    axes = [each.var for each in block.iter_vars]
    places = substitute([ravel(e.indices, e.source.shape) for e in loads], axes, realize.iter_values) if loads else []
    parts = tuple(_parts(loop, places) for loop in loops)
    if count and len(parts[-1]) > 1:
        return None
    steps = _steps(loops, parts, places, outer)
    across = [at for at, found in enumerate(steps) if found[-1] not in (0, 1)]
    if len(across) != 1 or steps[across[0]].count(1) != 1 or None in steps[across[0]]:
        return None
    return Turn(loads[across[0]], parts, steps[across[0]].index(1), count or parts[-1][-1])


def padding(value: Expression) -> Expression | None:
    """What is stored behind all that is computed, if the value that a block stores tells these apart."""
    return value.args[2] if isinstance(value, ir.Call) and value.op.name == CHOICE else None


def _computed(choices: Sequence[Any], block: Any) -> int | None:
    """How many places of the last axis are computed, where the value begins by asking; 0: all. None: others are asked
    for."""
    if not choices:
        return 0
    condition, _, other = choices[0].args
    is_guard = len(choices) == 1 and choices[0].same_as(block.body.value) and isinstance(condition, tirx.LT)
    is_guard = is_guard and not any(isinstance(each, ir.TensorLoad) for each in parts_of(other))
    is_last = is_guard and condition.a.same_as(block.iter_vars[-1].var) and isinstance(condition.b, tirx.IntImm)
    return int(condition.b) if is_last else None


def _parts(loop: Any, places: Sequence[Expression]) -> tuple[int, ...]:
    """The lengths of the loops that one is split into where the places in memory divide its variable."""
    length = int(loop.extent)
    cuts = sorted({cut for place in places for cut in _cuts(place, loop.loop_var) if 1 < cut < length} | {1, length})
    if length == 1 or any(outer % inner for inner, outer in pairwise(cuts)):
        return (length,)
    return tuple(outer // inner for inner, outer in reversed([*pairwise(cuts)]))


def _cuts(value: Expression, variable: Any) -> Iterator[int]:
    """The multiples of a variable's steps after which a quotient or a remainder of it changes or begins again."""
    if isinstance(value, (tirx.FloorDiv, tirx.FloorMod)) and isinstance(value.b, tirx.IntImm):
        unit, inner = int(value.b), value.a
        while isinstance(inner, tirx.FloorDiv) and isinstance(inner.b, tirx.IntImm):
            unit, inner = unit * int(inner.b), inner.a
        if inner.same_as(variable):
            yield unit
    for side in ("a", "b"):
        if hasattr(value, side):
            yield from _cuts(getattr(value, side), variable)


def _steps(
    loops: Sequence[Any], parts: Sequence[tuple[int, ...]], places: Sequence[Expression], outer: Sequence[Any]
) -> list[list[int | None]]:
    """For each place in memory, how far each part of the loops goes on in it; None where its steps are not equal."""
    analyzer = sym.Analyzer()
    for loop in outer:
        analyzer.bind(loop.loop_var, ir.Range(0, int(loop.extent)))
    variables, values = [], []
    for lengths in parts:
        own = [tirx.Var("part", "int32") for _ in lengths]
        for variable, length in zip(own, lengths, strict=True):
            analyzer.bind(variable, ir.Range(0, length))
        variables += own
        values.append(sum(variable * prod(lengths[at + 1 :]) for at, variable in enumerate(own)))
    split = [analyzer.simplify(each) for each in substitute(places, [loop.loop_var for loop in loops], values)]

    def step(place: Expression, variable: Any) -> int | None:
        found = analyzer.simplify(substitute([place], [variable], [variable + 1])[0] - place)
        return int(found) if isinstance(found, tirx.IntImm) else None

    return [[step(place, variable) for variable in variables] for place in split]


def _power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1
