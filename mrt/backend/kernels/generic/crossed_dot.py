"""Two steps of a dot by one product, where CPUs add in more units than they multiply in.

    x1 w1 + x2 w2 = (x1 + w2) (x2 + w1) - x1 x2 - w1 w2

What is taken off belongs to the data or to the weights alone: the one is summed once for each position, the other when
weights are packed, and sums begin with both. Half of the multiplications become additions of int16. All is exact.

From: S. Winograd, A New Algorithm for Inner Product, IEEE Transactions on Computers C-17 (1968).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.kernels.tensor_intrinsic import Buffer, Part, in_each_lane, loaded, stored, tensor_intrinsic
from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import SHORT_ROW, parallelize, register_tile, split_loops
from mrt.backend.te.operands import Surroundings
from mrt.backend.te.stages import Hint, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, llvm_call, shuffled
from mrt.symbol import Array, Interval
from mrt.symbol.types import INT32_MAX

STEPS = 2
"""That are crossed."""
FEWEST_POSITIONS, FEWEST_OUTPUTS, FEWEST_TERMS = 4, 128, 64
"""Of fewer rows, weights take as long to come as products take. Of fewer output channels, or fewer terms of a sum, what
is taken off takes as long as is saved, on Zen 3."""
FULL_TILE = 8
"""Sums of a tile of crossed dots in 16 registers."""
PAIRS = {8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
"""By so many steps of the data, each of two channels: what multiplies neighbours with each other."""


def crosses(weight: Array, dot: Dot, depth: int, flat: bool, surroundings: Surroundings) -> bool:
    """Whether the sums of a weight (O, I, taps...) over `depth` channels in memory are crossed: where it pays, and no
    sum of two factors can leave 16 bits, nor one of products 32.

    flat: whether all positions are a row.
    """
    bounds, positions, machine = surroundings.bounds, surroundings.walk.positions, surroundings.machine
    if dot.formed_by is None or not dot.formed_by.crosses or dot.parts > 1 or depth != weight.shape[1]:
        return False
    count, terms = math.prod(positions), weight[0].size
    if count < FEWEST_POSITIONS or len(weight) < FEWEST_OUTPUTS or terms < FEWEST_TERMS or not pair_steps(depth, dot):
        return False
    row, may_jam = count if flat else positions[-1], flat or count <= SHORT_ROW
    if not _has_tiles(row, len(weight) // dot.lanes, terms // dot.depth, may_jam, machine):
        return False
    factors = _most(bounds[0]) + max(int(weight.max()), -int(weight.min()))
    # Of two terms, products that are added are that squared at most, and so is what is taken off for those to come.
    # Terms are 8 or more, so that the factors fit 16 bits, too.
    most = terms // STEPS * factors**2 + (_most(bounds[2]) if len(bounds) > 2 else 0)
    return bool(most <= INT32_MAX)


def _has_tiles(row: int, blocks: int, steps: int, may_jam: bool, machine: Machine) -> bool:
    """Whether equal tiles of rows have as many sums as those of other dots, several positions each.

    Else a sum loads more, which takes as long as is saved. Where both must be jammed (see `UnrollAndJam`), crossed dots
    gain if `may_jam`: of maps that are one row, or small.
    """
    tile, held = register_tile(row, blocks, steps, machine, crossed=True)
    direct = math.prod(register_tile(row, blocks, steps, machine))
    return (tile > 1 and tile * held >= direct) or (may_jam and direct < FULL_TILE)


def _most(bounds: Interval) -> int:
    """The largest absolute value."""
    return max(abs(int(bounds.min)), abs(int(bounds.max)))


def pair_steps(depth: int, dot: Dot) -> int:
    """How many steps of so many channels are multiplied with each other at once; 0 where some would be left over."""
    return next((steps for steps in PAIRS if depth % (steps * dot.depth) == 0), 0)


def crossed_weights(packed: Array) -> Array:
    """Weights [block, taps..., step, lane, depth] with two steps in one, [block, taps..., step, 2 lanes, depth]."""
    *outer, steps, lanes, depth = packed.shape
    return packed.reshape(*outer, steps // STEPS, STEPS * lanes, depth)


def of_weights(packed: Array) -> Array:
    """What takes the products of weights [block, taps..., step, lane, depth] off the sums, [block, lane]."""
    first, second = packed[..., ::STEPS, :, :].astype(np.int32), packed[..., 1::STEPS, :, :].astype(np.int32)
    axes = (*range(1, packed.ndim - 2), packed.ndim - 1)
    return np.asarray(-(first * second).sum(axis=axes, dtype=np.int32))


def crossed_product(data: Callable[[int], Expression], weights: Callable[[int], Expression], dot: Dot) -> Expression:
    """The product of two steps. data, weights: give those of step 0 or 1."""
    factors = [(data(step) + weights(1 - step)).astype(dot.accumulator) for step in range(STEPS)]
    return factors[0] * factors[1]


def pairs_of_data(
    sums: Tensor, weights: Tensor, taps: Sequence[int], dot: Dot, held: Callable[..., Expression]
) -> Tensor:
    """The stage [positions...] of what takes the products of the data off the sums, [positions..., block, lane].

    held: gives what memory holds, of a position, taps and a channel.
    """
    walked, depth = [int(n) for n in sums.shape[:-2]], int(weights.shape[-3]) * STEPS * dot.depth
    steps = pair_steps(depth, dot)
    axes = [te.reduce_axis((0, n), f"tap{i}") for i, n in enumerate(taps)]
    vector = te.reduce_axis((0, depth // (steps * dot.depth)), "vector")
    within = te.reduce_axis((0, dot.depth), "within")

    def product(*at: Expression) -> Expression:
        *position, pair = at
        places = [((vector * steps + pair * STEPS + step) * dot.depth + within) for step in range(STEPS)]
        first, second = (held(position, axes, place).astype(dot.accumulator) for place in places)
        return te.sum(first * second, axis=[*axes, vector, within])

    pairs = stage((*walked, steps // STEPS), product, "pairs", pairs=intrinsic_of_pairs(steps, dot))

    def taken_off(*at: Expression) -> Expression:
        return -reduce(add, (pairs(*at, constant(pair, "int32")) for pair in range(steps // STEPS)))

    return stage(tuple(walked), taken_off, "of_data", of_data=True)


def schedule_pairs(plan: Any, pairs: Any, of_data: Any) -> None:
    """The stages of `pairs_of_data`, position by position, before any sum is formed."""
    positions = plan.get_loops(of_data)
    reduced = len(split_loops(plan, pairs)[1])
    plan.compute_at(pairs, positions[-1], preserve_unit_loops=True)
    pair, *steps, within = plan.get_loops(pairs)[-reduced - 1 :]
    plan.reorder(*steps, pair, within)
    parallelize(plan, positions)
    plan.vectorize(plan.get_loops(plan.decompose_reduction(pairs, steps[0]))[-1])
    plan.tensorize(pair, str(plan.get(pairs).annotations[Hint.PAIRS]))


def crossed_intrinsic(dot: Dot) -> str:
    """The name of the tensor intrinsic of two crossed steps; it is registered when first asked for."""
    lanes, depth, accumulator = dot.lanes, dot.depth, dot.accumulator
    factors, sums = f"{dot.data}x{lanes * depth}", f"{accumulator}x{lanes}"

    def product(x: Buffer, w: Buffer, lane: Expression, channel: Expression) -> Expression:
        data = [tirx.BufferLoad(x, [step * depth + channel]) for step in range(STEPS)]
        weights = [tirx.BufferLoad(w, [step * lanes + lane, channel]) for step in range(STEPS)]
        return (data[0] + weights[1]).astype(accumulator) * (data[1] + weights[0]).astype(accumulator)

    def by_instruction(x: Buffer, w: Buffer, y: Buffer) -> list[Expression]:
        data = [in_each_lane(loaded(x, [step * depth], depth), lanes, factors) for step in range(STEPS)]
        weights = [loaded(w, [step * lanes, 0], lanes * depth) for step in range(STEPS)]
        products = llvm_call(sums, dot.instruction, data[0] + weights[1], data[1] + weights[0])
        return [stored(y, [0], lanes, loaded(y, [0], lanes) + products)]

    return tensor_intrinsic(
        f"mrt.crossed.{dot.instruction}.{accumulator}x{lanes}",
        [Part((STEPS * depth,), dot.data), Part((STEPS * lanes, depth), dot.weight)],
        Part((lanes,), accumulator),
        product,
        by_instruction,
        summed=[depth],
    )


def intrinsic_of_pairs(steps: int, dot: Dot) -> str:
    """The same of the products of so many neighbouring steps of the data: one instruction multiplies all of them by
    what lies a step behind, and every second product is left."""
    depth, accumulator, count, pairs = dot.depth, dot.accumulator, steps * dot.depth, steps // STEPS

    def product(x: Buffer, pair: Expression, channel: Expression) -> Expression:
        first, second = (
            tirx.BufferLoad(x, [pair * STEPS * depth + step * depth + channel]).astype(accumulator)
            for step in range(STEPS)
        )
        return first * second

    def by_instruction(x: Buffer, y: Buffer) -> list[Expression]:
        data = loaded(x, [0], count)
        # A shift brings the second step of each pair to the place of the first, and 0 to its own.
        shifted = tirx.reinterpret(f"uint64x{pairs}", data) >> tirx.Broadcast(constant(32, "uint64"), pairs)
        second = tirx.reinterpret(f"{dot.data}x{count}", shifted)
        products = llvm_call(f"{accumulator}x{steps}", PAIRS[steps], data, second)
        return [stored(y, [0], pairs, loaded(y, [0], pairs) + shuffled([products], range(0, steps, STEPS)))]

    return tensor_intrinsic(
        f"mrt.pairs.{PAIRS[steps]}.{accumulator}x{steps}",
        [Part((count,), dot.data)],
        Part((pairs,), accumulator),
        product,
        by_instruction,
        summed=[depth],
    )
