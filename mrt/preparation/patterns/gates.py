"""Activations that are a tensor times a ramp of itself."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.preparation.patterns.algebra import Algebra, Laid, Product
from mrt.preparation.patterns.moments import SAME
from mrt.symbol import Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.functions import HardSigmoid

SLOPE, MIDDLE = 1 / 6, 1 / 2
"""Of the ramp of hard swish, whose ends are 0 and 1."""


@dataclass(frozen=True)
class Gate:
    """The hard swish of `data`."""

    data: Symbol


def find_gate(symbol: Symbol, algebra: Algebra) -> Gate | None:
    """The hard swish that a product is, or None.

    1. X * clip(X + 3, 0, 6) / 6, whatever the order of its factors, and its like: X * clip(m X / 6 + m / 2, 0, m) / m.
    2. X * hard_sigmoid(X) with the slope 1/6 and 1/2 at 0.
    """
    if symbol.operator.operation not in (Operation.MULTIPLY, Operation.DIVIDE):
        return None
    product = algebra.products[symbol]
    for part, exponent in product.powers.items():
        if exponent != 1 or part.shape != symbol.shape:
            continue
        for data in _gated(part.symbol, algebra):
            if _is_rest(product, part, data, _height(part.symbol), algebra):
                return Gate(data)
    return None


def _gated(ramp: Symbol, algebra: Algebra) -> list[Symbol]:
    """The tensors of which a symbol is the ramp of hard swish, times its height."""
    operator = ramp.operator
    if isinstance(operator, HardSigmoid):
        is_known = abs(operator.alpha / SLOPE - 1) < SAME and abs(operator.beta / MIDDLE - 1) < SAME
        return [ramp.inputs[0]] if is_known else []
    if not isinstance(operator, Clip) or operator.a_min != 0 or operator.a_max <= 0:
        return []
    near = [ramp.inputs[0], *ramp.inputs[0].inputs]
    near = list(dict.fromkeys([*near, *(source for each in near for source in each.inputs)]))
    computed = [each for each in near if algebra.graph.value(each) is None and each.type == ramp.type]
    return [data for data in computed if _is_line(ramp.inputs[0], data, operator.a_max, algebra)]


def _is_line(symbol: Symbol, data: Symbol, height: float, algebra: Algebra) -> bool:
    """Whether a symbol is height * (data / 6 + 1/2)."""
    left = algebra.totals[symbol].plus(algebra.totals[data], -height * SLOPE)
    off = abs(left.constant - height * MIDDLE) / (height * MIDDLE)
    return off < SAME and all(abs(times) < SAME * height * SLOPE for times in left.factors.values())


def _height(ramp: Symbol) -> float:
    """Where a ramp ends."""
    return float(ramp.operator.a_max) if isinstance(ramp.operator, Clip) else 1.0


def _is_rest(product: Product, ramp: Laid, data: Symbol, height: float, algebra: Algebra) -> bool:
    """Whether a product is data times the ramp, over its height."""
    expected = algebra.products[data].times(Product(1 / height, {ramp: 1.0}))
    is_number = abs(product.number - expected.number) <= SAME * abs(expected.number)
    return is_number and dict(expected.powers) == dict(product.powers)
