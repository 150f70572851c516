"""Convolution and FullyConnected: sums of products of an activation and a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mrt.errors import QuantizationError
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.weights import QuantizedWeight, quantize_weight
from mrt.symbol import Array, Interval, Operator, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Reshape
from mrt.symbol.types import INT32_MAX


@expansion("Convolution")
def expand_convolution(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Y = conv(X, W) for any pair of symmetric and affine quantizers.

    Y / (sx sw[o]) = conv(Xq, Wq) - zw[o] conv(Xq, 1) - zx sum(Wq[o]) + K zx zw[o]

    Terms whose zero point is 0 are not built: expansion formalizations 1 to 4 of "MRT Generalized Quantization Math
    Formalization", Convolution. The last two fold into one constant per output channel; conv(Xq, 1) has one channel
    per group. The data arrives padded, its border holding zx, so that the constant is right at every position.
    """
    operator = op.operator
    if not isinstance(operator, Convolution):
        raise QuantizationError(f"{op.name} ({op.op}): a Convolution is needed")
    groups = operator.num_group
    ones = np.ones((groups, *op.inputs[1].shape[1:]), np.int64)
    window = Convolution(
        kernel=operator.kernel,
        num_filter=groups,
        stride=operator.stride,
        dilate=operator.dilate,
        pad=operator.pad,
        num_group=groups,
        no_bias=True,
    )
    return expand_reduction(op, inputs, plan, builder, Form(1, window, ones))


