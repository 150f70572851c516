"""Rows of a matrix interleaved as dots read them: a tensor intrinsic of shifts, where lane by lane TVM would gather."""

from __future__ import annotations

from functools import reduce
from operator import or_

from tvm import tirx

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.kernels.tensor_intrinsic import Buffer, Part, loaded, stored, tensor_intrinsic
from mrt.backend.tir.expressions import Expression, constant


def interleaving(dot: Dot) -> str:
    """The name of the tensor intrinsic that makes [lane, depth] of `depth` rows; it is registered when first asked for.

    The elements of a lane, 32 bits together, are put into it by shifts.
    """
    depth, lanes, bits = dot.depth, dot.lanes, 32 // dot.depth

    def element(x: Buffer, lane: Expression, within: Expression) -> Expression:
        return tirx.BufferLoad(x, [within, lane])

    def shifted(row: Expression, k: int) -> Expression:
        value = tirx.reinterpret(f"uint{bits}x{lanes}", row).astype(f"uint32x{lanes}")
        return value << tirx.Broadcast(constant(bits * k, "uint32"), lanes) if k else value

    def interleaved(x: Buffer, y: Buffer) -> list[Expression]:
        words = reduce(or_, (shifted(loaded(x, [k, 0], lanes), k) for k in range(depth)))
        return [stored(y, [0, 0], lanes * depth, tirx.reinterpret(f"{dot.weight}x{lanes * depth}", words))]

    rows, made = Part((depth, lanes), dot.weight, apart=True), Part((lanes, depth), dot.weight)
    return tensor_intrinsic(f"mrt.interleave.{dot.weight}.{depth}.{lanes}", [rows], made, element, interleaved)
