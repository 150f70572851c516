"""Sums of dots in slices of channels: those of a slice are added up by themselves, and count by a factor.

    sum over the slices g of f[g, o] (sum of the dots in g)

The sums of one slice and the total of those before stay in registers. Weights stay bytes, and so the dots take half of
the instructions that the products f[g, o] W[o] take, of words or of two bytes each; each slice costs instructions of
its own, which `prefers_slices` counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.kernels.dot_intrinsic import intrinsic_of
from mrt.backend.kernels.generic.dot import DotForm, pack_dot
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage, View
from mrt.backend.te.operands import FixedForm, Operand, Packed, Surroundings
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, ravel, unravel
from mrt.symbol import Array
from mrt.symbol.types import type_of

SCALING = 3
"""Instructions for each slice and accumulator: the multiplication by the factor, which is two, and the addition."""


@dataclass(frozen=True)
class SlicedForm(DotForm):
    """A weight in slices of `width` input channels."""

    width: int


def prefers_slices(products: int, own: Dot, folded: Dot, machine: Machine) -> bool:
    """Whether slices of so many products each take fewer instructions by `own`, the dot of their weights, than by
    `folded`, that of the weights with the factors in them: both bytes of these, or words of which half as many fit.

    Tiles multiply both bytes of folded weights in less time than vectors take for one.
    """
    alone, together = (products // dot.depth * dot.parts for dot in (own, folded))
    return not machine.has_tiles and alone + SCALING < together


def pack_slices(
    weight: Array, data: View, accumulator: str, surroundings: Surroundings, pointwise: bool, width: int
) -> Packed | None:
    """The weight (O, I, taps...) as [block, slice, taps..., width / depth, lane, depth]; see `pack_dot`."""
    packed = pack_dot(weight, data, accumulator, surroundings, pointwise, whole=True)
    if packed is None:
        return None
    form, slices = packed.form, -(-weight.shape[1] // width)
    steps = width // form.dot.depth
    (blocks, *taps, _, lanes, depth), array = packed.arrays[0].shape, packed.arrays[0]
    apart = array[..., : slices * steps, :, :].reshape(blocks, *taps, slices, steps, lanes, depth)
    laid = np.ascontiguousarray(np.moveaxis(apart, -4, 1))
    return Packed(SlicedForm(form.dot, form.flat, 1, width), (laid,), (Storage.plain(type_of(laid)),))


def pack_factors(factors: Array, folded: Array, dot: Dot, surroundings: Surroundings) -> Packed:
    """The factors (slices, O) as [block, slice, lane], and what takes off the dot's offset, as [block, 1, lane].

    folded: the weight (O, I, taps...) times its factors.
    """
    length = surroundings.walk.storage.length
    correction = -dot.offset * folded.reshape(len(folded), -1).sum(axis=1)
    arrays = []
    for values in (factors, correction[None]) if dot.offset else (factors,):
        laid = np.zeros((len(values), length), np.int32)
        laid[:, : values.shape[1]] = values
        arrays.append(np.ascontiguousarray(laid.reshape(len(values), -1, dot.lanes).swapaxes(0, 1)))
    return Packed(FixedForm(), tuple(arrays), tuple(Storage.plain(type_of(array)) for array in arrays))


def sliced_products(
    data: View,
    weight: Operand,
    factors: Operand,
    positions: Sequence[int],
    taps: Sequence[int],
    places: Callable[[Sequence[Expression], Sequence[Expression]], list[Expression]],
) -> Callable[..., Expression]:
    """As `dot_products`, of what `pack_slices` and `pack_factors` give."""
    form: SlicedForm = weight.form
    dot, packed, storage, tensor = form.dot, weight.views[0], data.storage, data.tensor
    if storage is None or (inner := storage.inner) is None:
        raise ValueError("dots read a tensor that has an innermost axis")
    blocks, slices, *_, steps, lanes, depth = packed.shape
    axes = [te.reduce_axis((0, n), f"tap{i}") for i, n in enumerate(taps)]
    lengths = {"step": steps, "within": depth, "slice": slices}
    step, within, part = (te.reduce_axis((0, length), name) for name, length in lengths.items())

    def dots(number: Expression, *at: Expression) -> Expression:
        *position, block, lane = at
        index = places(unravel(position[0], tuple(positions)) if form.flat else position, axes)
        held = tensor(*storage.places([*index[:inner], number * form.width + step * depth + within, *index[inner:]]))
        factor = packed(block, number, *axes, step, lane, within)
        return te.sum(held.astype(dot.accumulator) * factor.astype(dot.accumulator), axis=[*axes, step, within])

    def total(*at: Expression) -> Expression:
        *_, block, lane = at
        return te.sum(sums(part, *at) * factors.views[0](block, part, lane), axis=part)

    shape = (*((math.prod(positions),) if form.flat else positions), blocks, lanes)
    sums = stage((slices, *shape), dots, "dots", dot=intrinsic_of(dot), group_blocks=blocks, parts=1)
    totals = stage(shape, total, "total", slices=True)

    def element(channel: Expression, *position: Expression) -> Expression:
        block, lane = tirx.floordiv(channel, lanes), tirx.floormod(channel, lanes)
        at = [ravel(position, tuple(positions))] if form.flat else position
        value = totals(*at, block, lane)
        return value + factors.views[1](block, 0, lane) if dot.offset else value

    return element
