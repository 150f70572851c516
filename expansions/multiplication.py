"""Multiplication: a constant goes into the scale where it can, two tensors multiply their integers."""

from __future__ import annotations

import numpy as np

from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs, all_inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import SMALLEST_SCALE, quantize_parameter
from mrt.quantization.requantize import FRAC_BITS, PRODUCT_LIMIT, pre_shift_for
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.integer import RightShift


def _constant(symbol: Symbol, graph: Graph) -> Array | None:
    return next((v for source in symbol.inputs if (v := graph.value(source)) is not None), None)


def _demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    return all_inputs(Demand.NARROW if _constant(symbol, graph) is None else Demand.WIDE)(symbol, graph)


def _gain(symbol: Symbol, graph: Graph) -> float:
    constant = _constant(symbol, graph)
    return 1.0 if constant is None or not constant.size else float(np.abs(constant).max())


@expansion("broadcast_mul", demands=_demands, gain=_gain)
def expand_broadcast_mul(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """X * C for a constant C, or X * Y.

    C with one value, or one a channel: the scale becomes sx |C| and the integers change their sign where C is
    negative; exact. Any other C: Xq * round(C / sc) at sx sc, sc as fine as 32 bits allow.
    X * Y: Xq Yq at sx sy.
    """
    if all(isinstance(value, Quantized) for value in inputs.values):
        return expand_product(op, inputs, plan, builder)
    index = next(i for i, value in enumerate(inputs.values) if isinstance(value, Quantized))
    data, constant = builder.centred(inputs.quantized(index)), inputs.parameter(1 - index).astype(np.float64)
    name = op.inputs[1 - index].name
    constant = constant.reshape((1,) * (op.type.rank - constant.ndim) + constant.shape)
    if _goes_into_scale(constant, data) and data.symbol.shape == op.shape:
        return _scaled(data, constant, name, builder)
    return _multiplied(data, constant, name, builder)


@expansion("elemwise_mul")
def expand_product(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """(Xq - zx) * (Yq - zy) at the scale sx * sy."""
    first, second = builder.centred(inputs.quantized(0)), builder.centred(inputs.quantized(1))
    product = builder.apply(op.operator, [first.symbol, second.symbol])
    return builder.quantized(product, first.step * second.step)


def _goes_into_scale(constant: Array, data: Quantized) -> bool:
    varies = [axis for axis in range(constant.ndim) if constant.shape[axis] > 1]
    scaled = [axis for axis in range(data.scale.ndim) if data.scale.shape[axis] > 1]
    return not varies or (len(varies) == 1 and varies[0] > 0 and scaled in ([], varies))


def _scaled(data: Quantized, constant: Array, name: str, builder: IntegerBuilder) -> Quantized:
    vanishes = np.abs(constant) * data.scale < SMALLEST_SCALE
    scale = data.scale * np.where(vanishes, 1.0, np.abs(constant))
    signs = np.where(vanishes, 0, np.sign(constant)).astype(np.int64)
    if (signs == 1).all():
        return builder.quantized(data.symbol, scale)
    product = builder.apply(BroadcastMul(), [data.symbol, builder.constant(f"{name}_sign", signs)])
    return builder.quantized(product, scale)


def _multiplied(data: Quantized, constant: Array, name: str, builder: IntegerBuilder) -> Quantized:
    symbol, scale = data.symbol, data.scale
    pre_shift = pre_shift_for(builder.bounds(symbol).magnitude)
    if pre_shift:
        amount = builder.constant(f"{name}_pre_shift_by", np.full((1,) * symbol.type.rank, pre_shift))
        symbol = builder.apply(RightShift(), [symbol, amount], "_pre_shift")
        scale = scale * 2.0**pre_shift
    top = min(PRODUCT_LIMIT // max(builder.bounds(symbol).magnitude, 1), 2**FRAC_BITS - 1)
    step = float(np.abs(constant).max()) / top
    if step < SMALLEST_SCALE:
        step = 1.0
    integers = quantize_parameter(constant, step, top)
    product = builder.apply(BroadcastMul(), [symbol, builder.constant(name, integers)])
    return builder.quantized(product, scale * step)
