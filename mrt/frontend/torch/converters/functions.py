"""Functions of one argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, converter, importers_own

importers_own(
    *("abs.default", "ceil.default", "floor.default", "gelu.default", "hardsigmoid.default", "hardswish.default"),
    *("leaky_relu.default", "neg.default", "prelu.default", "relu.default", "selu.default", "sign.default"),
    *("silu.default", "square.default", "trunc.default"),
)


def _of_float(node: Node) -> Expression:
    """The data as a float, since PyTorch gives a float of integers too."""
    return node.operand("self", "float32")


def _by_name(node: Node, make: Callable[[Expression], Expression]) -> Expression:
    return make(_of_float(node))


converter("erf.default")(lambda node: relax.op.erf(_of_float(node)))
converter("exp.default")(lambda node: relax.op.exp(_of_float(node)))
converter("log.default")(lambda node: relax.op.log(_of_float(node)))
converter("reciprocal.default")(lambda node: relax.op.divide(constant(1), _of_float(node)))
converter("round.default")(lambda node: relax.op.round(_of_float(node)))
converter("rsqrt.default")(lambda node: relax.op.rsqrt(_of_float(node)))
converter("sigmoid.default")(lambda node: relax.op.sigmoid(_of_float(node)))
converter("sqrt.default")(lambda node: relax.op.sqrt(_of_float(node)))
converter("tanh.default")(lambda node: relax.op.tanh(_of_float(node)))
for _name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan"):
    converter(f"{_name}.default")(partial(_by_name, make=getattr(relax.op, _name)))
converter("expm1.default")(lambda node: relax.op.subtract(node.emit(relax.op.exp(_of_float(node))), constant(1)))
converter("log1p.default")(lambda node: relax.op.log(node.emit(relax.op.add(_of_float(node), constant(1)))))


converter("special_erfc.default")(lambda node: relax.op.subtract(constant(1), node.emit(relax.op.erf(_of_float(node)))))


@converter("exp2.default")
def power_of_two(node: Node) -> Expression:
    return relax.op.exp(node.emit(relax.op.multiply(_of_float(node), constant(math.log(2)))))


@converter("round.decimals")
def round_to_decimals(node: Node) -> Expression:
    factor = constant(10.0 ** node.integer("decimals"))
    whole = node.emit(relax.op.round(node.emit(relax.op.multiply(_of_float(node), factor))))
    return relax.op.divide(whole, factor)


@converter("rrelu.default")
def random_leaky_relu(node: Node) -> Expression:
    """Slopes that training draws have the mean of their bounds in use."""
    return relax.op.nn.leakyrelu(node.tensor("self"), (node.number("lower") + node.number("upper")) / 2)


for _name in ("isfinite", "isinf", "isnan"):
    converter(f"{_name}.default")(partial(_by_name, make=getattr(relax.op, _name)))


@converter("nan_to_num.default")
def nan_to_number(node: Node) -> Expression:
    """The data as it is: what is calibrated and quantized is finite."""
    return _of_float(node)


@converter("log2.default", "log10.default")
def logarithm(node: Node) -> Expression:
    factor = 1 / math.log(2 if node.operator == "log2.default" else 10)
    return relax.op.multiply(node.emit(relax.op.log(_of_float(node))), constant(factor))


_NO_DIFFERENCE = 17.0
"""Above this, log(1 + exp(x)) is x in float32."""


@converter("softplus.default")
def softplus(node: Node) -> Expression:
    """log(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""
    data, beta, threshold = node.tensor("self"), node.number("beta"), node.number("threshold")
    smooth = node.emit(relax.op.nn.softplus(data, beta, threshold))
    if threshold >= _NO_DIFFERENCE:
        return smooth
    scaled = node.emit(relax.op.multiply(data, constant(beta)))
    return relax.op.where(node.emit(relax.op.greater(scaled, constant(threshold))), data, smooth)


@converter("mish.default")
def mish(node: Node) -> Expression:
    """x tanh(log(1 + exp(x)))."""
    data = node.tensor("self")
    return relax.op.multiply(data, node.emit(relax.op.tanh(node.emit(relax.op.nn.softplus(data)))))


@converter("elu.default")
def elu(node: Node) -> Expression:
    """scale max(x, 0) + scale alpha (exp(input_scale min(x, 0)) - 1)."""
    data = node.tensor("self")
    positive = node.emit(relax.op.nn.relu(data))
    below = node.emit(relax.op.minimum(data, constant(0)))
    if node.number("input_scale") != 1:
        below = node.emit(relax.op.multiply(below, constant(node.number("input_scale"))))
    negative = node.emit(relax.op.subtract(node.emit(relax.op.exp(below)), constant(1)))
    scale, alpha = node.number("scale"), node.number("alpha")
    if scale != 1:
        positive = node.emit(relax.op.multiply(positive, constant(scale)))
    if scale * alpha != 1:
        negative = node.emit(relax.op.multiply(negative, constant(scale * alpha)))
    return relax.op.add(positive, negative)
