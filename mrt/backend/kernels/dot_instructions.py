"""Which instruction multiplies: the dots of every family of machines, the fastest first, and how one is chosen.

A *dot* takes `depth` neighbouring input channels of one position and the weights of `lanes` output channels, and adds
to an accumulator of `lanes` elements. Integers are exact: no form saturates, and each is used only where no sum can
leave 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mrt.backend.kernels.aarch64 import dots as aarch64
from mrt.backend.kernels.dot_instruction import INT16_HOLDS, DotInstruction
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.kernels.x86.avx2 import dots as avx2
from mrt.backend.kernels.x86.avx512 import dots as avx512
from mrt.backend.kernels.x86.vnni import dots as vnni
from mrt.backend.machine import Machine
from mrt.symbol import Array
from mrt.symbol.bounds import DTYPE_RANGES

DOTS: tuple[DotInstruction, ...] = (*vnni.DOTS, *avx512.DOTS, *avx2.DOTS, *aarch64.DOTS)
"""In the order in which they are tried; where none fits, plain multiplication and addition serve."""
BYTE = 256


@dataclass(frozen=True)
class Dot:
    """data, offset: memory holds the data's value + offset in this dtype. weight: the weights' dtype in memory.

    depth: channels of the data that one dot takes. lanes: output channels. accumulator: the sums' dtype.
    formed_by: the instruction, None where plain multiplication and addition serve.
    parts: bytes of a weight, which are multiplied one by one; see `weight_bytes`.
    """

    data: str
    offset: int
    weight: str
    depth: int
    lanes: int
    accumulator: str
    formed_by: DotInstruction | None = None
    parts: int = 1

    @property
    def instruction(self) -> str:
        """LLVM's name of the instruction, an empty string if there is none."""
        return "" if self.formed_by is None else self.formed_by.llvm

    @property
    def is_of_bytes(self) -> bool:
        """Whether an instruction multiplies weights of a byte."""
        return self.formed_by is not None and self.weight in ("int8", "uint8")

    @property
    def swapped(self) -> Dot | None:
        """The same instruction of signed bytes of data by weights without a sign; None where it has no such form."""
        if self.formed_by is None or not self.formed_by.swaps:
            return None
        return replace(self, data="int8", offset=0, weight="uint8")


def dots_of(machine: Machine) -> tuple[DotInstruction, ...]:
    """The instructions of a machine's own vectors."""
    return tuple(each for each in DOTS if each.bits == machine.vector_bits and machine.has(*each.features))


def needed_features(machine: Machine) -> tuple[str, ...]:
    """LLVM's names of what a CPU must have for the kernels of a machine."""
    of_dots = [name for each in dots_of(machine) for name in each.features]
    permuting = [vnni.PERMUTES] if machine.has(vnni.PERMUTES) else []
    return tuple(dict.fromkeys([*(of_dots or machine.vector_features), *permuting]))


def choose_dot(
    data: str,
    weight: Array,
    accumulator: str,
    machine: Machine,
    pairs: Pairs | None = None,
) -> Dot:
    """The fastest dot of a machine for data of dtype `data` and a weight (output channels, ...), integer or float.

    pairs: of products, where they may be added up in int16 (`DotInstruction.widens`) if none can saturate.

    A dot of bytes adds 128 to data of the other sign, or takes it off, and later 128 times the sum of the weights: what
    both may reach decides whether it fits. Wider weights are multiplied byte by byte: in as many instructions as those
    of int16 take, but the data stay bytes.
    """
    if weight.dtype.kind == "f":
        return fitting_dot(data, weight.dtype.name, 0, accumulator, machine)
    least_byte, _ = DTYPE_RANGES["int8"]
    if weight.dtype == np.int8 and weight.size:
        # What so many bytes can reach at most settles it, nearly always, without a look at them.
        most = -least_byte if pairs is None else max(int(weight.max()), -int(weight.min()))
        offset = None
        if pairs is not None and any(each.widens for each in dots_of(machine)):
            offset = pairs.offset(weight)
        dot = fitting_dot(data, "int8", most * weight[0].size, accumulator, machine, offset)
        if dot.is_of_bytes:
            return dot
    if not any(each.weight == "int8" and not each.widens for each in dots_of(machine)):
        # No other instruction asks what the weights reach.
        return fitting_dot(data, weight.dtype.name, 0, accumulator, machine)
    if weight.dtype.name in ("uint8", "int16", "int32"):
        parts = weight_bytes(weight)
        sums = np.abs(parts, dtype=np.int64).reshape(*parts.shape[:2], -1).sum(axis=2)
        dot = fitting_dot(data, "int8", int(joined_bytes(sums).max(initial=0)), accumulator, machine)
        if dot.is_of_bytes:
            return replace(dot, parts=len(parts))
    sums = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1)
    return fitting_dot(data, weight.dtype.name, int(sums.max(initial=0)), accumulator, machine)


def fitting_dot(
    data: str, dtype: str, reach: int, accumulator: str, machine: Machine, offset_of_pairs: int | None = None
) -> Dot:
    """The same for weights of `dtype` that are known by bounds: the absolute values of those of one output channel add
    up to `reach` at most. offset_of_pairs: what memory holds more than the data where pairs of products may be added up
    in int16; None where they may not.
    """
    lanes = machine.lanes
    for each in dots_of(machine) if accumulator == "int32" else ():
        offset = each.offsets.get(data)
        if each.widens:
            # What fits into bytes may be of a wider dtype.
            offset = offset_of_pairs if data in INT16_HOLDS else None
        if offset is not None and dtype in each.weights and each.fits(offset, reach):
            return Dot(each.data, offset, each.weight, each.depth, lanes, accumulator, each)
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
