"""Functions of one argument as look-up tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mrt.errors import QuantizationError
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import SAME_SCALE, IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import Target, round_half_away
from mrt.quantization.tensor_plan import UNLIMITED, Plan, TensorPlan
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.functions import FloatFunction
from mrt.symbol.operators.table import MAX_ENTRIES, TableLookup
from mrt.symbol.operators.transform import Concat, SliceAxis
from mrt.symbol.parabolas import near_parabolas
from mrt.symbol.rounding import rounded_steps
from mrt.symbol.types import narrowest_dtype

FINEST = 2**15 - 1
"""The largest magnitude of an entry where the output's own quantizer does not say it."""
FEW_STEPS = 2**8
"""How many steps of a grid are too few to tell where a function is flat."""
FEW_ENTRIES = 2**10
"""Of a table that is looked up as it is."""
COARSEST = 4
"""How much coarser than the output's own quantizer entries may be; beyond that a sum may want them finer."""


def table_reach(op: Symbol, planned: TensorPlan, lo: float, hi: float) -> tuple[float, float]:
    """The part of [lo, hi] beyond which every entry is that at its end: where the function is flat or saturates.

    It is found on a grid of 65,537 values, finer than any table. Where a few of their steps hold all of it, it is found
    anew among these and their neighbours.
    """
    while True:
        grid = np.linspace(lo, hi, MAX_ENTRIES + 1)
        values = _values(op, grid)
        rises = np.zeros(MAX_ENTRIES, bool)
        for target in _target(planned).group_targets:
            rises |= np.diff(_entries(values, target)) != 0
        changes = np.flatnonzero(rises)
        if not changes.size:
            return lo, hi
        first, last = changes[0], changes[-1] + 1
        if last - first >= FEW_STEPS or grid[1] - grid[0] <= np.spacing(max(abs(lo), abs(hi))):
            return float(grid[first]), float(grid[last])
        lo, hi = float(grid[max(first - 1, 0)]), float(grid[min(last + 1, MAX_ENTRIES)])


