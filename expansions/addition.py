"""Addition and subtraction: operands brought to one scale, constants joined to the accumulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from expansions.exact_sum import exact_sum
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, all_inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import round_half_away
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastSub
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseSub
from mrt.symbol.operators.integer import LeftShift
from mrt.symbol.types import INT32_MAX

GUARD_BITS = 4
"""Sums are formed this many bits finer than what they are rounded to next."""


def _demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    constant = any(graph.value(source) is not None for source in symbol.inputs)
    return all_inputs(Demand.WIDE if constant else Demand.COMMON)(symbol, graph)


@expansion(BroadcastAdd, demands=_demands, guard_bits=GUARD_BITS, adds_constant=True)
def expand_broadcast_add(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """A constant, such as a bias, joins the accumulator at its own scale; two tensors are brought to one scale.

    Xq + round(B / sx), at sx; where X holds no guard bits and sx would round B, or where the sum is too large for 32
    bits at sx, X is brought to the common scale first, at which it fits: it is 4 bits finer than what the sum is
    rounded to next, but at least 2^-29 of the largest operand, so that the error is less than float32 makes. A B that
    brings the sum to where all that reads it saturates, whatever X, may be any such B: the least is taken.
    Source: MRT's Quantize Scale; bias at sx * sw[o] is oneDNN's convention for int8 convolutions.
    """
    constant = plan[op].added_constant
    if constant is None:
        return expand_sum(op, inputs, plan, builder)
    index = next(i for i, value in enumerate(inputs.values) if isinstance(value, Quantized))
    if plan[op].is_summed_exactly and not _is_whole(constant / inputs.quantized(index).scale):
        return expand_sum(op, inputs, plan, builder)
    data, source = builder.centred(inputs.quantized(index)), op.inputs[index]
    fine = plan[op].common_scale
    if plan[source].magnitude > 0:
        fine = max(fine, plan[source].own.scale * 2.0**-GUARD_BITS)
    integers = _joining(op, data, inputs.parameter(1 - index), plan, builder)
    if integers is None and plan[op].is_summed_exactly:
        return expand_sum(op, inputs, plan, builder)
    rounds = (data.scale > fine).any() and _rounds(constant, data.scale)
    if rounds or integers is None:
        data = builder.requantize(data, plan.common_target(op, index))
        integers = round_half_away(constant / data.scale)
    total = builder.add_constant(data.symbol, op.inputs[1 - index].name, integers)
    return builder.quantized(total, data.scale)


def _is_whole(steps: Array) -> bool:
    """Whether these are integers, as far as float32 scales tell."""
    return bool((np.abs(steps - np.rint(steps)) <= 2.0**-10 + 2.0**-22 * np.abs(steps)).all())


def finer_by(by: int, op: Symbol, data: Quantized, builder: IntegerBuilder) -> Quantized:
    """`data`, centred, at 2^-by of its scale: its integers shifted left, exactly."""
    data = builder.centred(data)
    amount = builder.constant(f"{op.name}_finer_by", np.full((1,) * data.symbol.type.rank, by))
    shifted = builder.apply(LeftShift(), [data.symbol, amount], "_finer")
    return builder.quantized(shifted, data.scale * 2.0**-by)


def _joining(op: Symbol, data: Quantized, constant: Array, plan: Plan, builder: IntegerBuilder) -> Array | None:
    """The constant in steps of the data, held to where the sum saturates for all integers that the data is proven to
    take; None where their sum needs more than 32 bits.
    """
    # The constant keeps its shape: what it does not tell apart takes the hull of the data's bounds.
    shape = ((1,) * data.symbol.type.rank + constant.shape)[-data.symbol.type.rank :]
    bounds = builder.bounds(data.symbol).reduced([axis for axis, length in enumerate(shape) if length > 1])
    lo, hi = plan[op].saturates
    least, most = lo / data.scale - bounds.hi.astype(np.float64), hi / data.scale - bounds.lo.astype(np.float64)
    steps = np.clip(constant / data.scale, least - 1, most + 1)
    if np.abs(steps).max(initial=0.0) + bounds.magnitude >= INT32_MAX:
        return None
    return round_half_away(steps)


@expansion(ElemwiseAdd, AddN, demands=Demand.COMMON, guard_bits=GUARD_BITS)
def expand_sum(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Every operand at the common scale, which is 4 bits finer than what the sum is rounded to next.

    Ye = Xq1 + Xq2 + ... at s_common: Quantize Scale of "MRT Generalized Quantization Math Formalization". Before a
    quantizer of the network the sum is formed by `exact_sum`.
    """
    return _signed_sum(op, inputs, [1.0] * len(op.inputs), plan, builder)


@expansion(ElemwiseSub, BroadcastSub, demands=Demand.COMMON, guard_bits=GUARD_BITS)
def expand_difference(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = Xq1 - Xq2, both at the common scale of `expand_sum`."""
    return _signed_sum(op, inputs, [1.0, -1.0], plan, builder)


def _signed_sum(op: Symbol, inputs: Inputs, signs: Sequence[float], plan: Plan, builder: IntegerBuilder) -> Quantized:
    if not plan[op].is_summed_exactly:
        operands = [at_common(op, inputs, index, plan, builder).symbol for index in range(len(inputs.values))]
        return builder.quantized(builder.apply(op.operator, operands), plan[op].common_scale)
    pairs = list(zip(inputs.values, signs, strict=True))
    terms = [(value, sign) for value, sign in pairs if isinstance(value, Quantized)]
    constants = [sign * value.astype(np.float64) for value, sign in pairs if not isinstance(value, Quantized)]
    return exact_sum(op, terms, sum(constants, np.zeros((1,) * op.type.rank)), plan, builder)


def at_common(op: Symbol, inputs: Inputs, index: int, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Operand `index` at the common scale of `op`; a parameter is quantized there."""
    value = inputs.values[index]
    if isinstance(value, Quantized):
        return value
    return builder.constant_at(op.inputs[index].name, value, plan.common_target(op, index))


def _rounds(constant: Array, scale: Array) -> bool:
    """Whether the constant is no multiple of the scale, so that a finer scale would hold it better."""
    exact = constant / scale
    return not np.allclose(exact, np.rint(exact), rtol=0, atol=1e-6)
