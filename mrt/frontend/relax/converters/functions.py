"""Elementwise Relax functions of one argument."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.powers import powered
from mrt.frontend.tvm.functions import FUNCTIONS, function
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.finite import IsInf, IsNan
from mrt.symbol.operators.functions import RoundHalfEven, Silu, Softrelu, Square
from mrt.symbol.operators.scalar import DivScalar, MulScalar, RMinusScalar

converter(*FUNCTIONS)(function)
converter("power")(powered)

_RELAX_FUNCTIONS: dict[str, Callable[[], Operator]] = {
    "round": RoundHalfEven,
    "square": Square,
    "nn.gelu": lambda: LeakyReLU(act_type="gelu"),
    "nn.gelu_tanh": lambda: LeakyReLU(act_type="gelu_tanh"),
    "nn.selu": lambda: LeakyReLU(act_type="selu"),
    "nn.silu": Silu,
}


@converter(*_RELAX_FUNCTIONS)
def relax_function(node: Node) -> Symbol:
    return node.apply(_RELAX_FUNCTIONS[node.kind](), [node.symbol(0)])


@converter("isfinite")
def is_finite(node: Node) -> Symbol:
    """Neither infinite nor no number."""
    data = node.symbol(0)
    others = [node.apply(record(), [data], name) for record, name in ((IsNan, "nan"), (IsInf, "infinite"))]
    return node.apply(RMinusScalar(1.0), [node.apply(ElemwiseAdd(), others, "others")])


@converter("nn.softplus")
def softplus(node: Node) -> Symbol:
    """log(1 + exp(beta x)) / beta; the threshold above which it counts as x changes nothing that float32 holds."""
    beta, data = node.number("beta"), node.symbol(0)
    if beta == 1:
        return node.apply(Softrelu(), [data])
    scaled = node.apply(MulScalar(beta), [data], "scaled")
    return node.apply(DivScalar(beta), [node.apply(Softrelu(), [scaled], "softrelu")])
