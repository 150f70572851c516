"""Elementwise functions of one argument."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import Relu, Sigmoid, Tanh
from mrt.symbol.operators.finite import IsInf, IsNan
from mrt.symbol.operators.functions import (
    Abs,
    Ceil,
    Erf,
    Exp,
    Floor,
    Log,
    Rsqrt,
    Sign,
    Sqrt,
    Trunc,
)
from mrt.symbol.operators.hyperbolic import Arccos, Arccosh, Arcsin, Arcsinh, Arctan, Arctanh, Cosh, Sinh
from mrt.symbol.operators.periodic import Cos, Sin, Tan

FUNCTIONS: dict[str, Callable[[], Operator]] = {
    "abs": Abs,
    "acos": Arccos,
    "acosh": Arccosh,
    "asin": Arcsin,
    "asinh": Arcsinh,
    "atan": Arctan,
    "atanh": Arctanh,
    "ceil": Ceil,
    "cos": Cos,
    "cosh": Cosh,
    "erf": Erf,
    "exp": Exp,
    "floor": Floor,
    "isinf": IsInf,
    "isnan": IsNan,
    "log": Log,
    "rsqrt": Rsqrt,
    "sign": Sign,
    "sin": Sin,
    "sinh": Sinh,
    "sqrt": Sqrt,
    "tan": Tan,
    "trunc": Trunc,
    "nn.relu": Relu,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
}
"""The operators of functions that mean the same in Relay and Relax."""


def function(node: TVMNode) -> Symbol:
    return node.apply(FUNCTIONS[node.kind](), [node.symbol(0)])
