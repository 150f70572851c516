"""Dots: in which dtypes a machine forms products, how many at once, and by which instruction.

A *dot* takes `depth` neighbouring input channels of one position and the weights of `lanes` output channels, and adds
to an accumulator of `lanes` elements. Integers are exact: no form saturates, and each is used only where no sum can
leave 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import s_tir
from tvm.script import tirx as script

from mrt.backend.machine import Machine
from mrt.symbol import Array
from mrt.symbol.types import INT32_MAX

BYTE_OFFSET = 128
"""What is added to an int8 to make it the unsigned factor of a dot of bytes, or taken off a uint8 to make it signed."""
BYTE = 256
WORDS = ("int8", "uint8", "int16")
"""Dtypes whose values an int16 holds."""


@dataclass(frozen=True)
class Dot:
    """data, offset: memory holds the data's value + offset in this dtype. weight: the weights' dtype in memory.

    depth: channels of the data that one dot takes. lanes: output channels. accumulator: the sums' dtype.
    instruction: LLVM's, an empty string where plain multiplication and addition serve.
    parts: bytes of a weight, which are multiplied one by one; see `weight_bytes`.
    """

    data: str
    offset: int
    weight: str
    depth: int
    lanes: int
    accumulator: str
    instruction: str = ""
    parts: int = 1

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
    both may reach decides whether it fits. Wider weights are multiplied byte by byte: in as many instructions as words
    take, but the data stay bytes.
    """
    if weight.dtype.kind == "f":
        return fitting_dot(data, weight.dtype.name, 0, 0, accumulator, machine)
    if weight.dtype == np.int8 and weight.size:
        # What so many bytes can reach at most settles it, nearly always, without a look at them.
        dot = fitting_dot(data, "int8", BYTE_OFFSET * weight[0].size, -BYTE_OFFSET, accumulator, machine)
        if dot.instruction == machine.byte_dot:
            return dot
    if machine.byte_dot and weight.dtype.name in ("uint8", "int16", "int32"):
        parts = weight_bytes(weight)
        sums = np.abs(parts, dtype=np.int64).reshape(*parts.shape[:2], -1).sum(axis=2)
        dot = fitting_dot(data, "int8", int(joined_bytes(sums).max(initial=0)), 0, accumulator, machine)
        if dot.instruction == machine.byte_dot:
            return replace(dot, parts=len(parts))
    sums = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1)
    least = int(weight.min(initial=0))
    return fitting_dot(data, weight.dtype.name, int(sums.max(initial=0)), least, accumulator, machine)


def fitting_dot(data: str, dtype: str, reach: int, least: int, accumulator: str, machine: Machine) -> Dot:
    """The same for weights of `dtype` that are known by bounds: they are `least` or more, and the absolute values of
    those of one output channel add up to `reach` at most.
    """
    lanes = machine.vector_bits // 32
    in_bytes = accumulator == "int32" and data in ("int8", "uint8") and dtype == "int8"
    if in_bytes and machine.byte_dot:
        held = "int8" if machine.data_is_signed else "uint8"
        offset = 0 if data == held else -BYTE_OFFSET if machine.data_is_signed else BYTE_OFFSET
        largest = (BYTE_OFFSET if machine.data_is_signed else 255) + abs(offset)
        if largest * reach <= INT32_MAX:
            return Dot(held, offset, "int8", 4, lanes, accumulator, machine.byte_dot)
    in_words = accumulator == "int32" and data in WORDS and dtype in WORDS
    # Four factors of -2^15 would leave 32 bits within the instruction.
    if in_words and machine.word_dot and (least > -(2**15) or data != "int16"):
        return Dot("int16", 0, "int16", 2, lanes, accumulator, machine.word_dot)
    return Dot(data, 0, dtype, 1, lanes, accumulator)


def weight_bytes(weight: Array) -> Array:
    """The bytes of integers, int8 (parts, ...), of as few parts as that takes; `joined_bytes` of them is the weight."""
    if weight.dtype == np.int8:
        return weight[None]
    parts: list[Array] = []
    rest = weight.astype(np.int64)
    while not parts or rest.any():
        parts.append(((rest + BYTE // 2) % BYTE - BYTE // 2).astype(np.int8))
        rest = (rest - parts[-1]) // BYTE
    return np.stack(parts)


def joined_bytes(parts: Any) -> Any:
    """The sum over i of 256^i parts[i]: of arrays, or of expressions."""
    total = parts[0]
    for i in range(1, len(parts)):
        total = total + parts[i] * BYTE**i
    return total


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
