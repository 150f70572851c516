"""Elementwise Relax functions of one argument beside the activations."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.relax.node import Node, converter
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.functions import Abs, Erf, Exp, Log, Rsqrt, Softrelu, Sqrt
from mrt.symbol.operators.scalar import DivScalar, MulScalar

_FUNCTIONS: dict[str, Callable[[], Operator]] = {
    "abs": Abs,
    "erf": Erf,
    "exp": Exp,
    "log": Log,
    "rsqrt": Rsqrt,
    "sqrt": Sqrt,
    "nn.gelu": lambda: LeakyReLU(act_type="gelu"),
    "nn.gelu_tanh": lambda: LeakyReLU(act_type="gelu_tanh"),
    "nn.selu": lambda: LeakyReLU(act_type="selu"),
}


@converter(*_FUNCTIONS)
def function(node: Node) -> Symbol:
    return node.apply(_FUNCTIONS[node.operator.removeprefix("relax.")](), [node.symbol(0)])


@converter("nn.softplus")
def softplus(node: Node) -> Symbol:
    """log(1 + exp(beta x)) / beta; the threshold above which it counts as x changes nothing that float32 holds."""
    beta, data = node.number("beta"), node.symbol(0)
    if beta == 1:
        return node.apply(Softrelu(), [data])
    scaled = node.apply(MulScalar(beta), [data], "scaled")
    return node.apply(DivScalar(beta), [node.apply(Softrelu(), [scaled], "softrelu")])
