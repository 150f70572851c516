"""Products of two matrices that are both computed: the second is laid out for dots in the function that multiplies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tvm import te, tirx

from mrt.backend.kernels.dot_instructions import Dot, fitting_dot
from mrt.backend.kernels.dot_intrinsic import intrinsic_of
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.generic.dot_schedule import schedule_dots
from mrt.backend.kernels.generic.interleave_rows import interleaving
from mrt.backend.kernels.generic.turned_rows import WORDS, is_turning, turning
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import VECTOR, Storage, View
from mrt.backend.schedule.loops import extent, has_reduction
from mrt.backend.schedule.tilings import Choose
from mrt.backend.te.stages import Hint, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, ravel, unravel
from mrt.symbol import TensorType
from mrt.symbol.bounds import DTYPE_RANGES

Held = Callable[..., Expression]
"""What memory holds of a matrix, of (matrix, row, column)."""


def dot_of_matrices(data: str, weight: str, terms: int, accumulator: str, machine: Machine) -> Dot:
    """The fastest dot for sums of `terms` products of data and weights that may be all that their dtypes hold."""
    least, most = DTYPE_RANGES.get(weight, (0, 0))
    return fitting_dot(data, weight, terms * max(-least, most), accumulator, machine)


def matrix_products(left: View, right: View, form: DotForm) -> Callable[..., Expression]:
    """A function of (column, leading index..., row) that gives an element of left [..., M, K] right [..., K, N].

    The right matrices are laid out [matrix, block, K / depth, lane, depth]; rows of K beyond the last are 0, columns of
    N beyond the last are whatever stands there. What the offset of the data adds to a sum, the offset times the sum of
    a column, is counted by dots too and taken off.
    """
    dot, leading, rows = form.dot, left.shape[:-2], left.shape[-2]
    count, columns = math.prod(leading), right.shape[-1]
    blocks = -(-columns // VECTOR) * VECTOR // dot.lanes
    data = _rows(left, dot)
    weights = _laid_out(right, dot, blocks)
    step = te.reduce_axis((0, _steps(left.shape[-1], dot)), "step")
    within = [te.reduce_axis((0, dot.depth), "within")] if dot.depth > 1 else []
    intrinsic, depth = intrinsic_of(dot) if within else "", within[0] if within else 0

    def summed(held: Expression, matrix: Expression, block: Expression, lane: Expression) -> Expression:
        factor = weights(matrix, block, step, lane, *within)
        return te.sum(held.astype(dot.accumulator) * factor.astype(dot.accumulator), axis=[step, *within])

    def dots(matrix: Expression, row: Expression, block: Expression, lane: Expression) -> Expression:
        return summed(data(matrix, row, step * dot.depth + depth), matrix, block, lane)

    sums = stage((count, rows, blocks, dot.lanes), dots, "dots", dot=intrinsic, group_blocks=blocks, parts=1)
    added = None
    if dot.offset:
        offset = stage((dot.depth,), lambda _: constant(dot.offset, dot.data), "offset", matrix="")
        added = stage((count, blocks, dot.lanes), lambda *at: summed(offset(depth), *at), "added", matrix=intrinsic)

    def element(column: Expression, *at: Expression) -> Expression:
        block, lane = tirx.floordiv(column, dot.lanes), tirx.floormod(column, dot.lanes)
        matrix = ravel(at[:-1], leading)
        value = sums(matrix, at[-1], block, lane)
        return value - added(matrix, block, lane) if added is not None else value

    return element


def _steps(terms: int, dot: Dot) -> int:
    return -(-terms // dot.depth)


def _rows(left: View, dot: Dot) -> Held:
    """The left matrices as dots read them: in memory, or a copy of them."""
    leading, (rows, terms) = left.shape[:-2], left.shape[-2:]
    length = _steps(terms, dot) * dot.depth
    if _holds(left, dot.data, dot.offset) and left.length >= length:
        return _memory_of(left)
    held = replace(Storage.plain(TensorType(left.shape, left.dtype)), dtype=dot.data, offset=dot.offset)

    def body(matrix: Expression, row: Expression, k: Expression) -> Expression:
        value = held.encode(left(*unravel(matrix, leading), row, k))
        return value if length == terms else tirx.if_then_else(k < terms, value, constant(0, dot.data))

    copy = stage((math.prod(leading), rows, length), body, "rows", matrix="")
    return lambda *at: copy(*at)


def _holds(matrices: View, dtype: str, offset: int) -> bool:
    """Whether memory holds rows of the values + offset in a dtype."""
    storage = matrices.storage
    return (
        storage is not None
        and storage.order[-1] == len(matrices.shape) - 1
        and (storage.dtype, storage.offset) == (dtype, offset)
    )


def _memory_of(matrices: View) -> Held:
    def held(matrix: Expression, row: Expression, column: Expression) -> Expression:
        if matrices.storage is None:
            raise ValueError("a matrix that is computed where it is read has no memory")
        return matrices.tensor(*matrices.storage.places([*unravel(matrix, matrices.shape[:-2]), row, column]))

    return held


def _laid_out(right: View, dot: Dot, blocks: int) -> Tensor:
    """The right matrices as [matrix, block, step, lane, depth]; without the last axis where a dot is of one element."""
    leading, (terms, columns) = right.shape[:-2], right.shape[-2:]
    count, steps, lanes = math.prod(leading), _steps(terms, dot), dot.lanes
    last = len(right.shape) - 1
    reaches = right.near == last and right.storage is not None and right.length >= blocks * lanes

    def value(matrix: Expression, k: Expression, column: Expression) -> Expression:
        column = column if reaches or columns == blocks * lanes else te.min(column, columns - 1)
        found = right(*unravel(matrix, leading), k, column).astype(dot.weight)
        return found if steps * dot.depth == terms else tirx.if_then_else(k < terms, found, constant(0, dot.weight))

    if dot.depth == 1:
        return stage(
            (count, blocks, steps, lanes),
            lambda matrix, block, step, lane: value(matrix, step, block * lanes + lane),
            "weights",
            matrix="",
        )
    held, intrinsic = value, ""
    if right.near == last:
        intrinsic = interleaving(dot)
        lies_so = reaches and terms == steps * dot.depth and _holds(right, dot.weight, 0)
        copied = (count, steps * dot.depth, blocks * lanes)
        held = _memory_of(right) if lies_so else stage(copied, value, "columns", matrix="")
    elif steps % WORDS == 0:
        intrinsic = turning(dot)
        held = _turned_copy(value, (count, blocks * lanes, steps * dot.depth))
    return stage(
        (count, blocks, steps, lanes, dot.depth),
        lambda matrix, block, step, lane, k: held(matrix, step * dot.depth + k, block * lanes + lane),
        "weights",
        matrix=intrinsic,
    )


def _turned_copy(value: Held, shape: tuple[int, int, int]) -> Held:
    """A copy of the right matrices, [matrix, column, row], read as [matrix, row, column]."""
    copy = stage(shape, lambda matrix, column, row: value(matrix, row, column), "columns", matrix="")
    return lambda matrix, row, column: copy(matrix, column, row)


def schedule_matrix_products(
    plan: Any, prepared: Sequence[Any], sums: Any, output: Any, machine: Machine, choose: Choose
) -> None:
    """All that a matrix needs is made, then its dots are summed; several matrices are told apart by the outermost loop.

    prepared: the blocks that are marked by `Hint.MATRIX`, in order.
    """
    *leading, _, _ = plan.get_loops(output)
    several = [loop for loop in leading if extent(plan, loop) > 1]
    if several:
        plan.fuse(*leading)
    schedule_dots(plan, sums, output, machine, own=prepared if several else (), choose=choose)
    for block in prepared:
        _schedule_prepared(plan, block)


def _schedule_prepared(plan: Any, block: Any) -> None:
    intrinsic = str(plan.get(block).annotations[Hint.MATRIX])
    loops = plan.get_loops(block)
    if has_reduction(plan, block):
        lane, step, within = loops[-3:]
        plan.reorder(step, lane, within)
        plan.vectorize(plan.get_loops(plan.decompose_reduction(block, step))[-1])
        plan.tensorize(lane, intrinsic)
    elif intrinsic:
        if is_turning(intrinsic):
            _, step = plan.split(loops[-3], [None, WORDS])
            plan.tensorize(step, intrinsic)
        else:
            plan.tensorize(loops[-2], intrinsic)
    elif extent(plan, loops[-1]) % VECTOR == 0:
        _, vector = plan.split(loops[-1], [None, VECTOR])
        plan.vectorize(vector)
    elif extent(plan, loops[-1]) <= VECTOR:
        plan.vectorize(loops[-1])
