"""Copies that exchange axes: tiles of neighbours along both are turned in registers, where LLVM would gather elements.

Of a tensor that is read along one axis and written along another, neighbours of a row that is written lie far from each
other in what is read. As many of its rows as a tile is wide are loaded by vectors, and `turned` into those that are
stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import ir, s_tir, sym, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_blocks, without_marks
from mrt.backend.kernels.generic.turned_rows import turned
from mrt.backend.schedule.cost import expressions_of
from mrt.backend.schedule.loops import extent, parallelize
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import CHOICE, Expression, constant, dtype_of, substitute
from mrt.backend.tir.statements import bound, plain_block, sequence, serial, vectorized
from mrt.symbol.passes import Property

WIDTH = 16
"""The most elements along the axis that is written: a vector of int32, and one of bytes that shuffles are quick in."""
LEAST_WIDTH = 4
ROW_BYTES = 16
"""The most bytes along the axis that is read, which `turned` interleaves within each 128 bits."""


def turned_read(block: Any) -> tuple[Any, Any] | None:
    """What a block reads across the order of what it writes: the load, and the axis of the block along which it lies.

    None where there is not exactly one such tensor, or what else is read does not lie along the axis that is written.
    """
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not block.iter_vars:
        return None
    written = block.iter_vars[-1].var
    found: list[tuple[Any, Any]] = []
    for load in _loads(store.value):
        steps = [_step(index, written) for index in load.indices]
        if None in steps:
            return None
        if steps[-1] or not any(steps):
            if steps[-1] not in (0, 1) or any(steps[:-1]):
                return None
            continue
        across = [each.var for each in block.iter_vars[:-1] if _step(load.indices[-1], each.var) == 1]
        if len(across) != 1 or any(ir.structural_equal(load, other) for other, _ in found):
            return None
        found.append((load, across[0]))
    return found[0] if len(found) == 1 else None


def schedule_turned(plan: Any, block: Any, across: Any) -> None:
    """The axis that is read along goes to just before the one that is written, in tiles where these divide it."""
    loops = plan.get_loops(block)
    axes = [each.var for each in plan.get(block).iter_vars]
    row = loops[next(i for i, axis in enumerate(axes) if axis.same_as(across))]
    others, written = [loop for loop in loops[:-1] if loop is not row], loops[-1]
    load, _ = turned_read(plan.get(block)) or (None, None)
    tiling = Tiling.of(dtype_of(load), extent(plan, row), extent(plan, written))
    if tiling.rows < extent(plan, row) and extent(plan, row) % tiling.rows == 0:
        tiles, row = plan.split(row, [None, tiling.rows])
        others.append(tiles)
    plan.reorder(*others, row, written)
    plan.annotate(block, Hint.TURNED, 1)
    parallelize(plan, others)


@dataclass(frozen=True)
class Tiling:
    """rows, width: the elements of a tile along the axis that is read, and along the one that is written."""

    rows: int
    width: int

    @classmethod
    def of(cls, dtype: str, rows: int, width: int) -> Tiling:
        """The largest for axes of such lengths: powers of two, of which the width is a multiple of the rows."""
        wide = _power_of_two(min(width, WIDTH))
        return cls(_power_of_two(min(rows, ROW_BYTES // np.dtype(dtype).itemsize, wide)), wide)


def _power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1
