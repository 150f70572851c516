"""Elementwise ONNX functions of one argument beside the activations."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.powers import powered
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU
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
from mrt.symbol.operators.scalar import MulScalar

_FUNCTIONS: dict[str, Callable[[], Operator]] = {
    "Abs": Abs,
    "Ceil": Ceil,
    "Erf": Erf,
    "Exp": Exp,
    "Floor": Floor,
    "HardSwish": HardSwish,
    "Log": Log,
    "Mish": Mish,
    "Reciprocal": Reciprocal,
    "Round": RoundHalfEven,
    "Sign": Sign,
    "Softplus": Softrelu,
    "Softsign": Softsign,
    "Sqrt": Sqrt,
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


@converter("Gelu")
def gelu(node: Node) -> Symbol:
    kinds = {"none": "gelu", "tanh": "gelu_tanh"}
    approximate = node.text("approximate", "none")
    if approximate not in kinds:
        raise node.unsupported("attribute approximate", approximate, "none or tanh")
    return node.apply(LeakyReLU(act_type=kinds[approximate]), [node.symbol(0)])


@converter("Pow")
def power(node: Node) -> Symbol:
    return powered(node)