@expansion("FullyConnected")
def expand_fully_connected(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Y = X W^T for any pair of symmetric and affine quantizers.

    Y[n, m] / (sx sw[m]) = sum(Xq Wq) - zw[m] sum(Xq) - zx sum(Wq[m]) + K zx zw[m]

    Terms whose zero point is 0 are not built: expansion formalizations 1 to 4 of "MRT Generalized Quantization Math
    Formalization", FullyConnected. sum(Xq) is a FullyConnected with one unit of ones.
    """
    operator = op.operator
    if not isinstance(operator, FullyConnected):
        raise QuantizationError(f"{op.name} ({op.op}): a FullyConnected is needed")
    ones = np.ones((1, op.inputs[1].shape[1]), np.int64)
    total = FullyConnected(num_hidden=1, no_bias=True, flatten=operator.flatten)
    return expand_reduction(op, inputs, plan, builder, Form(op.type.rank - 1, total, ones))


def _same(weight: Array) -> Array:
    return weight


@dataclass(frozen=True, eq=False)
class Form:
    """What differs between reductions.

    channel_axis: of the output. window, ones: the operator and weight that sum the data where the reduction multiplies
    it, one channel per group. rows: from the weight to the same with its output channels first, (O, ...);
    from_rows: back. sums: from the rows of a weight to what the reduction gives for data of ones, broadcastable to
    the output; by default the sum of each row, at every position.
    """

    channel_axis: int
    window: Operator
    ones: Array
    rows: Callable[[Array], Array] = _same
    from_rows: Callable[[Array], Array] = _same
    sums: Callable[[Array], Array] | None = None

    def totals(self, rows: Array, rank: int) -> Array:
        """`sums` of rank `rank`."""
        if self.sums is not None:
            return self.sums(rows)
        shape = [1] * rank
        shape[self.channel_axis] = -1
        result: Array = rows.reshape(rows.shape[0], -1).sum(axis=1).reshape(shape)
        return result


def expand_reduction(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder, form: Form) -> Quantized:
    """The integers of Y / (sx sw[o]) = Y(Xq, Wq) - zw[o] window(Xq) - zx Y(1, Wq - zw), without its zero terms."""
    if len(inputs.values) != 2:
        raise QuantizationError(f"{op.name} ({op.op}): separate its bias first (preparation does)")
    data, weight, channel_axis = inputs.quantized(0), form.rows(inputs.parameter(1)), form.channel_axis
    bounds = builder.bounds(data.symbol)
    centred = bounds.map(lambda v: v - data.zero_point)
    bias = plan.bias_after(op)

    def reached(integers: Array) -> Interval:
        """The accumulator's interval for a weight of these centred integers."""
        return op.operator.bounds(centred, Interval.constant(form.from_rows(integers))).reduced([channel_axis])

    def magnitudes(integers: Array) -> Array:
        interval = reached(integers)
        largest = np.maximum(np.abs(interval.lo), np.abs(interval.hi)).reshape(-1)
        return np.broadcast_to(largest, (weight.shape[0],))

    def fits(candidate: QuantizedWeight) -> bool:
        """Whether the sums, in any order and before any correction, stay within 32 bits."""
        constant = Interval.constant(form.from_rows(candidate.integers))
        largest = max(i.magnitude for i in op.operator.intermediates(bounds, constant))
        windows = int(np.abs(candidate.zero_point).max()) * bounds.magnitude * weight[0].size
        moved = int(np.abs(data.zero_point * form.totals(candidate.centred, op.type.rank)).max())
        return bool(largest + windows + moved <= INT32_MAX)

    options = plan.config.weight_of(op.name)
    offset = None if bias is None else _largest_per_channel(bias, op, channel_axis)
    quantized = None
    for bits in range(options.bits, 1, -1):
        lowered = options.model_copy(update={"bits": bits})
        quantized = quantize_weight(weight, data.step, lowered, plan.meets[op.name], offset, magnitudes)
        if fits(quantized):
            break
    if quantized is None or not fits(quantized):
        raise QuantizationError(
            f"{op.name} ({op.op}): its sums of {weight[0].size} products need more than 32 bits even with weights of 2 "
            f"bits; lower activation.bits for {op.inputs[0].name}"
        )
    if bits < options.bits:
        builder.notes.append(
            f"{op.name} ({op.op}): weights of {bits} bits instead of {options.bits}, so that {weight[0].size} products "
            f"fit 32 bits; a weight is off by at most {float(quantized.scale.max()) / 2:.3g}"
        )
    name = op.inputs[1].name
    shape = [1] * op.type.rank
    shape[channel_axis] = -1
    integers = builder.constant(name, form.from_rows(quantized.integers))
    accumulator = builder.apply(op.operator, [data.symbol, integers])
    if quantized.zero_point.any():
        sums = builder.apply(form.window, [data.symbol, builder.constant(f"{name}_ones", form.ones)], "_window")
        products = _spread(sums, -quantized.zero_point, f"{name}_zero_point", op, channel_axis, builder)
        accumulator = builder.apply(BroadcastAdd(), [accumulator, products], "_corrected")
    constant = -data.zero_point * form.totals(quantized.centred, op.type.rank)
    if constant.any():
        accumulator = builder.add_constant(accumulator, f"{name}_correction", constant, "_centred")
    if quantized.zero_point.any() or constant.size > weight.shape[0]:
        # The terms are correlated; what they can reach together is what the centred operands can.
        interval = reached(quantized.centred)
        accumulator = builder.narrow_range(accumulator, int(interval.min), int(interval.max))
    return builder.quantized(accumulator, data.step * quantized.scale.reshape(shape))


def _spread(sums: Symbol, factors: Array, name: str, op: Symbol, channel_axis: int, builder: IntegerBuilder) -> Symbol:
    """sums, one channel per group, times the factors of the output channels of each group."""
    groups, channels, rank = sums.shape[channel_axis], len(factors), op.type.rank
    if groups in (1, channels):
        shape = [1] * rank
        shape[channel_axis] = channels
        return builder.apply(BroadcastMul(), [sums, builder.constant(name, factors.reshape(shape))], "_offset")
    spatial = op.shape[channel_axis + 1 :]
    apart = builder.apply(Reshape(shape=(0, groups, 1, *spatial)), [sums], "_groups")
    split = factors.reshape(1, groups, channels // groups, *(1,) * len(spatial))
    products = builder.apply(BroadcastMul(), [apart, builder.constant(name, split)], "_offset")
    return builder.apply(Reshape(shape=(0, channels, *spatial)), [products], "_merged")


def _largest_per_channel(bias: Array, op: Symbol, channel_axis: int) -> Array:
    """The largest |bias| of each output channel."""
    full = np.abs(np.broadcast_to(bias, op.shape))
    result: Array = full.max(axis=tuple(axis for axis in range(full.ndim) if axis != channel_axis))
    return result
