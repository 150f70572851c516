"""Float tensors as products of powers and as sums of multiples: the forms in which spelled-out patterns are compared.

A quotient, a product with a reciprocal square root and a power of -0.5 are one product, whatever the order of their
factors; x - mean, x + (-1) mean and their like are one sum. A pattern is then a statement on exponents and factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from mrt.symbol import Graph, Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.functions import Negative, PowerScalar, Reciprocal, Rsqrt, Sqrt, Square
from mrt.symbol.operators.normalization import Dropout, Identity
from mrt.symbol.operators.scalar import WithNumber

MOST_PARTS = 8
"""A product or sum of more parts counts as one tensor, so that long chains stay cheap."""
_EXPONENTS = {Square: 2.0, Sqrt: 0.5, Rsqrt: -0.5, Reciprocal: -1.0}


@dataclass(frozen=True)
class Laid:
    """The elements of a tensor, in their order, in a shape that need not be its own."""

    symbol: Symbol
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """number times the product of its parts, each to an exponent; they broadcast."""

    number: float = 1.0
    powers: Mapping[Laid, float] = field(default_factory=dict)

    def times(self, other: Product, exponent: float = 1.0) -> Product:
        """The product with another one to an integer exponent."""
        powers = dict(self.powers)
        for part, power in other.powers.items():
            powers[part] = powers.get(part, 0.0) + power * exponent
        return Product(
            self.number * _power(other.number, exponent), {part: power for part, power in powers.items() if power}
        )


@dataclass(frozen=True)
class Total:
    """constant plus the sum of its parts, each times a factor; they broadcast."""

    constant: float = 0.0
    factors: Mapping[Laid, float] = field(default_factory=dict)

    def plus(self, other: Total, factor: float = 1.0) -> Total:
        """The sum with a multiple of another one."""
        factors = dict(self.factors)
        for part, times in other.factors.items():
            factors[part] = factors.get(part, 0.0) + times * factor
        return Total(self.constant + other.constant * factor, {part: times for part, times in factors.items() if times})


_Form = TypeVar("_Form", Product, Total)


class Algebra:
    """The product and the sum that each float tensor of a graph is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.products: dict[Symbol, Product] = {}
        self.totals: dict[Symbol, Total] = {}
        self._same: dict[Symbol, Symbol] = {}
        self._first: dict[object, Symbol] = {}
        for symbol in (*graph.inputs, *graph.symbols):
            if symbol not in self.products:
                self._add(symbol)

    def alone(self, symbol: Symbol) -> Laid:
        """The tensor as a part: the first of those that are computed alike."""
        return Laid(self._same[symbol], symbol.shape)

    def is_total(self, factors: Mapping[Laid, float], symbol: Symbol) -> bool:
        """Whether a sum without a constant is `symbol`, taken apart or as it is."""
        total = self.totals[symbol]
        return factors == {self.alone(symbol): 1.0} or (not total.constant and factors == total.factors)

    def _add(self, symbol: Symbol) -> None:
        key = (symbol.operator, *(self._same[source] for source in symbol.inputs)) if symbol.inputs else symbol
        self._same[symbol] = self._first.setdefault(key, symbol)
        total = self._total(symbol, self.totals)
        if total is not None and len(total.factors) > MOST_PARTS:
            apart = {source: Total(0.0, {self.alone(source): 1.0}) for source in symbol.inputs}
            total = self._total(symbol, apart)
        if total is not None and len(total.factors) > 1:
            key = (symbol.shape, total.constant, frozenset(total.factors.items()))
            self._same[symbol] = self._first.setdefault(key, self._same[symbol])
        product = self._product(symbol)
        alone = self.alone(symbol)
        few = product is not None and len(product.powers) <= MOST_PARTS and _is_finite(product.number)
        self.products[symbol] = product if product is not None and few else Product(1.0, {alone: 1.0})
        few = total is not None and len(total.factors) <= MOST_PARTS and _is_finite(total.constant)
        self.totals[symbol] = total if total is not None and few else Total(0.0, {alone: 1.0})

    def number(self, symbol: Symbol) -> float | None:
        """The value of a constant that is the same in all elements; None for any other tensor."""
        value = self.graph.value(symbol)
        if value is None or value.dtype.kind != "f" or not value.size:
            return None
        first = float(value.reshape(-1)[0])
        return first if np.isfinite(first) and bool((value == value.dtype.type(first)).all()) else None

    def is_constant(self, part: Laid) -> bool:
        return self.graph.value(part.symbol) is not None

    def _product(self, symbol: Symbol) -> Product | None:
        number = self.number(symbol)
        if number is not None:
            return Product(number)
        if symbol.is_variable or not symbol.type.is_float:
            return None
        operator, operation = symbol.operator, symbol.operator.operation
        if operation in (Operation.MULTIPLY, Operation.DIVIDE):
            first, second = self._operands(symbol, self.products, Product)
            return first.times(second, -1.0 if operation is Operation.DIVIDE else 1.0)
        exponent = operator.scalar if isinstance(operator, PowerScalar) else _EXPONENTS.get(type(operator))
        if exponent is not None:
            return _raised(self.products[symbol.inputs[0]], exponent)
        if isinstance(operator, Negative):
            return self.products[symbol.inputs[0]].times(Product(-1.0))
        if not _keeps_elements(symbol):
            return None
        inner = self.products[symbol.inputs[0]]
        powers = _relaid(inner.powers, symbol)
        return None if powers is None else Product(inner.number, powers)

    def _total(self, symbol: Symbol, known: Mapping[Symbol, Total]) -> Total | None:
        number = self.number(symbol)
        if number is not None:
            return Total(number)
        if symbol.is_variable or not symbol.type.is_float:
            return None
        operator, operation = symbol.operator, symbol.operator.operation
        if operation in (Operation.ADD, Operation.SUBTRACT):
            first, second = self._operands(symbol, known, Total)
            return first.plus(second, -1.0 if operation is Operation.SUBTRACT else 1.0)
        if isinstance(operator, AddN):
            total = Total()
            for source in symbol.inputs:
                total = total.plus(known[source])
            return total
        if isinstance(operator, Negative):
            return Total().plus(known[symbol.inputs[0]], -1.0)
        if operation in (Operation.MULTIPLY, Operation.DIVIDE):
            return self._multiple(symbol, known)
        if not _keeps_elements(symbol):
            return None
        inner = known[symbol.inputs[0]]
        factors = _relaid(inner.factors, symbol)
        return None if factors is None else Total(inner.constant, factors)

    def _multiple(self, symbol: Symbol, known: Mapping[Symbol, Total]) -> Total | None:
        """The sum times a number, or over one."""
        first, second = self._operands(symbol, self.products, Product)
        divides = symbol.operator.operation is Operation.DIVIDE
        data = [source for source in symbol.inputs if self.number(source) is None]
        if len(data) != 1 or (divides and not second.number):
            return None
        if data[0] is symbol.inputs[0] and not second.powers:
            return Total().plus(known[data[0]], 1 / second.number if divides else second.number)
        return Total().plus(known[data[0]], first.number) if not divides and not first.powers else None

    def _operands(self, symbol: Symbol, known: Mapping[Symbol, _Form], make: type[_Form]) -> tuple[_Form, _Form]:
        """The two operands of arithmetic, the number of one that holds it among them."""
        operator = symbol.operator
        if not isinstance(operator, WithNumber):
            return known[symbol.inputs[0]], known[symbol.inputs[1]]
        data, number = known[symbol.inputs[0]], make(operator.scalar)
        return (number, data) if operator.number_first else (data, number)


