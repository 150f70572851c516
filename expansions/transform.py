"""Operators that move or select values: scale and zero point stay; Concat brings its inputs to one scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from expansions.addition import at_common
from mrt.errors import QuantizationError
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import round_half_away
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.types import narrowest_dtype


@expansion("Flatten", "Reshape", "transpose", "expand_dims", "squeeze", "slice", "slice_axis", "max")
def expand_same_scale(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = op(Xq) at sx and zx: flatten and its like in "MRT Generalized Quantization Math Formalization"."""
    data = inputs.quantized(0)
    return builder.quantized(builder.apply(op.operator, [data.symbol]), data.step, data.zero_point)


@expansion("Pooling")
def expand_pooling(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Maximum: Ye = max(Xq) at sx and zx, of the window's elements only, so that the border never shows.

    Sum: Ye = sum(Xq) - n zx at sx, n the number of elements in the window, which varies at the border.
    Source: Pooling of "MRT Generalized Quantization Math Formalization".
    """
    if isinstance(op.operator, Pooling) and op.operator.pool_type == "max":
        return expand_same_scale(op, inputs, plan, builder)
    image = np.ones((1, 1, *op.inputs[0].shape[2:]))
    return _sum(op, inputs, op.operator.evaluate(image), builder)


@expansion("sum")
def expand_sum(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = sum(Xq) - n zx at sx, for sums of n elements."""
    count = op.inputs[0].type.size // op.type.size
    return _sum(op, inputs, np.full((1,) * op.type.rank, count), builder)


def _sum(op: Symbol, inputs: Inputs, counts: Array, builder: IntegerBuilder) -> Quantized:
    """counts: the number of elements in each sum, broadcastable to the output."""
    data = inputs.quantized(0)
    total = builder.apply(op.operator, [data.symbol])
    if data.zero_point:
        elements = np.rint(counts).astype(np.int64)
        if (elements == elements.flat[0]).all():
            elements = elements.reshape(-1)[:1].reshape((1,) * op.type.rank)
        total = builder.add_constant(total, f"{op.name}_zero_point", -data.zero_point * elements, "_centred")
    return builder.quantized(total, data.step)


@expansion("Pad")
def expand_pad(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """The border holds round(constant / sx) + zx: pad of "MRT Generalized Quantization Math Formalization"."""
    data, operator = inputs.quantized(0), op.operator
    if not isinstance(operator, Pad):
        raise QuantizationError(f"{op.name} ({op.op}): a Pad is needed")
    symbol = data.symbol
    if operator.mode == "constant":
        border = int(round_half_away(np.asarray(operator.constant_value / data.step))) + data.zero_point
        bounds = builder.bounds(symbol).including(border)
        symbol = builder.cast(symbol, narrowest_dtype(int(bounds.min), int(bounds.max)))
        operator = replace(operator, constant_value=float(border))
    return builder.quantized(builder.apply(operator, [symbol]), data.step, data.zero_point)


@expansion("Concat", demands=Demand.COMMON)
def expand_concat(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Inputs at one scale, then Concat: Quantize Scale of "MRT Generalized Quantization Math Formalization"."""
    values = [at_common(op, inputs, index, plan, builder) for index in range(len(inputs.values))]
    operands = [value.symbol for value in values]
    bounds = [builder.bounds(operand) for operand in operands]
    dtype = narrowest_dtype(int(min(b.min for b in bounds)), int(max(b.max for b in bounds)))
    same = [builder.cast(operand, dtype) for operand in operands]
    return builder.quantized(builder.apply(op.operator, same), plan.common[op.name], values[0].zero_point)
