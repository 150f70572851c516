"""A dot as a tensor intrinsic: what TVM finds in loops, and the instruction that it puts in their place."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from tvm import s_tir
from tvm.script import tirx as script

from mrt.backend.kernels.dot_instructions import Dot


def intrinsic_of(dot: Dot, steps: int = 1) -> str:
    """The name of the tensor intrinsic of a dot; it is registered when first asked for.

    steps: of a dot that adds up pairs in int16, those whose pairs are added up before they are widened. More than one
    are an axis of the weights, [step, lane, depth].
    """
    name = (
        f"mrt.{dot.instruction}.{dot.data}.{dot.weight}.{dot.accumulator}x{dot.lanes}{f'.{steps}' if steps > 1 else ''}"
    )
    if s_tir.TensorIntrin.get(name, allow_missing=True) is None:
        made = (_description(dot), _implementation(dot))
        s_tir.TensorIntrin.register(name, *(made if steps == 1 else (_described(dot, steps), _joint(dot, steps))))
    return name


def _description(dot: Dot) -> Any:
    """What a dot computes, as the schedule finds it."""
    lanes, depth, accumulator, cast = dot.lanes, dot.depth, dot.accumulator, script.cast

    @script.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(a: script.handle, b: script.handle, c: script.handle) -> None:
        x = script.match_buffer(a, (depth,), dot.data, offset_factor=1)
        w = script.match_buffer(b, (lanes, depth), dot.weight, offset_factor=1)
        y = script.match_buffer(c, (lanes,), accumulator, offset_factor=1)
        with script.sblock("root"):
            script.reads(y[0:lanes], x[0:depth], w[0:lanes, 0:depth])
            script.writes(y[0:lanes])
            for i in script.serial(0, lanes):
                for k in script.serial(0, depth):
                    with script.sblock("update"):
                        lane, channel = script.axis.remap("SR", [i, k])
                        y[lane] = y[lane] + cast(x[channel], accumulator) * cast(w[lane, channel], accumulator)

    return description


def _implementation(dot: Dot) -> Any:
    """The same by one instruction: `depth` elements of the data, 32 bits together, are broadcast to all lanes."""
    lanes, depth = dot.lanes, dot.depth
    identifier = script.llvm_lookup_intrinsic_id(dot.instruction)
    widens = dot.formed_by.widens if dot.formed_by else ""
    # LLVM takes the factors of a product of bytes as bytes, those of a product of int16 as int16.
    factor, sums = f"int{32 // depth}x{lanes * depth}", f"{dot.accumulator}x{lanes}"
    loaded, packed = f"{dot.data}x{depth}", f"{dot.weight}x{lanes * depth}"

    def added(held: Any, x: Any, w: Any) -> Any:
        """The accumulator and the sums of the products."""
        given = script.reinterpret(script.broadcast(script.reinterpret(x, dtype="int32"), lanes), dtype=factor)
        if widens:
            pairs = script.call_llvm_pure_intrin(identifier, given, w, dtype=f"int16x{lanes * depth // 2}")
            ones = script.broadcast(script.int16(1), lanes * depth // 2)
            return held + script.call_llvm_pure_intrin(script.llvm_lookup_intrinsic_id(widens), pairs, ones, dtype=sums)
        if dot.formed_by is not None and not dot.formed_by.adds:
            return held + script.call_llvm_pure_intrin(identifier, given, w, dtype=sums)
        factors = (w, given) if dot.weight == "uint8" else (given, w)
        return script.call_llvm_pure_intrin(identifier, held, *factors, dtype=sums)

    @script.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: script.handle, b: script.handle, c: script.handle) -> None:
        x = script.match_buffer(a, (depth,), dot.data, offset_factor=1)
        w = script.match_buffer(b, (lanes, depth), dot.weight, offset_factor=1)
        y = script.match_buffer(c, (lanes,), dot.accumulator, offset_factor=1)
        with script.sblock("root"):
            script.reads(y[0:lanes], x[0:depth], w[0:lanes, 0:depth])
            script.writes(y[0:lanes])
            y[script.ramp(0, 1, lanes)] = added(
                y.vload([0], dtype=sums),
                x.vload([0], dtype=loaded),
                w.vload([0, 0], dtype=packed),
            )

    return implementation


def _described(dot: Dot, steps: int) -> Any:
    """What several steps of a dot compute together."""
    lanes, depth, accumulator, cast = dot.lanes, dot.depth, dot.accumulator, script.cast

    @script.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(a: script.handle, b: script.handle, c: script.handle) -> None:
        x = script.match_buffer(a, (steps * depth,), dot.data, offset_factor=1)
        w = script.match_buffer(b, (steps, lanes, depth), dot.weight, offset_factor=1)
        y = script.match_buffer(c, (lanes,), accumulator, offset_factor=1)
        with script.sblock("root"):
            script.reads(y[0:lanes], x[0 : steps * depth], w[0:steps, 0:lanes, 0:depth])
            script.writes(y[0:lanes])
            for i, j, k in script.grid(lanes, steps, depth):
                with script.sblock("update"):
                    lane, step, channel = script.axis.remap("SRR", [i, j, k])
                    y[lane] = y[lane] + cast(x[step * depth + channel], accumulator) * cast(
                        w[step, lane, channel], accumulator
                    )

    return description


def _joint(dot: Dot, steps: int) -> Any:
    """The same: the pairs of all steps are added up in int16, and widened once."""
    lanes, depth, sums = dot.lanes, dot.depth, f"{dot.accumulator}x{dot.lanes}"
    identifier = script.llvm_lookup_intrinsic_id(dot.instruction)
    widening = script.llvm_lookup_intrinsic_id(dot.formed_by.widens if dot.formed_by else "")
    factor, words = f"int8x{lanes * depth}", lanes * depth // 2

    def pairs(x: Any, w: Any) -> Any:
        given = script.reinterpret(script.broadcast(script.reinterpret(x, dtype="int32"), lanes), dtype=factor)
        return script.call_llvm_pure_intrin(identifier, given, w, dtype=f"int16x{words}")

    def added(held: Any, x: Any, w: Any) -> Any:
        total = reduce(add, (pairs(x(step), w(step)) for step in range(steps)))
        ones = script.broadcast(script.int16(1), words)
        return held + script.call_llvm_pure_intrin(widening, total, ones, dtype=sums)

    @script.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: script.handle, b: script.handle, c: script.handle) -> None:
        x = script.match_buffer(a, (steps * depth,), dot.data, offset_factor=1)
        w = script.match_buffer(b, (steps, lanes, depth), dot.weight, offset_factor=1)
        y = script.match_buffer(c, (lanes,), dot.accumulator, offset_factor=1)
        with script.sblock("root"):
            script.reads(y[0:lanes], x[0 : steps * depth], w[0:steps, 0:lanes, 0:depth])
            script.writes(y[0:lanes])
            y[script.ramp(0, 1, lanes)] = added(
                y.vload([0], dtype=sums),
                lambda step: x.vload([step * depth], dtype=f"{dot.data}x{depth}"),
                lambda step: w.vload([step, 0, 0], dtype=f"{dot.weight}x{lanes * depth}"),
            )

    return implementation
