"""Convolution and FullyConnected: sums of products of an activation and a weight."""

from __future__ import annotations

from dataclasses import replace

from expansions.reduction import Form, expand_reduction, reduction_demands
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Flatten


@expansion(Convolution, demands=reduction_demands)
def expand_convolution(op: Symbol[Convolution], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Y = conv(X, W) for any pair of symmetric and affine quantizers.

    Y / (sx sw[o]) = conv(Xq, Wq) - zw[o] conv(Xq, 1) - zx sum(Wq[o]) + K zx zw[o]

    Terms whose zero point is 0 are not built: expansion formalizations 1 to 4 of "MRT Generalized Quantization Math
    Formalization", Convolution. The last two fold into one constant per output channel; conv(Xq, 1) has one channel
    per group. The data arrives padded, its border holding zx, so that the constant is right at every position.
    """
    operator = op.operator
    return expand_reduction(op, inputs, plan, builder, Form(operator, 1, operator.num_group, operator.kernel))


@expansion(FullyConnected, demands=reduction_demands)
def expand_fully_connected(
    op: Symbol[FullyConnected], inputs: Inputs, plan: Plan, builder: IntegerBuilder
) -> Quantized:
    """Y = X W^T for any pair of symmetric and affine quantizers.

    Y[n, m] / (sx sw[m]) = sum(Xq Wq) - zw[m] sum(Xq) - zx sum(Wq[m]) + K zx zw[m]

    Terms whose zero point is 0 are not built: expansion formalizations 1 to 4 of "MRT Generalized Quantization Math
    Formalization", FullyConnected. sum(Xq) is a FullyConnected with one unit of ones.

    Data of one channel is flattened first: along that channel the sum could not be cut into slices.
    """
    operator = op.operator
    data = inputs.quantized(0)
    if operator.flatten and data.symbol.type.rank > 2 and data.symbol.shape[1] == 1:
        flat = builder.quantized(builder.apply(Flatten(), [data.symbol], "_flat"), data.step, data.zero_point)
        inputs = replace(inputs, values=(flat, *inputs.values[1:]))
    return expand_reduction(op, inputs, plan, builder, Form(operator, op.type.rank - 1))
