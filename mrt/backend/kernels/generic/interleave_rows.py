"""Rows of a matrix interleaved as dots read them: a tensor intrinsic of shifts, where lane by lane TVM would gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir
from tvm.script import tirx as script

from mrt.backend.kernels.dot_instructions import Dot


def interleaving(dot: Dot) -> str:
    """The name of the tensor intrinsic that makes [lane, depth] of `depth` rows; it is registered when first asked for.

    The elements of a lane, 32 bits together, are put into it by shifts.
    """
    name = f"mrt.interleave.{dot.weight}.{dot.depth}.{dot.lanes}"
    if s_tir.TensorIntrin.get(name, allow_missing=True) is None:
        s_tir.TensorIntrin.register(name, _description(dot), _implementation(dot))
    return name


def _description(dot: Dot) -> Any:
    depth, lanes, dtype = dot.depth, dot.lanes, dot.weight

    @script.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(a: script.handle, b: script.handle) -> None:
        pitch = script.int32()
        x = script.match_buffer(a, (depth, lanes), dtype, offset_factor=1, strides=[pitch, 1])
        y = script.match_buffer(b, (lanes, depth), dtype, offset_factor=1)
        with script.sblock("root"):
            script.reads(x[0:depth, 0:lanes])
            script.writes(y[0:lanes, 0:depth])
            for i in script.serial(0, lanes):
                for k in script.serial(0, depth):
                    with script.sblock("copy"):
                        lane, within = script.axis.remap("SS", [i, k])
                        y[lane, within] = x[within, lane]

    return description


def _implementation(dot: Dot) -> Any:
    depth, lanes, dtype = dot.depth, dot.lanes, dot.weight
    bits = 32 // depth
    row, whole, made = f"{dtype}x{lanes}", f"uint32x{lanes}", f"{dtype}x{lanes * depth}"

    def element(x: Any, k: int) -> Any:
        value = script.cast(script.reinterpret(x, dtype=f"uint{bits}x{lanes}"), whole)
        return value << script.broadcast(script.uint32(bits * k), lanes) if k else value

    def interleaved(rows: Sequence[Any]) -> Any:
        value = element(rows[0], 0)
        for k in range(1, depth):
            value = value | element(rows[k], k)
        return script.reinterpret(value, dtype=made)

    @script.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: script.handle, b: script.handle) -> None:
        pitch = script.int32()
        x = script.match_buffer(a, (depth, lanes), dtype, offset_factor=1, strides=[pitch, 1])
        y = script.match_buffer(b, (lanes, depth), dtype, offset_factor=1)
        with script.sblock("root"):
            script.reads(x[0:depth, 0:lanes])
            script.writes(y[0:lanes, 0:depth])
            y[0, script.ramp(0, 1, lanes * depth)] = interleaved([x.vload([k, 0], dtype=row) for k in range(depth)])

    return implementation
