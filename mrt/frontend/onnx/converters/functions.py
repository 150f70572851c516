"""Elementwise ONNX functions of one argument beside the activations."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.onnx.node import Node, converter
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.functions import (
    Abs,
    Erf,
    Exp,
    HardSigmoid,
    HardSwish,
    Log,
    Mish,
    PowerScalar,
    Reciprocal,
    Rsqrt,
    Softrelu,
    Softsign,
    Sqrt,
    Square,
)
from mrt.symbol.operators.scalar import MulScalar

_FUNCTIONS: dict[str, Callable[[], Operator]] = {
    "Abs": Abs,
    "Erf": Erf,
    "Exp": Exp,
    "HardSwish": HardSwish,
    "Log": Log,
    "Mish": Mish,
    "Reciprocal": Reciprocal,
    "Softplus": Softrelu,
    "Softsign": Softsign,
    "Sqrt": Sqrt,
}

_POWERS: dict[float, Callable[[], Operator]] = {2.0: Square, 0.5: Sqrt, -0.5: Rsqrt, -1.0: Reciprocal}
"""The powers that have an operator of their own."""

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
    """x to a constant power: one number for all elements."""
    exponent = node.known(1, "exponent")
    data = node.symbol(0)
    if exponent is None or exponent.size != 1 or exponent.ndim > data.type.rank:
        shape = None if exponent is None else exponent.shape
        raise node.unsupported("input exponent", f"of shape {shape} on {data.type}", "one number")
    value = float(exponent.reshape(()))
    if value == 1.0:
        return data
    make = _POWERS.get(value)
    return node.apply(PowerScalar(value) if make is None else make(), [data])
