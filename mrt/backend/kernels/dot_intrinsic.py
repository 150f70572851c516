"""A dot as a tensor intrinsic: what TVM finds in loops, and the instruction that it puts in their place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from tvm import tirx

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.kernels.tensor_intrinsic import Buffer, Part, in_each_lane, loaded, stored, tensor_intrinsic
from mrt.backend.tir.expressions import Expression, constant, llvm_call


def intrinsic_of(dot: Dot, steps: int = 1) -> str:
    """The name of the tensor intrinsic of a dot; it is registered when first asked for.

    steps: of a dot that adds up pairs in int16, those whose pairs are added up before they are widened. More than one
    are an axis of the weights, [step, lane, depth].
    """
    lanes, depth, by_steps = dot.lanes, dot.depth, (steps,) if steps > 1 else ()

    def product(x: Buffer, w: Buffer, lane: Expression, *at: Expression) -> Expression:
        *step, channel = at
        place = step[0] * depth + channel if step else channel
        weight = tirx.BufferLoad(w, [*step, lane, channel])
        return tirx.BufferLoad(x, [place]).astype(dot.accumulator) * weight.astype(dot.accumulator)

    def by_instruction(x: Buffer, w: Buffer, y: Buffer) -> list[Expression]:
        data = [loaded(x, [step * depth], depth) for step in range(steps)]
        weights = [loaded(w, [*([step] if by_steps else []), 0, 0], lanes * depth) for step in range(steps)]
        return [stored(y, [0], lanes, _added(dot, loaded(y, [0], lanes), data, weights))]

    return tensor_intrinsic(
        f"mrt.{dot.instruction}.{dot.data}.{dot.weight}.{dot.accumulator}x{lanes}{f'.{steps}' if by_steps else ''}",
        [Part((steps * depth,), dot.data), Part((*by_steps, lanes, depth), dot.weight)],
        Part((lanes,), dot.accumulator),
        product,
        by_instruction,
        summed=(*by_steps, depth),
    )


def _added(dot: Dot, held: Expression, data: Sequence[Expression], weights: Sequence[Expression]) -> Expression:
    """The accumulator and the sums of the products of each step: `depth` elements of its data by those of each lane.

    Pairs of all steps are added up in int16 and widened once, where the dot has such.
    """
    lanes, depth, sums = dot.lanes, dot.depth, f"{dot.accumulator}x{dot.lanes}"
    # LLVM takes the factors of a product of bytes as bytes, those of a product of int16 as int16.
    given = [in_each_lane(each, lanes, f"int{32 // depth}x{lanes * depth}") for each in data]
    if dot.formed_by is not None and dot.formed_by.widens:
        words = lanes * depth // 2
        pairs = [llvm_call(f"int16x{words}", dot.instruction, x, w) for x, w in zip(given, weights, strict=True)]
        ones = tirx.Broadcast(constant(1, "int16"), words)
        return held + llvm_call(sums, dot.formed_by.widens, reduce(add, pairs), ones)
    (x,), (w,) = given, weights
    if dot.formed_by is not None and not dot.formed_by.adds:
        return held + llvm_call(sums, dot.instruction, x, w)
    return llvm_call(sums, dot.instruction, held, *((w, x) if dot.weight == "uint8" else (x, w)))