def expand_table(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Y = f(X) for any f: one entry for each integer that Xq can be.

    Ye = table[Xq - lo],  table[i] = clip(round(f(sx (lo + i - zx)) / sy) + zy, ylo, yhi),  halves away from zero,

    for Xq in [lo, hi] with scale sx and zero point zx, and the output's quantizer (sy, zy, ylo, yhi). X comes at its
    own quantizer: p bits give at most 2^p entries, 256 by default and 65,536 with 16 bits. Where the output goes on to
    another scale than its own (a sum's, the network's output's), sy is that one, as far as entries keep to 16 bits.

    Channel groups of X, of Y or of both give every channel the table of its scales and zero points. These lie behind
    one another in one table, in which the index of a channel begins where its own does: Xq + start[c] - lo[c]. Where
    they are more than 65,536 entries together, as two of 16 bits are, X is cut into slices of as many channels as fit,
    which are merged by Concat. Channels that are alike share their entries, so that groups of one range give one table.

    Entries of long tables are moved to parabolas by up to 2^-14 of what they span where they are near some
    (`mrt/symbol/parabolas.py`), which vectors find without the table. What the network rounds itself is not moved.

    Error: an entry is off by at most e = sy / 2, or where it is moved sy / 2 and 2^-14 of what entries span, and Xq
    stands for reals up to sx / 2 away, so that

        |sy (Ye - zy) - f(x)| <= e + L sx / 2

    for every x and f(x) within the calibrated ranges, L being the Lipschitz constant of f there. A function that jumps
    has the value, to sy / 2, that it takes somewhere within sx / 2 of x.

    The quantizer of X covers no more of the calibrated range than where entries differ: tanh of +-80 is told apart
    within +-3.1 at 8 bits, beyond which X saturates and the entry is the same, so that sx is 26 times finer.

    Infinite values saturate at ylo or yhi. Where f has no value (log of a negative number) the nearest input that has
    one counts.
    """
    data, target = inputs.quantized(0), _target(plan[op])
    if data.groups is not None and target.groups is not None and data.groups.axis != target.groups.axis:
        target = _with_one_scale(plan[op].own, target)
    groups = data.groups or target.groups
    axis = 0 if groups is None else groups.axis
    symbol = _within_a_table(op, data.symbol, plan, builder)
    forms = _forms(symbol, data, target, None if groups is None else axis, builder)
    tables = _tables(op, forms, not rounds_itself(plan[op]))
    found = [_looked_up(op, symbol, axis, table, len(tables) == 1, builder) for table in tables]
    if len(found) > 1:
        dtype = narrowest_dtype(min(int(t.entries.min()) for t in tables), max(int(t.entries.max()) for t in tables))
        found = [builder.apply(Concat(dim=axis), [builder.cast(part, dtype) for part in found])]
    return builder.quantized(found[0], target.scales(op.shape), target.zero_points(op.shape), target.groups)


expansion(FloatFunction, demands=Demand.CHANNELS, reach=table_reach)(expand_table)


@dataclass(frozen=True)
class _Form:
    """How a channel is read and written. lo, hi: its proven integers, real = scale * (q - zero_point)."""

    lo: int
    hi: int
    scale: float
    zero_point: int
    target: Target


@dataclass(frozen=True, eq=False)
class _Table:
    """The table of neighbouring channels, `first` up to `last`: the channel's entry for Xq is at Xq + offsets[c]."""

    first: int
    last: int
    offsets: tuple[int, ...]
    entries: Array


def _within_a_table(op: Symbol, symbol: Symbol, plan: Plan, builder: IntegerBuilder) -> Symbol:
    """The data, of integers that a table has room for; QuantizationError where its own quantizer has more."""
    bounds = builder.bounds(symbol)
    asked = plan.edge(op, 0)
    if asked is not None and bounds.max - bounds.min >= MAX_ENTRIES:
        symbol = builder.narrow(symbol, asked.lo, asked.hi)
        bounds = builder.bounds(symbol)
    if bounds.max - bounds.min >= MAX_ENTRIES:
        raise QuantizationError(
            f"{op.name} ({op.op}): a table of {bounds.max - bounds.min + 1} entries would be needed, {MAX_ENTRIES} are "
            f"allowed; lower activation.bits for {op.inputs[0].name}"
        )
    return symbol


def _forms(symbol: Symbol, data: Quantized, target: Target, axis: int | None, builder: IntegerBuilder) -> list[_Form]:
    """The form of every channel along `axis`, one form without an axis; equal scales share the hull of their bounds."""
    bounds = builder.bounds(symbol).reduced([] if axis is None else [axis])
    length = 1 if axis is None else symbol.shape[axis]

    def each(values: Array) -> list[Any]:
        # A narrowed sum has one scale for each of its own channels, all alike, where groups are along another axis.
        along = values[tuple(slice(None) if a == axis else 0 for a in range(values.ndim))]
        return list(np.broadcast_to(along, (length,)).tolist())

    scales, zero_points = each(data.scale), each(data.zero_points)
    targets = target.channel_targets(length)
    found = [_Form(*form) for form in zip(each(bounds.lo), each(bounds.hi), scales, zero_points, targets, strict=True)]
    hulls: dict[_Form, _Form] = {}
    for form in found:
        alike = replace(form, lo=0, hi=0)
        hull = hulls.get(alike, form)
        hulls[alike] = replace(form, lo=min(form.lo, hull.lo), hi=max(form.hi, hull.hi))
    return [hulls[replace(form, lo=0, hi=0)] for form in found]


def rounds_itself(planned: TensorPlan) -> bool:
    """Whether the network says how what it gives is rounded."""
    return planned.fixed is not None or (planned.next_target is not None and planned.next_target.exact)


def _tables(op: Symbol, forms: list[_Form], may_move: bool) -> list[_Table]:
    """The fewest tables of at most MAX_ENTRIES entries each, for neighbouring channels of these forms.

    may_move: whether entries may be moved to parabolas; those of several forms are not.
    """
    tables: list[_Table] = []
    starts: dict[_Form, int] = {}
    offsets: list[int] = []
    first = total = 0

    def finish(last: int) -> None:
        entries = np.concatenate([_of_form(op, form, may_move and len(starts) == 1) for form in starts])
        tables.append(_Table(first, last, tuple(offsets), entries))

    for channel, form in enumerate(forms):
        length = form.hi - form.lo + 1
        if form not in starts and total + length > MAX_ENTRIES:
            finish(channel)
            starts, offsets, first, total = {}, [], channel, 0
        if form not in starts:
            starts[form] = total
            total += length
        offsets.append(starts[form] - form.lo)
    finish(len(forms))
    return tables


def _of_form(op: Symbol, form: _Form, may_move: bool) -> Array:
    """The entries of one channel, from its least integer to its greatest."""
    reals, target = form.scale * (np.arange(form.lo, form.hi + 1, dtype=np.float64) - form.zero_point), form.target
    values = _values(op, reals)
    entries = _entries(values, target)
    if not may_move or not target.is_half_even or entries.size <= FEW_ENTRIES:
        return entries
    return near_parabolas(np.clip(values / target.scale + target.zero_point, target.lo, target.hi), entries)


def _looked_up(op: Symbol, symbol: Symbol, axis: int, table: _Table, is_whole: bool, builder: IntegerBuilder) -> Symbol:
    """The entries for the table's channels of `symbol`."""
    suffix = "" if is_whole else f"_slice{table.first}"
    if not is_whole:
        cut = SliceAxis(axis=axis, begin=table.first, end=table.last)
        symbol = builder.apply(cut, [symbol], f"{suffix}_data")
    entries = builder.constant(f"{op.name}{suffix}_table", table.entries)
    if len(set(table.offsets)) == 1:
        return builder.apply(TableLookup(offset=table.offsets[0]), [symbol, entries], suffix)
    starts = np.reshape(table.offsets, tuple(-1 if a == axis else 1 for a in range(symbol.type.rank)))
    index = builder.add_constant(symbol, f"{op.name}{suffix}_start", starts, f"{suffix}_index")
    return builder.apply(TableLookup(), [index, entries], suffix)


def _target(planned: TensorPlan) -> Target:
    """The quantizer of the entries; it has channel groups where all that reads the output takes the same."""
    own, read = planned.own, planned.next_target
    if read is None:
        return own
    if read.exact and read.hi < UNLIMITED:
        return read
    return read if read.groups is not None and read.hi < UNLIMITED else _with_one_scale(own, read)


def _with_one_scale(own: Target, read: Target) -> Target:
    """The output's own quantizer, or that of what reads the output next, over the own range."""
    if abs(read.scale / own.scale - 1) < SAME_SCALE or read.scale > COARSEST * own.scale:
        return own
    scale = max(read.scale, own.scale * own.reach / FINEST)
    zero_point = read.zero_point if scale == read.scale else 0
    # The calibrated range is up to half a step away from where a rounded zero point puts the own one.
    moved = 0.5 if own.zero_point else 0.0
    ends = np.array([own.lo - own.zero_point - moved, own.hi - own.zero_point + moved]) * (own.scale / scale)
    lo, hi = (int(end) + zero_point for end in round_half_away(ends))
    if scale == read.scale and read.groups is None:
        lo, hi = max(lo, read.lo), min(hi, read.hi)
    return Target(scale, lo, hi, zero_point=zero_point)


def _values(op: Symbol, reals: Array) -> Array:
    """The function at ascending `reals`, float64; where it has no value, that at the nearest of them which has one."""
    with np.errstate(all="ignore"):
        values = np.asarray(op.operator.evaluate(reals), np.float64)
    known = np.flatnonzero(~np.isnan(values))
    if known.size == values.size:
        return values
    if not known.size:
        raise QuantizationError(f"{op.name} ({op.op}): the function has no value anywhere in its input's range")
    places = np.arange(values.size)
    after = np.clip(np.searchsorted(known, places), 0, known.size - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(known[before] - places) < np.abs(known[after] - places)
    return np.asarray(values[np.where(nearer, known[before], known[after])])


def _entries(values: Array, target: Target) -> Array:
    """`values` at the target, saturated; int64."""
    limit = 2.0**31
    steps = np.clip(values / target.scale, -limit, limit)
    if target.is_half_even:
        return np.asarray(np.clip(round_half_away(steps) + target.zero_point, target.lo, target.hi))
    moved = rounded_steps(steps, np.asarray(target.zero_point), target.rounding, target.zero_point_first)
    return np.clip(moved, target.lo, target.hi).astype(np.int64)
