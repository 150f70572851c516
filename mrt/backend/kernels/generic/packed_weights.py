"""Weights of few bits, packed in memory and unpacked in registers.

A product of a matrix with one row or few takes as long as its weights take to come from memory, so that weights of 4
bits take half of the time of bytes. Fields of several steps of a dot share a byte: what one load brings is unpacked by
shifts of the whole vector, and its fields are multiplied one after the other, each with the data of its own step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
from tvm import tirx

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import WORKING, divisors
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, Tensor, constant
from mrt.symbol import Array

BYTE = 8
"""Bits of it."""
UNPACKING = 4
"""Registers that are left to what is unpacked."""
MOST_HELD = 8
"""At most blocks of output channels that are summed at once: so many sums do not wait for each other."""
FEW_TILED = 4
"""So many positions are multiplied by tiles, where there are any."""
WORTH_PACKING = 1 << 14
"""Weights from which on they are packed."""
SPLIT = {2: (2,), 3: (2, 1), 4: (4,), 8: (8,)}
"""By the bits of a weight: those of the fields that it is cut into, the lowest first. Fields of one length share bytes."""


@dataclass(frozen=True)
class WeightPacking:
    """How weights lie in bytes, as [block / held, taps..., step / steps, held, plane, lane, depth].

    bits: of a weight. held: blocks of output channels that follow each other at every step. A plane is a byte for each
    lane and element of a dot: of weights of 3 bits, two hold the low two bits of four steps each, one the signs of all.
    """

    bits: int
    held: int

    @property
    def steps(self) -> int:
        """Steps whose weights share bytes."""
        return BYTE // min(SPLIT[self.bits])

    @property
    def planes(self) -> int:
        return self.steps * self.bits // BYTE

    def scale(self, dtype: str) -> int:
        """By how many bits what `field` gives is shifted to the left: there are no shifts of bytes to the right."""
        return BYTE - self.bits if dtype == "int8" else 0

    def pack(self, weight: Array) -> Array:
        """The weight [block, taps..., step, lane, depth] as above, in uint8."""
        blocks, *taps, steps, lanes, depth = weight.shape
        apart = weight.reshape(blocks // self.held, self.held, *taps, steps // self.steps, self.steps, lanes, depth)
        fields = np.moveaxis(apart.astype(np.uint8), (1, -3), (-3, 0))  # [field, block, taps..., step, held, lane, depth]
        planes: list[Array] = []
        low = 0
        for length in SPLIT[self.bits]:
            each = (fields >> low) & (2**length - 1)
            for first in range(0, self.steps, BYTE // length):
                shifted = (each[first + place] << (place * length) for place in range(BYTE // length))
                planes.append(np.bitwise_or.reduce(list(shifted)).astype(np.uint8))
            low += length
        return np.ascontiguousarray(np.stack(planes, axis=-3))

    def field(self, plane: Callable[[Expression], Expression], number: Expression, dtype: str) -> Expression:
        """The weight of step `number` of those that share bytes, in a signed dtype, times 2^`scale`.

        plane: gives the byte of a plane. Fields are moved to the top, where their sign is that of the element.
        """
        unsigned, width = f"u{dtype}", int(dtype.removeprefix("int"))
        fields, low, first = [], 0, 0
        for length in SPLIT[self.bits]:
            count = BYTE // length
            place = (tirx.floormod(number, count) * length).astype(unsigned)
            byte = plane(first + tirx.floordiv(number, count)).astype(unsigned)
            field = (byte >> place) & constant(2**length - 1, unsigned)
            fields.append(field << constant(width - self.bits + low, unsigned))
            low, first = low + length, first + self.steps // count
        value = reduce(or_, fields).astype(dtype)
        return value if self.scale(dtype) else value >> constant(width - self.bits, dtype)


def choose_packing(
    weight: Array, dot: Dot, blocks: int, steps: int, positions: int, machine: Machine
) -> WeightPacking | None:
    """How the weight (O, I, taps...) is packed, of so many blocks and steps; None where it lies as dots read it.

    It is packed for so few positions that the sums of all stay in registers: each weight is then loaded, and unpacked,
    once. For more of them the products count, and not the memory that weights come from.
    """
    if positions > _most_positions(machine) or dot.parts > 1 or dot.accumulator != "int32" or not weight.size:
        return None
    if math.prod(weight.shape[1:]) * blocks * dot.lanes < WORTH_PACKING:
        return None
    needed, held = _needed_bits(weight), _held(blocks, positions, machine)
    for bits in range(needed, np.dtype(dot.weight).itemsize * BYTE):
        packing = WeightPacking(bits, held) if bits in SPLIT else None
        if packing is not None and steps % packing.steps == 0 and _fits(weight, dot, packing):
            return packing
    return None


def register_dtype(dot: Dot) -> str:
    """Of an unpacked weight: what the instruction takes, or what is multiplied without one."""
    return dot.accumulator if dot.formed_by is None else dot.weight


def _most_positions(machine: Machine) -> int:
    return FEW_TILED - 1 if machine.has_tiles else machine.registers - WORKING - UNPACKING


def _held(blocks: int, positions: int, machine: Machine) -> int:
    room = (machine.registers - WORKING - UNPACKING) // positions
    return max(n for n in divisors(blocks) if n <= min(room, MOST_HELD))


def _needed_bits(weight: Array) -> int:
    lo, hi = int(weight.min()), int(weight.max())
    return max((-lo - 1).bit_length() if lo < 0 else 0, hi.bit_length() if hi > 0 else 0, 1) + 1


def _fits(weight: Array, dot: Dot, packing: WeightPacking) -> bool:
    """Whether no sum of shifted weights can leave 32 bits."""
    scale = packing.scale(register_dtype(dot))
    if dot.formed_by is None or not scale:
        return True
    reach = np.abs(weight.astype(np.int32)).reshape(len(weight), -1).sum(axis=1, dtype=np.int64)
    return dot.formed_by.fits(dot.data, int(reach.max()) << scale)


def unpacked_weights(packed: Tensor, packing: WeightPacking, dot: Dot) -> Tensor:
    """The stage [block, taps..., step / steps, field, lane, depth] of weights as dots read them, times 2^`scale`."""
    groups, *taps, steps, held, _, lanes, depth = (int(n) for n in packed.shape)

    def weight(block: Expression, *at: Expression) -> Expression:
        *before, number, lane, within = at
        group, place = tirx.floordiv(block, held), tirx.floormod(block, held)
        return packing.field(
            lambda plane: packed(group, *before, place, plane, lane, within), number, register_dtype(dot)
        )

    shape = (groups * held, *taps, steps, packing.steps, lanes, depth)
    return stage(shape, weight, "unpacked", unpacked=True)
