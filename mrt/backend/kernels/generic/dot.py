"""Sums of dots: what convolutions and matrix products have in common; `dot_schedule` forms their loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.dot_instructions import Dot, choose_dot, joined_bytes, weight_bytes
from mrt.backend.kernels.dot_intrinsic import intrinsic_of
from mrt.backend.kernels.generic.accumulator_init import initialized_sums
from mrt.backend.kernels.generic.crossed_dot import (
    STEPS,
    crossed_intrinsic,
    crossed_product,
    crossed_weights,
    crosses,
    of_weights,
    pairs_of_data,
)
from mrt.backend.kernels.generic.narrow_groups import first_channel, merged_groups
from mrt.backend.kernels.generic.packed_weights import (
    PackedDot,
    choose_packing,
    data_bytes,
    initialized_by_data,
    joined_sums,
    unpacked_weights,
)
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.memory.storage import Storage, View
from mrt.backend.schedule.loops import SHORT_ROW
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, Tensor, combined, constant, ravel, unravel
from mrt.symbol import Array
from mrt.symbol.types import type_of

Places = Callable[[Sequence[Expression], Sequence[Expression]], list[Expression]]
"""Gives, of a position and a tap, the index of the data without its channel."""


@dataclass(frozen=True)
class DotForm:
    """How a weight lies in memory, and how its dots are walked.

    flat: all positions are one axis; line: how many of them follow each other in the data, if not all. groups: of
    channels, each of so many `blocks` of output channels that follow each other; the last may have fewer. joins:
    whether sums may be formed for what lies between two lines of positions, too. packed: how weights share bytes, None
    where they lie as dots read them. crossed: whether two steps are one product of sums.
    """

    dot: Dot
    flat: bool
    groups: int
    blocks: int = field(default=0, kw_only=True)
    joins: bool = field(default=False, kw_only=True)
    line: int | None = field(default=None, kw_only=True)
    packed: PackedDot | None = field(default=None, kw_only=True)
    crossed: bool = field(default=False, kw_only=True)


def pack_dot(
    weight: Array,
    data: View,
    accumulator: str,
    surroundings: Surroundings,
    pointwise: bool,
    groups: int = 1,
    whole: bool = False,
    pairs: Pairs | None = None,
) -> Packed | None:
    """The weight (O, I, taps...) of dots over the data's innermost axis, as [block, taps..., I / depth, lane, depth].

    A block is `lanes` output channels, or, of weights of several bytes, one byte of each; the bytes follow each other.
    whole: whether dots go on to the end of the vectors that the channels fill in memory. Those of tiles do, since what
    follows each other there is one row of a tile. pairs: see `choose_dot`.
    None where the data does not lie in memory as any dot reads it, or groups of channels are too narrow for dots.
    Where sums are formed of more than the products of the data's values, as of data with an offset and by crossed dots,
    the second array takes it off again for each output channel.
    """
    source = data.flattened or data
    if (storage := source.storage) is None:
        return None
    dot = choose_dot(source.dtype, weight, accumulator, surroundings.machine, pairs)
    is_run, positions = pointwise and storage.is_one_run, surroundings.walk.positions
    if (storage.dtype, storage.offset) != (dot.data, dot.offset):
        if storage.offset:
            return None
        dot = Dot(storage.dtype, 0, weight.dtype.name, 1, dot.lanes, accumulator)
    weight, groups = merged_groups(weight, groups, dot, surroundings.walk.storage.length)
    flat = surroundings.walk.flat and (is_run or (not dot.instruction and math.prod(positions) <= SHORT_ROW))
    per_group, inputs, length = len(weight) // groups, weight.shape[1], surroundings.walk.storage.length
    depth = storage.depth if groups == 1 else inputs
    blocks = (per_group if groups > 1 else length) // dot.lanes
    if groups == 1 and not whole:
        memory, known = (blocks, depth, math.prod(positions)), surroundings.bounds[0]
        found = choose_packing(weight, dot, memory, known, surroundings.machine)
        if found is not None:
            return pack_fields(weight, found, (blocks, depth), flat)
    if data.flattened is None and not (whole or (dot.instruction and surroundings.machine.has_tiles)):
        depth = min(depth, -(-inputs // dot.depth) * dot.depth)
    if depth % dot.depth or (groups > 1 and per_group % dot.lanes):
        return None
    packed = _in_blocks(weight.reshape(groups, per_group, *weight.shape[1:]), dot, blocks, depth)
    packed = packed[: length // dot.lanes * dot.parts]
    line, joins = positions[-1] if flat and not is_run else None, surroundings.machine.has_tiles and groups == 1
    form = DotForm(dot, flat, groups, blocks=blocks * dot.parts, joins=joins, line=line)
    if groups == 1 and not whole and crosses(weight, dot, depth, flat, surroundings):
        return _packed_as(replace(form, crossed=True), [crossed_weights(packed), of_weights(packed)])
    return _packed_as(form, [packed, _correction(packed, dot)] if dot.offset else [packed])


def _packed_as(form: DotForm, arrays: Sequence[Array]) -> Packed:
    return Packed(form, tuple(arrays), tuple(Storage.plain(type_of(array)) for array in arrays))


def _in_blocks(weight: Array, dot: Dot, blocks: int, depth: int) -> Array:
    """The weight (groups, O, I, taps...) as [block, taps..., depth / dot.depth, lane, dot.depth], padded by 0.

    blocks: of a group. depth: input channels of the result.
    """
    groups, outputs, inputs, *taps = weight.shape
    rows = weight.astype(dot.weight if dot.parts == 1 else weight.dtype, copy=False)
    missing = blocks * dot.lanes - outputs, depth - inputs
    if any(missing):
        rows = np.pad(rows, [(0, 0), *((0, length) for length in missing), *((0, 0) for _ in taps)])
    rows = rows.reshape(groups * blocks, dot.lanes, depth // dot.depth, dot.depth, *taps)
    if dot.parts > 1:
        rows = np.moveaxis(weight_bytes(rows), 0, 1).reshape(-1, *rows.shape[1:])
    return np.moveaxis(rows, (1, 2, 3), (-2, -3, -1))


def pack_fields(weight: Array, packed: PackedDot, padded: tuple[int, int], flat: bool) -> Packed:
    """The weight (O, I, taps...) with its fields in shared bytes. padded: blocks and input channels in memory."""
    apart = _in_blocks(weight[None], packed.dot, *padded)
    arrays = [packed.packing.pack(apart)]
    if packed.taken_off:
        arrays.append(np.asarray(packed.taken_off * _summed(apart)))
    return _packed_as(DotForm(packed.dot, flat, 1, packed=packed), arrays)


def _correction(packed: Array, dot: Dot) -> Array:
    """What takes the offset of the data off the sums, [block, lane]."""
    return np.asarray(-dot.offset * joined_bytes(_summed(packed).reshape(-1, dot.parts, dot.lanes).swapaxes(0, 1)))


def _summed(packed: Array) -> Array:
    """The weights of each output channel [block, lane], added up."""
    return np.asarray(packed.sum(axis=(*range(1, packed.ndim - 2), packed.ndim - 1), dtype=np.int32))


def pack_bias(bias: Array, surroundings: Surroundings) -> Packed | None:
    """A bias (O,) as long as the innermost axis of the result; what it pads is never read as a value."""
    if surroundings.walk.inner is None:
        return None
    storage = Storage.with_inner(type_of(bias), 0, surroundings.walk.storage.length)
    return Packed(None, (storage.lay(bias),), (storage,))


def dot_products(
    data: View,
    weight: Operand,
    positions: Sequence[int],
    taps: Sequence[int],
    places: Places,
    bias: Tensor | None = None,
) -> Callable[..., Expression]:
    """A function of (output channel, position...) that gives the sum over taps and input channels, plus a bias."""
    form: DotForm = weight.form
    dot, held = form.dot, _reader(data, form, positions, places)
    sums = _sums(data, weight, positions, taps, places, held)
    added = weight.views[1] if len(weight.views) > 1 else None
    of_data = pairs_of_data(sums, weight.views[0], taps, dot, held) if form.crossed else None
    is_plain = dot.parts == 1 and form.packed is None
    initialized = initialized_sums(sums, dot, added, bias, of_data) if is_plain else None
    whole = _whole_sums(sums, dot, added) if form.packed is None else joined_sums(sums, form.packed, added)

    def element(channel: Expression, *position: Expression) -> Expression:
        # Where there are several groups, the channels of each fill whole blocks.
        block, lane = tirx.floordiv(channel, dot.lanes), tirx.floormod(channel, dot.lanes)
        at = [ravel(position, tuple(positions))] if form.flat else position
        if initialized is not None:
            return initialized(*at, block, lane)
        terms = [whole(*at, block, lane)]
        if of_data is not None:
            terms.append(of_data(*at))
        if bias is not None:
            terms.append(bias(channel).astype(dot.accumulator))
        return combined(add, terms) if terms[1:] else terms[0]

    return element


def _reader(data: View, form: DotForm, positions: Sequence[int], places: Places) -> Callable[..., Expression]:
    """A function of (place of a sum, taps, channel) that gives what memory holds of the data, offset included."""
    storage, inner = _memory(data)
    bytewise = form.packed is not None and form.packed.splits
    read = data_bytes(data.tensor, form.dot) if bytewise else data.tensor

    def held(at: Sequence[Expression], taps: Sequence[Expression], channel: Expression) -> Expression:
        position = unravel(at[-1], tuple(positions)) if form.flat else at[bytewise:]
        index = places(position, taps)
        return read(*at[:bytewise], *storage.places([*index[:inner], channel, *index[inner:]]))

    return held


def _memory(data: View) -> tuple[Storage, int]:
    """How the data lie in memory, and their innermost axis there."""
    if data.storage is None or data.storage.inner is None:
        raise ValueError("dots read a tensor that has an innermost axis")
    return data.storage, data.storage.inner


def _whole_sums(sums: Tensor, dot: Dot, added: Tensor | None) -> Callable[..., Expression]:
    """The sums at (position..., block, lane) of whole weights. added: what takes the offset of the data off.

    Those of several bytes are a stage: sums that wait in memory are joined there, and read as those of one byte are;
    sums in registers where they are read.
    """
    *positions, blocks, lanes = (int(n) for n in sums.shape)

    def joined(*at: Expression) -> Expression:
        *position, block, lane = at
        return joined_bytes([sums(*position, block * dot.parts + part, lane) for part in range(dot.parts)])

    whole = sums
    if dot.parts > 1:
        whole = stage((*positions, blocks // dot.parts, lanes), joined, "whole", whole=True)
    return lambda *at: whole(*at) if added is None else whole(*at) + added(*at[-2:])


def _sums(
    data: View,
    weight: Operand,
    positions: Sequence[int],
    taps: Sequence[int],
    places: Places,
    held: Callable[..., Expression],
) -> Tensor:
    """The stage [positions..., block, lane] of the sums of what memory holds, as `held` gives it, times the weights."""
    form: DotForm = weight.form
    dot, groups, packed, (storage, inner) = form.dot, form.groups, weight.views[0], _memory(data)
    weights = packed if form.packed is None else unpacked_weights(packed, form.packed.packing, dot)
    total, *lengths = (int(n) for n in weights.shape[:-2])
    blocks, lengths = form.blocks if groups > 1 else total, lengths[len(taps) :]
    axes, steps, within = _reductions(dot, taps, lengths)
    term, reduced = within[0] if within else 0, [*axes, *steps, *within]
    width = dot.depth * (STEPS if form.crossed else 1)

    def value(at: Sequence[Expression], block: Expression | int = 0, step: int = 0) -> Expression:
        channel = ravel(steps, lengths) * width + step * dot.depth + term
        if groups > 1:
            group, depth = tirx.floordiv(block, blocks), math.prod(lengths) * width
            channel += first_channel(group, groups, depth, storage.type.shape[inner])
        return held(at, axes, channel)

    def dots(*at: Expression) -> Expression:
        *position, block, lane = at

        def factor(step: int) -> Expression:
            return weights(block, *axes, *steps, step * dot.lanes + lane, term)

        product = crossed_product if form.crossed else _product
        return te.sum(product(lambda step: value(position, block, step), factor, dot), axis=reduced)

    walked = _walked(form, storage, positions, lambda at: places(at, [0 for _ in taps]))
    sums = stage((*walked, total, dot.lanes), dots, "dots", **_hints(form, total))
    if form.packed is None or not (bias := form.packed.packing.bias):
        return sums
    taken_off = constant(-bias, "int32")
    of_data = stage(tuple(walked), lambda *at: te.sum(value(at).astype("int32") * taken_off, axis=reduced), "of_data")
    return initialized_by_data(sums, of_data)


def _product(data: Callable[[int], Expression], weights: Callable[[int], Expression], dot: Dot) -> Expression:
    """That of one step. data, weights: give those of step 0."""
    return data(0).astype(dot.accumulator) * weights(0).astype(dot.accumulator)


def _reductions(dot: Dot, taps: Sequence[int], lengths: Sequence[int]) -> tuple[list[Any], list[Any], list[Any]]:
    """The axes over taps, over steps and what several steps share, and within a dot."""
    axes = [te.reduce_axis((0, n), f"tap{i}") for i, n in enumerate(taps)]
    steps = [te.reduce_axis((0, n), name) for n, name in zip(lengths, ("step", "field"), strict=False)]
    return axes, steps, [te.reduce_axis((0, dot.depth), "within")] if dot.depth > 1 else []


def _hints(form: DotForm, blocks: int) -> dict[str, Any]:
    """Those of the stage of sums of so many blocks."""
    dot, group = form.dot, form.blocks if form.groups > 1 else blocks
    hints: dict[str, Any] = {"group_blocks": math.gcd(group, blocks), "parts": dot.parts, "line": form.line}
    if form.crossed:
        return {**hints, "dot": crossed_intrinsic(dot), "crossed": True}
    if form.packed is not None:
        return {**hints, **form.packed.hints}
    return {**hints, "dot": intrinsic_of(dot) if dot.depth > 1 else ""}


def _walked(
    form: DotForm,
    storage: Storage,
    positions: Sequence[int],
    places: Callable[[Sequence[Expression]], list[Expression]],
) -> list[int]:
    """The lengths of the axes of positions of the stage of sums, and of the bytes of the data before, where these are
    multiplied by themselves. places: of the first tap of a position.
    """
    bytewise = [2] if form.packed is not None and form.packed.splits else []
    if form.flat:
        return [*bytewise, math.prod(positions)]
    walked = list(positions)
    if form.joins and len(walked) > 1 and storage.inner is not None:
        walked[-1] = max(walked[-1], _line_pitch(storage, storage.inner, len(walked), places))
    return [*bytewise, *walked]


def _line_pitch(
    storage: Storage, inner: int, rank: int, places: Callable[[Sequence[Expression]], list[Expression]]
) -> int:
    """How many positions of the last axis lie in memory from one of the axis before to the next; 0 if no whole one."""

    def place(axis: int) -> int:
        index = places([constant(int(i == axis), "int32") for i in range(rank)])
        return int(ravel(storage.places([*index[:inner], constant(0, "int32"), *index[inner:]]), storage.shape))

    here, line, position = place(-1), place(rank - 2), place(rank - 1)
    return (line - here) // (position - here) if (line - here) % (position - here) == 0 else 0
