"""Elementwise ONNX functions of one argument beside the activations."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.onnx.converters.integers import remainder as integer_remainder
from mrt.frontend.onnx.node import Node, Value, converter
from mrt.frontend.shared.gates import swished
from mrt.frontend.shared.powers import powered
from mrt.frontend.shared.remainders import remainder
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU, Relu
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul, ElemwiseSub
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
    Reciprocal,
    RoundHalfEven,
    Sign,
    Softrelu,
    Softsign,
    Sqrt,
)
from mrt.symbol.operators.hyperbolic import Arccos, Arccosh, Arcsin, Arcsinh, Arctan, Arctanh, Cosh, Sinh
from mrt.symbol.operators.periodic import Cos, Sin, Tan
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, MulScalar

_FUNCTIONS: dict[str, Callable[[], Operator]] = {
    "Abs": Abs,
    "Acos": Arccos,
    "Acosh": Arccosh,
    "Asin": Arcsin,
    "Asinh": Arcsinh,
    "Atan": Arctan,
    "Atanh": Arctanh,
    "Ceil": Ceil,
    "Cos": Cos,
    "Cosh": Cosh,
    "Erf": Erf,
    "Exp": Exp,
    "Floor": Floor,
    "HardSwish": HardSwish,
    "Log": Log,
    "Mish": Mish,
    "Reciprocal": Reciprocal,
    "Round": RoundHalfEven,
    "Sign": Sign,
    "Sin": Sin,
    "Sinh": Sinh,
    "Softplus": Softrelu,
    "Softsign": Softsign,
    "Sqrt": Sqrt,
    "Tan": Tan,
}

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
"""What ONNX gives Selu by default: the constants of MXNet's, as float32."""


@converter(*_FUNCTIONS)
def function(node: Node) -> Symbol:
    return node.apply(_FUNCTIONS[node.proto.op_type](), [node.symbol(0)])


@converter("HardSigmoid")
def hard_sigmoid(node: Node) -> Symbol:
    operator = HardSigmoid(alpha=node.number("alpha", 0.2), beta=node.number("beta", 0.5))
    return node.apply(operator, [node.symbol(0)])


@converter("Elu")
def elu(node: Node) -> Symbol:
    return node.apply(LeakyReLU(act_type="elu", slope=node.number("alpha", 1.0)), [node.symbol(0)])


@converter("Selu")
def selu(node: Node) -> Symbol:
    """MXNet's selu where the constants are its own, else elu and a factor."""
    alpha, gamma = node.number("alpha", SELU_ALPHA), node.number("gamma", SELU_GAMMA)
    data = node.symbol(0)
    if abs(alpha - SELU_ALPHA) < _SAME and abs(gamma - SELU_GAMMA) < _SAME:
        return node.apply(LeakyReLU(act_type="selu"), [data])
    return node.apply(MulScalar(gamma), [node.apply(LeakyReLU(act_type="elu", slope=alpha), [data], "elu")])


_SAME = 1e-6
"""Constants that differ by less are the same one in float32."""


@converter("Celu")
def celu(node: Node) -> Symbol:
    """max(x, 0) + min(alpha (exp(x / alpha) - 1), 0): alpha times the elu of x / alpha."""
    alpha, data = node.number("alpha", 1.0), node.symbol(0)
    if alpha == 1:
        return node.apply(LeakyReLU(act_type="elu", slope=1.0), [data])
    if not alpha > 0:
        raise node.unsupported("attribute alpha", alpha, "a positive number")
    scaled = node.apply(DivScalar(alpha), [data], "scaled")
    return node.apply(MulScalar(alpha), [node.apply(LeakyReLU(act_type="elu", slope=1.0), [scaled], "elu")])


@converter("ThresholdedRelu")
def thresholded_relu(node: Node) -> Symbol:
    """x where x > alpha, else 0."""
    data = node.symbol(0)
    above = _where_above(node, data, node.number("alpha", 1.0), "above")
    return node.apply(ElemwiseMul(), [data, above])


@converter("Shrink")
def shrink(node: Node) -> Symbol:
    """x - bias where x > lambd, x + bias where x < -lambd, else 0."""
    data, bias, ends = node.symbol(0), node.number("bias", 0.0), node.number("lambd", 0.5)
    if not ends >= 0:
        raise node.unsupported("attribute lambd", ends, "0 or more")
    above = _where_above(node, data, ends, "above")
    negated = node.apply(MulScalar(-1.0), [data], "negated")
    below = _where_above(node, negated, ends, "below")
    outside = node.apply(ElemwiseAdd(), [above, below], "outside")
    kept = node.apply(ElemwiseMul(), [data, outside], "kept" if bias else "")
    if not bias:
        return kept
    side = node.apply(ElemwiseSub(), [above, below], "side")
    return node.apply(ElemwiseSub(), [kept, node.apply(MulScalar(bias), [side], "shift")])


def _where_above(node: Node, data: Symbol, threshold: float, suffix: str) -> Symbol:
    """1 where the data is above a number, else 0."""
    difference = node.apply(MinusScalar(threshold), [data], f"{suffix}_difference")
    return node.apply(Relu(), [node.apply(Sign(), [difference], f"{suffix}_sign")], suffix)


@converter("Swish")
def swish(node: Node) -> Symbol:
    """x sigmoid(alpha x)."""
    return swished(node, node.number("alpha", 1.0))


@converter("Gelu")
def gelu(node: Node) -> Symbol:
    kinds = {"none": "gelu", "tanh": "gelu_tanh"}
    approximate = node.text("approximate", "none")
    if approximate not in kinds:
        raise node.unsupported("attribute approximate", approximate, "none or tanh")
    return node.apply(LeakyReLU(act_type=kinds[approximate]), [node.symbol(0)])


@converter("IsNaN")
def is_nan(node: Node) -> Symbol:
    return node.apply(IsNan(), [node.symbol(0)])


@converter("IsInf")
def is_infinite(node: Node) -> Symbol:
    negative, positive = node.integer("detect_negative", 1), node.integer("detect_positive", 1)
    return node.apply(IsInf(negative=bool(negative), positive=bool(positive)), [node.symbol(0)])


@converter("Mod")
def mod(node: Node) -> Value | tuple[Value, ...]:
    """Of floats, or of integers beside them."""
    if node.symbol(0).type.is_float:
        return remainder(node, bool(node.integer("fmod", 0)))
    return integer_remainder(node)


@converter("Pow")
def power(node: Node) -> Symbol:
    return powered(node)
