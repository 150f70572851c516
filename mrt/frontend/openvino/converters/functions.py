"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable

from mrt.errors import GraphError
from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.clipping import FLOAT_MAX, clipped
from mrt.frontend.shared.gates import swished
from mrt.frontend.shared.remainders import remainder
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.broadcast import BroadcastMul, BroadcastSub
from mrt.symbol.operators.finite import IsInf, IsNan
from mrt.symbol.operators.functions import (
    Abs,
    Ceil,
    Erf,
    Exp,
    Floor,
    HardSigmoid,
    HardSwish,
    Log,
    Mish,
    Round,
    RoundHalfEven,
    Sign,
    Softrelu,
    Softsign,
    Sqrt,
)
from mrt.symbol.operators.hyperbolic import Arccos, Arccosh, Arcsin, Arcsinh, Arctan, Arctanh, Cosh, Sinh
from mrt.symbol.operators.periodic import Cos, Sin, Tan
from mrt.symbol.operators.scalar import MulScalar

_FUNCTIONS: dict[str, Callable[[], Operator]] = {
    "Abs": Abs,
    "Acos": Arccos,
    "Acosh": Arccosh,
    "Asin": Arcsin,
    "Asinh": Arcsinh,
    "Atan": Arctan,
    "Atanh": Arctanh,
    "Ceiling": Ceil,
    "Cos": Cos,
    "Cosh": Cosh,
    "Erf": Erf,
    "Exp": Exp,
    "Floor": Floor,
    "HSigmoid": lambda: HardSigmoid(alpha=1 / 6, beta=0.5),
    "HSwish": HardSwish,
    "Log": Log,
    "Mish": Mish,
    "Negative": lambda: MulScalar(-1.0),
    "Relu": Relu,
    "Sigmoid": Sigmoid,
    "Sign": Sign,
    "Sin": Sin,
    "Sinh": Sinh,
    "SoftPlus": Softrelu,
    "SoftSign": Softsign,
    "Sqrt": Sqrt,
    "Tan": Tan,
    "Tanh": Tanh,
}


@converter(*_FUNCTIONS)
def function(node: Node) -> Symbol:
    return node.apply(_FUNCTIONS[node.operator](), [node.symbol(0)])


@converter("Mod", "FloorMod")
def mod(node: Node) -> Symbol:
    """Mod has the sign of the dividend, FloorMod that of the divisor."""
    return remainder(node, truncates=node.operator == "Mod")


@converter("IsNaN")
def is_nan(node: Node) -> Symbol:
    return node.apply(IsNan(), [node.symbol(0)])


@converter("IsInf")
def is_infinite(node: Node) -> Symbol:
    operator = IsInf(negative=node.flag("detect_negative", True), positive=node.flag("detect_positive", True))
    return node.apply(operator, [node.symbol(0)])


@converter("Clamp")
def clamp(node: Node) -> Symbol:
    """Ends that no float32 reaches are open."""
    low, high = max(node.number("min"), -FLOAT_MAX), min(node.number("max"), FLOAT_MAX)
    if not low <= high:
        raise GraphError(f"{node.label}: min is {low}, max {high}; min <= max is needed")
    return clipped(node, node.symbol(0), low, high)


@converter("Elu")
def elu(node: Node) -> Symbol:
    return node.apply(LeakyReLU(act_type="elu", slope=node.number("alpha")), [node.symbol(0)])


@converter("Gelu")
def gelu(node: Node) -> Symbol:
    kinds = {"erf": "gelu", "tanh": "gelu_tanh"}
    mode = node.text("approximation_mode", "erf").lower()
    if mode not in kinds:
        raise node.unsupported("attribute approximation_mode", mode, "erf or tanh")
    return node.apply(LeakyReLU(act_type=kinds[mode]), [node.symbol(0)])


@converter("HardSigmoid")
def hard_sigmoid(node: Node) -> Symbol:
    operator = HardSigmoid(alpha=node.known_number(1, "alpha"), beta=node.known_number(2, "beta"))
    return node.apply(operator, [node.symbol(0)])


@converter("Round")
def round_(node: Node) -> Symbol:
    modes: dict[str, Callable[[], Operator]] = {"half_to_even": RoundHalfEven, "half_away_from_zero": Round}
    mode = node.text("mode", "half_to_even")
    if mode not in modes:
        raise node.unsupported("attribute mode", mode, f"one of {[*modes]}")
    return node.apply(modes[mode](), [node.symbol(0)])


@converter("Swish")
def swish(node: Node) -> Symbol:
    """x sigmoid(beta x)."""
    return swished(node, node.known_number(1, "beta") if node.has(1) else 1.0)


@converter("PRelu")
def parametric_relu(node: Node) -> Symbol:
    """max(x, 0) + slope min(x, 0). A vector of slopes is one for each channel, axis 1.

    Case 1: one number. Case 2: one for each channel. Case 3: other slopes that broadcast, as max(x, 0) - slope
    max(-x, 0).
    """
    data, slope = node.symbol(0), node.known(1, "slope")
    if slope.size == 1:
        return node.apply(LeakyReLU(slope=float(slope.reshape(()))), [data])
    channels = data.shape[1] if data.type.rank > 1 else 0
    aligned = (1,) * (data.type.rank - slope.ndim) + slope.shape
    column = (1, channels, *(1,) * (data.type.rank - 2))
    if slope.shape == (channels,) or aligned == column:
        gamma = node.parameter_of(1, "slope", "vector", lambda array: array.reshape(-1))
        return node.apply(LeakyReLU(act_type="prelu"), [data, gamma])
    if math.prod(aligned) != slope.size or len(aligned) != data.type.rank:
        raise GraphError(f"{node.label}: slope has shape {slope.shape}, which does not broadcast to {data.type}")
    above = node.apply(Relu(), [data], "above")
    below = node.apply(Relu(), [node.apply(MulScalar(-1.0), [data], "negated")], "below")
    scaled = node.apply(BroadcastMul(), [below, node.symbol(1, "slope")], "scaled")
    return node.apply(BroadcastSub(), [above, scaled])