def _power(number: float, exponent: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(number) ** exponent)


def _is_finite(number: float) -> bool:
    return bool(np.isfinite(number))


def _raised(inner: Product, exponent: float) -> Product | None:
    """A product to an exponent: one that is no integer is that of a single part, whose sign the root then asks for."""
    if not float(exponent).is_integer():
        alone = len(inner.powers) == 1 and inner.number > 0
        if not alone or abs(next(iter(inner.powers.values()))) > 1:
            return None
        (part, power), number = next(iter(inner.powers.items())), _power(inner.number, exponent)
        return Product(number, {part: power * exponent})
    return Product().times(inner, exponent)


def _keeps_elements(symbol: Symbol) -> bool:
    """Whether it is a reshape or its like, or nothing at all."""
    operator = symbol.operator
    return operator.keeps_order or isinstance(operator, (Dropout, Identity))


def _relaid(parts: Mapping[Laid, float], symbol: Symbol) -> dict[Laid, float] | None:
    """The parts in the shape of `symbol`, which reshapes them; None where one is broadcast before."""
    before = symbol.inputs[0].shape
    if before == symbol.shape:
        return dict(parts)
    if any(part.shape != before for part in parts):
        return None
    return {Laid(part.symbol, symbol.shape): times for part, times in parts.items()}
