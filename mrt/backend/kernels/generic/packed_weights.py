"""Weights of few bits, packed in memory and unpacked in registers.

A product of a matrix with one row or few takes as long as its weights take to come from memory, so that weights of 4
bits take half of the time of bytes. Fields of several steps of a dot share a byte: what one load brings is unpacked by
shifts of the whole vector, and its fields are multiplied one after the other, each with the data of its own step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
from tvm import tirx

from mrt.backend.kernels.dot_instructions import Dot, fitting_dot
from mrt.backend.kernels.dot_intrinsic import intrinsic_of
from mrt.backend.kernels.pairs_of_products import offset_of_pairs
from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import SECOND_BYTES, WORKING, divisors
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, Tensor, combined, constant, opaque
from mrt.symbol import Array, Interval
from mrt.symbol.types import INT32_MAX

BYTE, BYTE_SIGN = 8, 128
"""Bits of it, and what makes one with a sign of one without."""
MOST_IN_BYTES = 2**15 - 1 - BYTE_SIGN
"""The largest int16 that two bytes with a sign hold, the high one times 256."""
UNPACKING = 4
"""Registers that are left to what is unpacked."""
MOST_HELD, MOST_UNROLLED = 8, 16
"""At most blocks of output channels that are summed at once, so that sums do not wait for each other, and at most their
fields of one turn: of more, not all that is unpacked stays in registers."""
FEW_TILED, MOST_POSITIONS = 4, 8
"""So many positions are multiplied by tiles, where there are any. For more of them than 8, of bytes, dots take longer
than their weights take to come from memory: one a cycle, where a line comes in 8 to 16."""
WORTH_PACKING = 1 << 14
"""Bytes of weights from which on they are packed: of fewer, what a call takes besides is what counts."""
STEPS = {2: 4, 3: 8, 4: 2, 8: 1}
"""By the bits of a weight: steps whose weights share bytes, next to each other, lowest first. Of 3 bits, three bytes
hold two whole ones each, at bits 0 and 5; bits 3 and 4 between them hold the low two bits of the seventh in the first
byte, of the eighth in the second, and the highest of both in the third."""
BETWEEN, SECOND = 3, 5
"""The bits at which those begin."""


@dataclass(frozen=True)
class WeightPacking:
    """How weights lie in bytes, as [block / held, taps..., step / steps, held, plane, lane, depth].

    bits: of a weight. held: blocks of output channels that follow each other at every step. A plane is a byte for each
    lane and element of a dot.
    bias: what is added to a weight to make it a field: 2^(bits - 1), or 0 where fields are in two's complement. Sums
    begin with what takes it off again (`initialized_by_data`).
    """

    bits: int
    held: int
    bias: int = 0

    @property
    def steps(self) -> int:
        """Steps whose weights share bytes."""
        return STEPS[self.bits]

    @property
    def planes(self) -> int:
        return self.steps * self.bits // BYTE

    def scale(self, dtype: str) -> int:
        """By how many bits what `field` gives is shifted to the left: there are no shifts of bytes to the right."""
        return BYTE - self.bits if dtype == "int8" and not self.bias else 0

    def pack(self, weight: Array) -> Array:
        """The weight [block, taps..., step, lane, depth] as above, in uint8."""
        blocks, *taps, steps, lanes, depth = weight.shape
        apart = weight.reshape(blocks // self.held, self.held, *taps, steps // self.steps, self.steps, lanes, depth)
        fields = np.moveaxis(
            apart.astype(np.uint8) + np.uint8(self.bias), (1, -3), (-3, 0)
        )  # [field, block, taps..., step, held, lane, depth]
        fields &= np.uint8(2**self.bits - 1)
        if self.bits == 3:
            *whole, seventh, eighth = fields
            between = [seventh & 3, eighth & 3, seventh >> 2 | (eighth >> 2) << 1]
            planes = [
                low | part << BETWEEN | high << SECOND
                for low, part, high in zip(whole[::2], between, whole[1::2], strict=True)
            ]
        else:
            places = range(0, BYTE, self.bits)
            planes = [np.bitwise_or.reduce([field << place for field, place in zip(fields, places, strict=True)])]
        return np.ascontiguousarray(np.stack(planes, axis=-3).astype(np.uint8))

    def field(self, plane: Callable[[Expression], Expression], number: Expression, dtype: str) -> Expression:
        """The field of step `number` of those that share bytes, times 2^`scale`.

        plane: gives the byte of a plane. Fields are moved to the top, where their sign is that of the element, but for
        those that have a bias, which stay at the bottom.
        """
        width = int(dtype.removeprefix("u").removeprefix("int"))
        unsigned = f"uint{width}"
        up = 0 if self.bias else width - self.bits

        def piece(byte: Expression, place: Expression, length: int, low: int) -> Expression:
            shifted = plane(byte).astype(unsigned) >> place.astype(unsigned)
            return (shifted & constant(2**length - 1, unsigned)) << constant(low + up, unsigned)

        if self.bits == 3:
            odd = tirx.floormod(number, 2)
            whole = piece(tirx.min(tirx.floordiv(number, 2), 2), odd * SECOND, 3, 0)
            between = piece(odd, constant(BETWEEN, "int32"), 2, 0) | piece(constant(2, "int32"), odd + BETWEEN, 1, 2)
            value = tirx.Select(number < 6, whole, between).astype(dtype)
        else:
            value = piece(constant(0, "int32"), number * self.bits, self.bits, 0).astype(dtype)
        return value if self.bias or self.scale(dtype) else value >> constant(width - self.bits, dtype)


@dataclass(frozen=True)
class PackedDot:
    """A dot of packed weights.

    splits: whether int16 data are multiplied byte by byte, in two sums. joint: whether the products of all steps that
    share bytes are added up before they are widened, see `intrinsic_of`.
    """

    dot: Dot
    packing: WeightPacking
    splits: bool = False
    joint: bool = False

    @property
    def hints(self) -> dict[str, Any]:
        """Those of the stage of sums."""
        intrinsic = intrinsic_of(self.dot, self.packing.steps if self.joint else 1) if self.dot.depth > 1 else ""
        return {"dot": intrinsic, "joint": self.joint}

    @property
    def scale(self) -> int:
        """By how many bits sums are shifted to the left."""
        return self.packing.scale(register_dtype(self.dot))

    @property
    def taken_off(self) -> int:
        """How often the sum of its weights is to be added to a sum, to that of one of the bytes if there are two."""
        if self.dot.weight == "uint8":
            return 0
        if self.splits:
            return -BYTE_SIGN if self.dot.data == "uint8" else BYTE_SIGN
        return -self.dot.offset


def choose_packing(
    weight: Array, dot: Dot, memory: tuple[int, int, int], data: Interval, machine: Machine, width: int = 0
) -> PackedDot | None:
    """How the weight (O, I, taps...) is packed; None where it lies as dots read it.

    It is packed for few positions, so that the sums of all stay in registers and each weight is loaded, and unpacked,
    once, and where that takes less time. One position: always, if bytes are multiplied. Several positions, or int16:
    where the second cache does not hold the weights as dots read them. Many positions: never, since for them the
    products count, and not where weights come from.

    memory: blocks of output channels, input channels, positions. data: its bounds. width: inputs whose sum is taken by
    itself, 0 for all.
    """
    blocks, depth, positions = memory
    if dot.parts > 1 or dot.accumulator != "int32" or not weight.size or positions > MOST_POSITIONS:
        return None
    each_sum = np.abs(weight.astype(np.int32)).reshape(-1, width or weight[0].size)
    reach, most = int(each_sum.sum(axis=1, dtype=np.int64).max()), int(each_sum.max())
    needed, read = _needed_bits(weight), np.dtype(dot.weight).itemsize
    products = width or depth * math.prod(weight.shape[2:])
    for each, splits in _forms(dot, (reach, most), data, machine, width > 0):
        rows, size = positions * (2 if splits else 1), math.prod(weight.shape[1:]) * blocks * dot.lanes
        if size * read < (WORTH_PACKING if positions == 1 and each.is_of_bytes else SECOND_BYTES):
            continue
        odd = each.is_of_bytes and not splits  # else unpacking 3 bits takes longer than reading 4
        lengths = (n for n in STEPS if needed <= n < read * BYTE and (odd or n != 3))
        for bits in lengths if rows <= MOST_POSITIONS else ():
            held = _held(blocks, rows, bits, machine)
            found = _packed_dot(each, bits, held, splits)
            whole = (width or depth) % (each.depth * found.packing.steps) == 0
            if held and whole and _fits(found, reach + found.packing.bias * products):
                return found
    return None


def _packed_dot(dot: Dot, bits: int, held: int, splits: bool) -> PackedDot:
    """Of pairs that are added up in int16, fields stay at the bottom: at the top, they would saturate. So do those
    without a sign."""
    pairs = dot.formed_by.pairs(2**bits - 1) if dot.formed_by is not None else 0
    packing = WeightPacking(bits, held, 2 ** (bits - 1) if pairs or dot.weight == "uint8" else 0)
    return PackedDot(dot, packing, splits, 1 < packing.steps <= pairs)


def _forms(
    dot: Dot, weights: tuple[int, int], data: Interval, machine: Machine, in_slices: bool
) -> Iterator[tuple[Dot, bool]]:
    """The dots that may be packed, each with whether it splits int16.

    The high bytes alone, times 256, may reach beyond the whole by 255 for each unit of weight. In slices,
    bytes with a sign take fields without one, where they hold all data: no sums of weights are read for each slice to
    take an offset of the data off.
    weights: what the absolute values of those of one output channel add up to at most, and the largest.
    """
    reach, most = weights
    any_byte = Interval.of(0, 2**BYTE - 1, ())
    of_bytes = fitting_dot("uint8", "int8", 0, "int32", machine, offset_of_pairs(2 * most, any_byte))
    magnitude = max(abs(int(data.lo.min())), abs(int(data.hi.max())))
    if dot.data == "int16" and of_bytes.is_of_bytes and (magnitude + 2**BYTE) * reach <= INT32_MAX:
        if in_slices and of_bytes.swapped is not None and int(data.hi.max()) <= MOST_IN_BYTES:
            yield of_bytes.swapped, True
        yield of_bytes, True
    yield dot, False


def register_dtype(dot: Dot) -> str:
    """Of an unpacked weight: what the instruction takes, or what is multiplied without one."""
    return dot.accumulator if dot.formed_by is None else dot.weight


def _held(blocks: int, positions: int, bits: int, machine: Machine) -> int:
    """How many blocks of output channels are summed at once; 0 for positions that are too many."""
    if machine.has_tiles and positions >= FEW_TILED:
        return 0
    room = (machine.registers - WORKING - UNPACKING) // positions
    most = min(room, MOST_HELD, MOST_UNROLLED // WeightPacking(bits, 1).steps)
    return max((n for n in divisors(blocks) if n <= most), default=0)


def _needed_bits(weight: Array) -> int:
    lo, hi = int(weight.min()), int(weight.max())
    return max((-lo - 1).bit_length() if lo < 0 else 0, hi.bit_length() if hi > 0 else 0, 1) + 1


def _fits(found: PackedDot, reach: int) -> bool:
    """Whether no sum of shifted weights, or of those with a bias, can leave 32 bits. reach: with the bias."""
    formed_by = found.dot.formed_by
    if formed_by is None or not (found.scale or found.splits or found.packing.bias):
        return True
    return formed_by.fits(0 if found.splits else found.dot.offset, reach << found.scale)


def data_bytes(held: Tensor, dot: Dot) -> Tensor:
    """The stage [2, as in memory...] of the high and the low bytes of int16, as a dot of bytes takes them.

    Those of the other sign have 128 added, or taken off, which `joined_sums` undoes. For weights without a sign, both
    have one, as the digits -128 to 127.
    """
    sign = constant(BYTE_SIGN, "int16")

    def digit(part: Expression, *at: Expression) -> Expression:
        value = held(*at)
        high = (value + sign) >> constant(BYTE, "int16")
        return tirx.Select(part.equal(0), high, value - (high << constant(BYTE, "int16"))).astype(dot.data)

    def byte(part: Expression, *at: Expression) -> Expression:
        value = held(*at)
        high, low = value >> constant(BYTE, "int16"), value & constant(2**BYTE - 1, "int16")
        high, low = (high + sign, low) if dot.data == "uint8" else (high, low - sign)
        return tirx.Select(part.equal(0), high, low).astype(dot.data)

    part_of = digit if dot.weight == "uint8" else byte
    return stage((2, *(int(n) for n in held.shape)), part_of, "bytes", bytes=True)


def initialized_by_data(sums: Tensor, of_data: Tensor) -> Tensor:
    """The stage of `sums`, [..., block, lane], that begin with `of_data`, [...]: the sum of the data, times -bias."""
    shape = tuple(int(n) for n in sums.shape)
    return stage(shape, lambda *at: of_data(*at[:-2]) + sums(*at), "initialized", accumulator_init=True)


def joined_sums(sums: Tensor, form: PackedDot, added: Tensor | None) -> Callable[..., Expression]:
    """The sums at (position..., block, lane) of `sums`, which are scaled and may be those of bytes.

    added: what takes offsets of the data off.
    """

    def plain(*at: Expression) -> Expression:
        return sums(*at) >> constant(form.scale, "int32") if form.scale else sums(*at)

    def joined(*at: Expression) -> Expression:
        value = plain(*at)
        return value if added is None else value + added(*at[-2:])

    def of_bytes(*at: Expression) -> Expression:
        parts = [plain(part, *at) for part in (0, 1)]
        place = 0 if form.dot.data == "uint8" else 1
        parts[place] = parts[place] + added(*at[-2:]) if added is not None else parts[place]
        # TVM must not shift before it takes off what was added: only the whole fits 32 bits.
        return combined(add, [opaque(opaque(parts[0]) << constant(BYTE, "int32")), opaque(parts[1])])

    return of_bytes if form.splits else joined


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
