"""Functions of one argument as look-up tables."""

from __future__ import annotations

import numpy as np

from mrt.errors import QuantizationError
from mrt.quantization.builder import SAME_SCALE, IntegerBuilder
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import Target, round_half_away
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.table import MAX_ENTRIES, TableLookup

FINEST = 2**15 - 1
"""The largest magnitude of an entry where the output's own quantizer does not say it."""
COARSEST = 4
"""How much coarser than the output's own quantizer entries may be; beyond that a sum may want them finer."""

FUNCTIONS = (
    *("sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "softsign", "hard_sigmoid", "softrelu"),
    *("silu", "hard_swish", "mish", "floor", "ceil", "trunc", "round", "rint", "round_half_even", "sign"),
    *("_power_scalar", "_rdiv_scalar", "elementwise_region"),
)
"""The operators of one tensor that always become a table."""


def table_reach(op: Symbol, plan: ScalePlan, lo: float, hi: float) -> tuple[float, float]:
    """The part of [lo, hi] beyond which every entry is that at its end: where the function is flat or saturates.

    It is found on a grid of 65,537 values, finer than any table.
    """
    values = np.linspace(lo, hi, MAX_ENTRIES + 1)
    changes = np.flatnonzero(np.diff(_entries(_values(op, values), _target(op, plan))))
    if not changes.size:
        return lo, hi
    return float(values[changes[0]]), float(values[changes[-1] + 1])


@expansion(*FUNCTIONS, reach=table_reach)
def expand_table(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Y = f(X) for any f: one entry for each integer that Xq can be.

    Ye = table[Xq - lo],  table[i] = clip(round(f(sx (lo + i - zx)) / sy) + zy, ylo, yhi),  halves away from zero,

    for Xq in [lo, hi] with scale sx and zero point zx, and the output's quantizer (sy, zy, ylo, yhi). X comes at its
    own quantizer: p bits give at most 2^p entries, 256 by default and 65,536 with 16 bits. Where the output goes on to
    another scale than its own (a sum's, the network's output's), sy is that one, as far as entries keep to 16 bits.

    Error: an entry is off by at most sy / 2, and Xq stands for reals up to sx / 2 away, so that

        |sy (Ye - zy) - f(x)| <= sy / 2 + L sx / 2

    for every x and f(x) within the calibrated ranges, L being the Lipschitz constant of f there. A function that jumps
    has the value, to sy / 2, that it takes somewhere within sx / 2 of x.

    The quantizer of X covers no more of the calibrated range than where entries differ: tanh of +-80 is told apart
    within +-3.1 at 8 bits, beyond which X saturates and the entry is the same, so that sx is 26 times finer.

    Infinite values saturate at ylo or yhi. Where f has no value (log of a negative number) the nearest input that has
    one counts.
    """
    data = inputs.quantized(0)
    symbol = data.symbol
    bounds = builder.bounds(symbol)
    if bounds.max - bounds.min >= MAX_ENTRIES:
        narrow = plan.narrow[op.inputs[0].name]
        symbol = builder.narrow(symbol, narrow.lo, narrow.hi)
        bounds = builder.bounds(symbol)
    lo, hi = int(bounds.min), int(bounds.max)
    if hi - lo >= MAX_ENTRIES:
        raise QuantizationError(
            f"{op.name} ({op.op}): a table of {hi - lo + 1} entries would be needed, {MAX_ENTRIES} are allowed; "
            f"lower activation.bits for {op.inputs[0].name}"
        )
    target = _target(op, plan)
    reals = data.step * (np.arange(lo, hi + 1, dtype=np.float64) - data.zero_point)
    table = builder.constant(f"{op.name}_table", _entries(_values(op, reals), target))
    found = builder.apply(TableLookup(offset=-lo), [symbol, table])
    return builder.quantized(found, target.scale, target.zero_point)


def _target(op: Symbol, plan: ScalePlan) -> Target:
    """The quantizer of the entries: the output's own, or that of what the output meets next, over the own range."""
    own, meets = plan.own[op.name], plan.meets[op.name]
    if meets is None or abs(meets.scale / own.scale - 1) < SAME_SCALE or meets.scale > COARSEST * own.scale:
        return own
    scale = max(meets.scale, own.scale * own.reach / FINEST)
    zero_point = meets.zero_point if scale == meets.scale else 0
    # The calibrated range is up to half a step away from where a rounded zero point puts the own one.
    moved = 0.5 if own.zero_point else 0.0
    ends = np.array([own.lo - own.zero_point - moved, own.hi - own.zero_point + moved]) * (own.scale / scale)
    lo, hi = (int(end) + zero_point for end in round_half_away(ends))
    if scale == meets.scale:
        lo, hi = max(lo, meets.lo), min(hi, meets.hi)
    return Target(scale, lo, hi, zero_point=zero_point)


def _values(op: Symbol, reals: Array) -> Array:
    """The function at ascending `reals`, float64; where it has no value, that at the nearest of them which has one."""
    with np.errstate(all="ignore"):
        values = np.asarray(op.operator.evaluate(reals), np.float64)
    known = np.flatnonzero(~np.isnan(values))
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
    steps = round_half_away(np.clip(values / target.scale, -limit, limit)) + target.zero_point
    return np.asarray(np.clip(steps, target.lo, target.hi))
