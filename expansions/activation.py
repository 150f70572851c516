"""relu, clip, limits to one side, and LeakyReLU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from expansions.addition import GUARD_BITS, finer_by
from expansions.exact_sum import exact_sum
from expansions.multiplication import scaled
from expansions.table import expand_table, table_reach
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, all_inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.plan.trained import saturation_range
from mrt.quantization.quantizer import Target, round_half_away
from mrt.quantization.tensor_plan import UNLIMITED, Plan
from mrt.symbol import Array, Graph, Operator, Symbol
from mrt.symbol.interval import signed_bits
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, per_channel
from mrt.symbol.operators.elementwise import ElemwiseSub
from mrt.symbol.operators.functions import Negative
from mrt.symbol.operators.selection import BroadcastMaximum, BroadcastMinimum, MaximumScalar, MinimumScalar
from mrt.symbol.types import INT32_MAX

ON_GRID = 1e-4
"""A limit this near to an integer is that integer, in steps of a scale that comes from float32 limits."""

FINER_BITS = 8


def _relu_form(symbol: Symbol, graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    """The steps that are left of the input's, counted from the real zero."""
    source = sources[0]
    if source is None:
        return None
    if source.groups is None:
        most = max(source.hi - source.zero_point, 0)
        return replace(source, lo=max(source.lo - source.zero_point, 0), hi=most, zero_point=0)
    most = max(max(source.hi - zero for zero in source.groups.zero_points), 0)
    return replace(source, lo=0, hi=most, groups=source.groups.centred)


