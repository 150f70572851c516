"""Hard swish: a table of few entries, or a product of the data and a ramp."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expansions.table import expand_table, rounds_itself, table_reach
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import round_half_away
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Interval, Symbol
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.functions import HardSwish
from mrt.symbol.operators.integer import LeftShift, RightShift
from mrt.symbol.operators.region import ElementwiseRegion, Expression, parse_expression
from mrt.symbol.operators.table import MAX_ENTRIES
from mrt.symbol.types import INT32_MAX

FEW_ENTRIES = 2**8
"""Of a table that vectors look up at once."""
FINEST, COARSEST = 4, -3
"""Bits by which the ramp is finer than the data, at most; as negative ones, by which it is coarser."""
KNEE = 3.0
"""The function is 0 below -KNEE, and x above KNEE."""
HARD_SWISH = Expression(HardSwish(), (Expression(),))
"""As expressions have it."""


@dataclass(frozen=True)
class _Line:
    """gain * hard_swish(x) + offset."""

    gain: float
    offset: float


@expansion(HardSwish, demands=Demand.CHANNELS, reach=table_reach)
def expand_hard_swish(op: Symbol[HardSwish], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Y = X clip(X / 6 + 1/2, 0, 1): a table of up to 256 entries; where X has more integers, a product.

    With p = Xq - zx, and a ramp of h steps from 0 to its middle, which are k bits finer than those of X,

        Ye = p clip(2^k p + h, 0, 2 h) at the scale sx / (2 h),   h = round(3 * 2^k / sx),

    0 at the ramp's one end and p at its other, exactly. k is 4, or as much as 32 bits allow; below 0, 2^k p is rounded.
    A table stays where the network brings the quantizer behind it, which rounds the function itself, and for data in
    channel groups.

    Error: the ramp is longer or shorter than 6 by 2^-k sx at most, which moves Y by x^2 / 36 of that, and where k is
    below 0 its place is off by 2^-k sx / 2, which moves Y by |x| / 6 of that; |x| is 3 at most on the ramp, so that

        |y - f(x)| <= L sx / 2 + 2^-k sx / 4 (twice the second one for k < 0)

    for every x in the calibrated range, L being the Lipschitz constant of f there, before what reads Y rounds.
    """
    return _expanded(op, _Line(1.0, 0.0), inputs, plan, builder)


@expansion(ElementwiseRegion, demands=Demand.CHANNELS, reach=table_reach)
def expand_region(op: Symbol[ElementwiseRegion], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """A table; but g hard_swish(X) + b with g > 0 is expanded as hard swish at g times the scale s, plus round(b / s).

    Its error is g times that of hard swish, and s / 2.
    """
    inner, gain, offset = parse_expression(op.operator.expression).as_line()
    if inner != HARD_SWISH or gain <= 0:
        return expand_table(op, inputs, plan, builder)
    return _expanded(op, _Line(gain, offset), inputs, plan, builder)


def _expanded(op: Symbol, line: _Line, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """A product where the data's integers are too many for a short table, and not too many for any."""
    data = inputs.quantized(0)
    bounds = builder.bounds(data.symbol)
    if rounds_itself(plan[op]) or not data.is_uniform or not FEW_ENTRIES <= bounds.max - bounds.min < MAX_ENTRIES:
        return expand_table(op, inputs, plan, builder)
    data = builder.centred(data)
    ramp = _ramp(builder.bounds(data.symbol), float(data.scale.flat[0]), line)
    return expand_table(op, inputs, plan, builder) if ramp is None else _product(op, data.symbol, ramp, builder)


@dataclass(frozen=True)
class _Ramp:
    """Of so many bits finer steps than the data's, `half` of them to its middle. scale, offset: of the product."""

    finer: int
    half: int
    scale: float
    offset: int

    @property
    def shift(self) -> LeftShift | RightShift:
        """What makes its steps of the data's, by as many bits."""
        return LeftShift() if self.finer > 0 else RightShift()


def _ramp(data: Interval, scale: float, line: _Line) -> _Ramp | None:
    """The finest ramp by which all products, and what leads to them, fit 32 bits; None where none does."""
    lo, hi = int(data.min), int(data.max)
    for finer in range(FINEST, COARSEST - 1, -1):
        half = int(round_half_away(np.array(KNEE * 2.0**finer / scale)))
        if not half:
            return None
        product_scale = line.gain * scale / (2 * half)
        offset = round_half_away(np.array(line.offset / product_scale))
        end = min(np.ceil(hi * 2.0**finer) + half, 2 * half)
        longest = max(abs(lo), abs(hi)) * max(2.0**finer, 1.0) + half
        if max(longest, max(abs(lo), abs(hi)) * max(end, 0) + abs(offset)) <= INT32_MAX:
            return _Ramp(finer, half, product_scale, int(offset))
    return None


def _ends(data: Interval, ramp: _Ramp) -> tuple[int, int]:
    """The least and the largest product, which intervals do not tell: its factors are not independent."""
    x = np.arange(int(data.min), int(data.max) + 1)
    line = ramp.shift.evaluate(x, np.array(abs(ramp.finer))) + ramp.half
    products = x * np.clip(line, 0, 2 * ramp.half)
    return int(products.min()), int(products.max())


def _product(op: Symbol, data: Symbol, ramp: _Ramp, builder: IntegerBuilder) -> Quantized:
    """The data, whose zero is 0, times the ramp, plus its offset. What reads it is told which products there are."""
    single = (1,) * op.type.rank

    def number(name: str, value: int) -> Symbol:
        return builder.constant(f"{op.name}_{name}", np.full(single, value))

    finer = data
    if ramp.finer:
        finer = builder.apply(ramp.shift, [data, number("finer_by", abs(ramp.finer))], "_finer")
    # Not `add_constant`, which would join it to the data's zero point: what reads one tensor is compiled to more.
    moved = builder.apply(BroadcastAdd(), [finer, number("half", ramp.half)], "_moved")
    held = builder.apply(Clip(a_min=0.0, a_max=float(2 * ramp.half)), [moved], "_ramp")
    factors = [builder.cast(symbol, "int32") for symbol in (data, held)]
    product = builder.apply(ElemwiseMul(), factors, "_product")
    product = builder.clip_to(product, *_ends(builder.bounds(data), ramp))
    if ramp.offset:
        product = builder.add_constant(product, f"{op.name}_offset", np.full(single, ramp.offset))
    return builder.quantized(product, ramp.scale)
