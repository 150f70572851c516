"""Packed weights in slices of inputs: the sums of a slice count by a factor, and may be shifted before they are added.

    sum over the slices g of right_shift(f[g, o] (sum of the dots in g), s)

The sums of a slice and the total of those before stay in registers, as in `sliced_dot`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.generic.dot import pack_fields
from mrt.backend.kernels.generic.packed_weights import (
    PackedDot,
    data_bytes,
    initialized_by_data,
    joined_sums,
    unpacked_weights,
)
from mrt.backend.kernels.generic.sliced_dot import SlicedForm
from mrt.backend.memory.storage import Storage, View
from mrt.backend.te.operands import FixedForm, Operand, Packed
from mrt.backend.te.rounding import Rounding, fits_by_addition
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, opaque, ravel, unravel
from mrt.symbol import Array, Interval
from mrt.symbol.types import narrowest_dtype, type_of


@dataclass(frozen=True)
class RowSlicesForm(SlicedForm):
    """A packed weight in slices of `width` inputs. rounding: how the shift of a slice's sum times its factor rounds."""

    rounding: Rounding


def pack_row_slices(
    weight: Array, packed: PackedDot, memory: tuple[int, int], flat: bool, width: int, rounding: Rounding
) -> Packed:
    """The weight (O, K) as `WeightPacking` says. memory: blocks of outputs, and inputs, none of which pads."""
    made = pack_fields(weight, packed, memory, flat)
    form = RowSlicesForm(packed.dot, flat, 1, width, rounding, packed=packed)
    return Packed(form, made.arrays[:1], made.storages[:1])


def rounding_of(weight: Array, factors: Array, data: Interval, shift: int) -> Rounding:
    """How products of the factors (slices, O) and sums of slices of the weight (O, K) round. data: its bounds."""
    magnitude = max(abs(int(data.lo.min())), abs(int(data.hi.max())))
    each = np.abs(weight, dtype=np.int64).reshape(len(weight), len(factors), -1).sum(axis=2).T
    most = int((each * np.abs(factors, dtype=np.int64)).max()) * magnitude
    return Rounding.ADDED if fits_by_addition(Interval.of(-most, most, ()), np.array(shift)) else Rounding.TWO_SHIFTS


def pack_row_factors(factors: Array, weight: Array, packed: PackedDot, blocks: int) -> Packed:
    """The factors (slices, O), and the sum of the weights of each slice, as [block / held, slice, held, lane]."""
    slices, held, lanes = len(factors), packed.packing.held, packed.dot.lanes
    sums = weight.reshape(len(weight), slices, -1).sum(axis=2, dtype=np.int32).T
    sums = sums.astype(narrowest_dtype(int(sums.min()), int(sums.max())))
    arrays = []
    for values in (factors, sums) if packed.taken_off else (factors,):
        laid = np.zeros((slices, blocks * lanes), values.dtype)
        laid[:, : values.shape[1]] = values
        arrays.append(np.ascontiguousarray(laid.reshape(slices, -1, held, lanes).swapaxes(0, 1)))
    return Packed(FixedForm(), tuple(arrays), tuple(Storage.plain(type_of(array)) for array in arrays))


def row_slices(
    data: View, weight: Operand, factors: Operand, positions: Sequence[int], shift: int
) -> Callable[..., Expression]:
    """A function of (output channel, position...) that gives the sum over all slices."""
    form: RowSlicesForm = weight.form
    if form.packed is None:
        raise ValueError("weights in slices of rows are packed")
    packed, (_, slices, held, lanes) = form.packed, factors.views[0].shape
    sums = _sums_of_slices(data, weight, slices, positions)
    part = te.reduce_axis((0, slices), "slice")

    def at_block(view: Tensor, block: Expression, lane: Expression) -> Expression:
        return view(tirx.floordiv(block, held), part, tirx.floormod(block, held), lane).astype("int32")

    def added(block: Expression, lane: Expression) -> Expression:
        return at_block(factors.views[1], block, lane) * packed.taken_off

    def total(*at: Expression) -> Expression:
        offset = added if packed.taken_off else None
        whole = joined_sums(partial(sums, part), packed, offset)
        scaled = opaque(whole(*at)) * at_block(factors.views[0], *at[-2:])
        return te.sum(rounded(scaled, shift, form.rounding), axis=part)

    shape = tuple(int(n) for n in sums.shape[1 + packed.splits :])
    totals = stage(shape, total, "total", slices=True)

    def element(channel: Expression, *position: Expression) -> Expression:
        at = [ravel(position, tuple(positions))] if form.flat else position
        return totals(*at, tirx.floordiv(channel, lanes), tirx.floormod(channel, lanes))

    return element


def _sums_of_slices(data: View, weight: Operand, slices: int, positions: Sequence[int]) -> Tensor:
    """The stage [slice, positions..., block, lane] of sums as `joined_sums` takes them."""
    form: SlicedForm = weight.form
    packed, dot, storage = form.packed, form.dot, data.storage
    if packed is None or storage is None:
        raise ValueError("packed weights are multiplied with a tensor in memory")
    weights = unpacked_weights(weight.views[0], packed.packing, dot)
    blocks, steps, fields, lanes, _ = (int(n) for n in weights.shape)
    read = data_bytes(data.tensor, dot) if packed.splits else data.tensor
    lengths = {"step": steps // slices, "field": fields, "within": dot.depth}
    step, field, within = (te.reduce_axis((0, length), name) for name, length in lengths.items())
    term, reduced = (within, [step, field, within]) if dot.depth > 1 else (0, [step, field])

    def held(number: Expression, at: Sequence[Expression]) -> Expression:
        index = unravel(at[-1], tuple(positions)) if form.flat else at[packed.splits :]
        channel = ((number * lengths["step"] + step) * fields + field) * dot.depth + term
        return read(*at[: packed.splits], *storage.places([*index, channel])).astype(dot.accumulator)

    def dots(number: Expression, *at: Expression) -> Expression:
        *position, block, lane = at
        factor = weights(block, number * lengths["step"] + step, field, lane, term).astype(dot.accumulator)
        return te.sum(held(number, position) * factor, axis=reduced)

    def of_data(number: Expression, *at: Expression) -> Expression:
        return te.sum(held(number, at) * constant(-packed.packing.bias, "int32"), axis=reduced)

    walked = (math.prod(positions),) if form.flat else tuple(positions)
    shape = (slices, *([2] * packed.splits), *walked)
    sums = stage((*shape, blocks, lanes), dots, "dots", group_blocks=blocks, parts=1, **packed.hints)
    return initialized_by_data(sums, stage(shape, of_data, "of_data")) if packed.packing.bias else sums


def rounded(value: Expression, shift: int, rounding: Rounding = Rounding.TWO_SHIFTS) -> Expression:
    """The shift to the right that rounds half up, of any int32, or of one that a half can be added to."""
    if not shift:
        return value
    if rounding is Rounding.ADDED:
        return opaque(value + constant(1 << (shift - 1), "int32")) >> constant(shift, "int32")
    one = constant(1, "int32")
    return (opaque(opaque(value) >> constant(shift - 1, "int32")) + one) >> one