@expansion(Relu, demands=Demand.WIDE, trained_form=_relu_form)
def expand_relu(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = max(0, Xq - zx) at sx: relu of "MRT Generalized Quantization Math Formalization". Exact at any scale."""
    data = builder.centred(inputs.quantized(0))
    if builder.bounds(data.symbol).min >= 0:
        return data
    groups = data.groups if plan[op].fixed is not None else None
    return builder.quantized(builder.apply(Relu(), [data.symbol]), data.scale, groups=groups)


def _clip_form(symbol: Symbol, graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    """The input's form, saturated earlier, where the limits are integers of it or beyond what it holds."""
    source = sources[0]
    if source is None or source.groups is not None:
        return None
    limits = symbol.operator.limits
    least, most = (np.clip(limit / source.scale, -(2.0**31), 2.0**31) + source.zero_point for limit in limits)
    lo, hi = (int(np.clip(np.rint(end), source.lo, source.hi)) for end in (least, most))
    on_grid = (
        abs(end - np.rint(end)) <= ON_GRID or not source.lo < end < source.hi for end in (float(least), float(most))
    )
    return replace(source, lo=lo, hi=hi) if all(on_grid) else None


@expansion(
    Clip,
    MaximumScalar,
    MinimumScalar,
    demands=Demand.OUTPUT,
    trained_form=_clip_form,
    defers_rounding=lambda symbol: True,
)
def expand_clip(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """The input at the output's quantizer, saturated at round(limit / s) + z, in channel groups at each one's.

    Where quantizers of the network round behind it, the input as it is, with one limit for each of its scales; without
    a limit beyond which these saturate.
    """
    data, limits = inputs.quantized(0), op.operator.limits
    if plan.edge(op, 0) is None:
        limits = _needed(limits, saturation_range(plan.graph, op))
        data = _finer(op, _at_quantizer(op, data, limits, plan, builder), limits, builder)
    steps = [np.clip(limit / data.scale, -(2.0**31), 2.0**31) for limit in limits]
    least, most = (round_half_away(limit) + data.zero_points for limit in steps)
    symbol, bounds = data.symbol, builder.bounds(data.symbol)
    if data.is_uniform:
        least, most = least.reshape(-1)[:1], most.reshape(-1)[:1]
        if least.item() <= bounds.min and bounds.max <= most.item():
            return data
        return builder.like(builder.narrow(symbol, least.item(), most.item()), data)
    lo, hi = int(bounds.min), int(bounds.max)
    if (least > lo).any():
        symbol = _compared(BroadcastMaximum(), symbol, np.clip(least, lo, hi), builder)
    if (most < hi).any():
        symbol = _compared(BroadcastMinimum(), symbol, np.clip(most, lo, hi), builder)
    return builder.like(builder.narrow(symbol, lo, hi), data)


def _needed(limits: tuple[float, float], told: tuple[float, float] | None) -> tuple[float, float]:
    """The limits, infinite where they are at or beyond the range that is told apart behind them."""
    if told is None:
        return limits
    slack = ON_GRID * (told[1] - told[0]) / 2**8
    return (
        -np.inf if limits[0] <= told[0] + slack else limits[0],
        np.inf if limits[1] >= told[1] - slack else limits[1],
    )


def _at_quantizer(
    op: Symbol, data: Quantized, ends: tuple[float, float], plan: Plan, builder: IntegerBuilder
) -> Quantized:
    """`data` in parts of the steps of the quantizer behind, where its own are coarser than these and hold no limit."""
    target = plan[op].next_target
    if target is None or not target.exact or target.groups is not None or (data.scale <= target.scale).all():
        return data
    if _are_on_grid(data, ends, target.scale):
        return data
    data, none = builder.centred(data), np.zeros((1,) * op.type.rank)
    # From here on all integers but 0 saturate.
    ratio = np.minimum(data.scale / target.scale, target.reach + 2.0)
    most = np.minimum(np.ceil((target.reach + 1) / ratio) + 1, INT32_MAX).astype(np.int64)
    held = _compared(BroadcastMaximum(), _compared(BroadcastMinimum(), data.symbol, most, builder), -most, builder)
    total, shift = builder.weighted_sum([(held, ratio)], none, one_shift=True)
    return builder.quantized(total, np.ldexp(np.full((1,) * op.type.rank, target.scale), -shift))


def _are_on_grid(data: Quantized, ends: tuple[float, float], step: float = np.inf) -> bool:
    """Whether the finite ones of these limits are integers of `data`, at all of its scales; to ON_GRID of its steps,
    and of `step`."""
    steps, within = [end / data.scale for end in ends if math.isfinite(end)], ON_GRID * np.minimum(step / data.scale, 1)
    return all(bool((np.abs(each - np.rint(each)) <= within).all()) for each in steps)


def _finer(op: Symbol, data: Quantized, ends: tuple[float, float], builder: IntegerBuilder) -> Quantized:
    """`data` at an integer part of its scale where a limit is no integer of it, as fine as 32 bits and 8 more allow."""
    room = min(29 - signed_bits(int(builder.bounds(data.symbol).magnitude)), FINER_BITS)
    if room < 1 or _are_on_grid(data, ends):
        return data
    return finer_by(room, op, data, builder)


def _compared(operator: Operator, symbol: Symbol, limits: Array, builder: IntegerBuilder) -> Symbol:
    """`symbol` against one limit a channel, both in int32 since the operator takes one dtype."""
    constant = builder.constant(f"{symbol.name}_{operator.op}_limit", limits)
    return builder.apply(operator, [builder.cast(symbol, "int32"), builder.cast(constant, "int32")], "_clip")


def _leaky_demands(symbol: Symbol[LeakyReLU], graph: Graph) -> tuple[Demand, ...]:
    return all_inputs(Demand.WIDE if symbol.operator.is_linear else Demand.CHANNELS)(symbol, graph)


@expansion(LeakyReLU, demands=_leaky_demands, guard_bits=GUARD_BITS, reach=table_reach)
def expand_leaky_relu(op: Symbol[LeakyReLU], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """max(X, 0) - slope * max(-X, 0), both halves brought to the common scale s; a table for elu, selu and gelu.

    Ye = requantize(max(Xq - zx, 0), sx / s) - requantize(sign(slope) max(zx - Xq, 0), |slope| sx / s)

    with one slope, or (prelu) one a channel, of any sign and size: it is part of the scale, not rounded by itself.
    One of the halves is always 0, so that Ye is off by at most half a step of s, which is 4 bits finer than what reads
    it next, and by the rounding of the multipliers. Before a quantizer of the network it is an `exact_sum`.
    Source: Quantize Scale of "MRT Generalized Quantization Math Formalization", for the two halves.
    """
    if not op.operator.is_linear:
        return expand_table(op, inputs, plan, builder)
    data = builder.centred(inputs.quantized(0))
    slope = _slope(op, inputs)
    # Not max(x, 0) - x, whose terms are correlated: its bounds would be twice what it reaches.
    above = Quantized.of(builder.apply(Relu(), [data.symbol], "_positive"), data.scale)
    negative = builder.apply(Relu(), [builder.apply(Negative(), [data.symbol], "_opposite")], "_negative")
    below = scaled(Quantized.of(negative, data.scale), slope, f"{op.name}_slope", builder)
    if plan[op].is_summed_exactly:
        return exact_sum(op, [(above, 1.0), (below, -1.0)], np.zeros((1,) * op.type.rank), plan, builder)
    scale = plan[op].common_scale
    top = plan.common_target(op, 0).hi
    upper = builder.requantize(above, Target(scale, 0, top, pinned=True))
    if not slope.any():
        return upper
    reach = min(math.ceil(top * max(float(np.abs(slope).max()), 1.0)), UNLIMITED)
    lo, hi = -reach if (slope < 0).any() else 0, reach if (slope > 0).any() else 0
    lower = builder.requantize(below, Target(scale, lo, hi, pinned=True))
    return builder.quantized(builder.apply(ElemwiseSub(), [upper.symbol, lower.symbol]), scale)


def _slope(op: Symbol[LeakyReLU], inputs: Inputs) -> Array:
    """The slope below 0, of the data's rank: one value, or one a channel."""
    rank = op.type.rank
    if len(op.inputs) == 1:
        return np.full((1,) * rank, op.operator.slope)
    return per_channel(inputs.parameter(1).astype(np.float64), rank)
