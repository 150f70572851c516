"""Dots: in which dtypes a machine forms products, how many at once, and by which instruction.

A *dot* takes `depth` neighbouring input channels of one position and the weights of `lanes` output channels, and adds
to an accumulator of `lanes` elements. Integers are exact: no form saturates, and each is used only where no sum can
leave 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import s_tir
from tvm.script import tirx as script

from mrt.backend.machine import Machine
from mrt.symbol import Array

BYTE_OFFSET = 128
"""What is added to an int8 to make it the unsigned factor of a dot of bytes, or taken off a uint8 to make it signed."""
INT32_MAX = 2**31 - 1
WORDS = ("int8", "uint8", "int16")
"""Dtypes whose values an int16 holds."""


@dataclass(frozen=True)
class Dot:
    """data, offset: memory holds the data's value + offset in this dtype. weight: the weights' dtype in memory.

    depth: channels of the data that one dot takes. lanes: output channels. accumulator: the sums' dtype.
    instruction: LLVM's, an empty string where plain multiplication and addition serve.
    """

    data: str
    offset: int
    weight: str
    depth: int
    lanes: int
    accumulator: str
    instruction: str = ""

    @property
    def intrinsic(self) -> str:
        """The name of the tensor intrinsic; it is registered when first asked for."""
        name = f"mrt.{self.instruction}.{self.data}.{self.weight}.{self.lanes}"
        if s_tir.TensorIntrin.get(name, allow_missing=True) is None:
            s_tir.TensorIntrin.register(name, _description(self), _implementation(self))
        return name


def choose_dot(data: str, weight: Array, accumulator: str, machine: Machine) -> Dot:
    """The fastest dot of a machine for data of dtype `data` and a weight (output channels, ...), integer or float.

    A dot of bytes adds 128 to data of the other sign, or takes it off, and later 128 times the sum of the weights: what
    both may reach decides whether it fits.
    """
    lanes = machine.vector_bits // 32
    dtype = weight.dtype.name
    in_bytes = accumulator == "int32" and data in ("int8", "uint8") and dtype == "int8"
    if in_bytes and machine.multiplies_bytes:
        held = "int8" if machine.data_is_signed else "uint8"
        offset = 0 if data == held else -BYTE_OFFSET if machine.data_is_signed else BYTE_OFFSET
        largest = (BYTE_OFFSET if machine.data_is_signed else 255) + abs(offset)
        if (
            largest * int(np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1).max(initial=0))
            <= INT32_MAX
        ):
            return Dot(held, offset, "int8", 4, lanes, accumulator, machine.multiplies_bytes)
    in_words = accumulator == "int32" and data in WORDS and dtype in WORDS
    # Four factors of -2^15 would leave 32 bits within the instruction.
    if in_words and machine.multiplies_words and weight.min(initial=0) > -(2**15):
        return Dot("int16", 0, "int16", 2, lanes, accumulator, machine.multiplies_words)
    return Dot(data, 0, dtype, 1, lanes, accumulator)


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
    # LLVM takes the factors of a product of bytes as bytes, those of a product of words as words.
    factor, sums = f"int{32 // depth}x{lanes * depth}", f"{dot.accumulator}x{lanes}"
    loaded, packed = f"{dot.data}x{depth}", f"{dot.weight}x{lanes * depth}"

    def added(held: Any, x: Any, w: Any) -> Any:
        """vpdpbusd and vpdpwssd add to the accumulator themselves; pmaddwd gives the products' sums."""
        given = script.reinterpret(script.broadcast(script.reinterpret(x, dtype="int32"), lanes), dtype=factor)
        if "pmadd" in dot.instruction:
            return held + script.call_llvm_pure_intrin(identifier, given, w, dtype=sums)
        return script.call_llvm_pure_intrin(identifier, held, given, w, dtype=sums)

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
