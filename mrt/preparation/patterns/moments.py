"""Means and sums of squares as patterns ask for them: over which axes of which tensor, and times what."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mrt.preparation.patterns.algebra import Algebra, Laid, Product, Total
from mrt.symbol import Symbol
from mrt.symbol.operators.reduce import Mean, Sum

SAME = 1e-5
"""Numbers that differ by less than this share are one: float32 rounds them."""
MOST_LIMIT = 1e-6
"""The largest number to which a length may be held from below for that to count as rounding."""
MOST_ADDED = 1e-8
"""The largest number that may be added to a length for that to count as rounding."""


@dataclass(frozen=True)
class Reduced:
    """factor times the sum of `data` over `axes`, these at length 1."""

    data: Symbol
    axes: tuple[int, ...]
    factor: float

    @property
    def count(self) -> int:
        """How many elements are summed up."""
        return math.prod(self.data.shape[axis] for axis in self.axes)


@dataclass(frozen=True)
class Squares:
    """factor times the sum of the squares of `data` over `axes`, plus eps.

    mean: of `data`, where the squares are those of `data` less that mean, without that difference being a tensor.
    """

    data: Symbol
    axes: tuple[int, ...]
    factor: float
    eps: float
    mean: Product | None = None

    @property
    def count(self) -> int:
        """How many elements are summed up."""
        return math.prod(self.data.shape[axis] for axis in self.axes)


def reduced(part: Laid) -> Reduced | None:
    """The sum or mean that a part is, as far as it is laid beside its data; None where it is none."""
    operator = part.symbol.operator
    if not isinstance(operator, (Sum, Mean)):
        return None
    data = part.symbol.inputs[0]
    axes = operator.axes(data.type.rank)
    kept = tuple(1 if axis in axes else length for axis, length in enumerate(data.shape))
    if _aligned(part.shape, len(kept)) != kept:
        return None
    count = math.prod(data.shape[axis] for axis in axes)
    return Reduced(data, axes, 1.0 / count if isinstance(operator, Mean) else 1.0)


def _aligned(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The shape with the leading axes of length 1 that broadcasting to a rank gives it."""
    return (1,) * (rank - len(shape)) + shape


def squares(part: Laid, exponent: float, algebra: Algebra) -> Squares | str | None:
    """V where part ** exponent is V ** -0.5, V a sum of squares; None where it is not so, and why it is none almost.

    1. A part to -0.5 is V, or V held to a small number from below, which joins it as eps.
    2. A part to -1 is a length √V, held to a small number from below, or with one added.
    """
    inner, limit = _held(part)
    if exponent == -0.5:
        found = _sum_of_squares(inner, algebra)
        if found is not None and limit > MOST_LIMIT**2:
            return f"its sum of squares is held to {limit:.3g} from below, which is more than rounding"
        return found if found is None or not limit else _with_eps(found, limit)
    if exponent != -1.0:
        return None
    total, added = algebra.totals[inner.symbol], 0.0
    if not limit and len(total.factors) == 1 and total.constant > 0:
        ((length, factor),) = total.factors.items()
        if factor == 1.0:
            inner, added = Laid(length.symbol, inner.shape), total.constant
    found = _length(inner, limit + added, algebra)
    if found is not None and added > MOST_ADDED:
        return f"{added:.3g} is added to its length, which is more than rounding"
    if found is not None and limit > MOST_LIMIT:
        return f"its length is held to {limit:.3g} from below, which is more than rounding"
    return found


def _length(inner: Laid, limit: float, algebra: Algebra) -> Squares | None:
    """V where a part is √V, and the square of `limit` its eps."""
    product = algebra.products[inner.symbol]
    if len(product.powers) != 1 or product.number <= 0:
        return None
    ((variance, power),) = product.powers.items()
    if power != 0.5 or variance.symbol.type.size != math.prod(inner.shape):
        return None
    found = _sum_of_squares(Laid(variance.symbol, inner.shape), algebra)
    if found is None:
        return None
    times = product.number**2
    return _with_eps(replace(found, factor=found.factor * times, eps=found.eps * times), limit**2)


def _with_eps(found: Squares, eps: float) -> Squares:
    """Squares whose root is held to that of eps from below: as good as with eps added, where it is next to nothing."""
    return replace(found, eps=max(found.eps, eps))


def _held(part: Laid) -> tuple[Laid, float]:
    """The tensor that a part holds to a number from below, and the number; the part and 0 where it does not."""
    lo, hi = part.symbol.operator.limits
    is_held = not part.symbol.is_variable and len(part.symbol.inputs) == 1 and lo > 0 and hi >= 1e30
    return (Laid(part.symbol.inputs[0], part.shape), lo) if is_held and math.isfinite(lo) else (part, 0.0)


def _sum_of_squares(part: Laid, algebra: Algebra) -> Squares | None:
    """factor * sum(d^2) + eps, as a part."""
    total = _not_below_zero(part, algebra)
    if total.constant < 0:
        return None
    if len(total.factors) == 2:
        return _difference_of_squares(part, total, algebra)
    if len(total.factors) != 1:
        return None
    ((term, times),) = total.factors.items()
    return _squared(term, times, part, total.constant, algebra)


def _not_below_zero(part: Laid, algebra: Algebra) -> Total:
    """The sum that a part is, where it is relu of one, which rounding alone brings below 0, that one."""
    total = algebra.totals[part.symbol]
    if len(total.factors) == 1:
        ((term, times),) = total.factors.items()
        symbol = term.symbol
        if not symbol.is_variable and len(symbol.inputs) == 1 and symbol.operator.limits == (0.0, math.inf):
            inner = algebra.totals[symbol.inputs[0]]
            return Total(total.constant).plus(inner, times) if len(inner.factors) == 2 else total
    return total


def _squared(term: Laid, times: float, part: Laid, eps: float, algebra: Algebra) -> Squares | None:
    """A term times a number that is a sum of squares times one."""
    found = _moment(term, times, part, algebra)
    square = None if found is None else _root(found.data, algebra)
    if found is None or square is None or not found.factor * square[1] > 0:
        return None
    return Squares(square[0], found.axes, found.factor * square[1], eps)


def _moment(term: Laid, times: float, part: Laid, algebra: Algebra) -> Reduced | None:
    """A term times a number that is a sum times one, laid as a part is."""
    size = math.prod(part.shape)
    product = algebra.products[term.symbol]
    base, number = term.symbol, times
    if len(product.powers) == 1 and next(iter(product.powers.values())) == 1.0:
        base, number = next(iter(product.powers)).symbol, times * product.number
    if term.symbol.type.size != size or base.type.size != size:
        return None
    found = reduced(Laid(base, part.shape))
    return None if found is None else replace(found, factor=found.factor * number)


def _difference_of_squares(part: Laid, total: Total, algebra: Algebra) -> Squares | None:
    """a mean(x^2) - a mean(x)^2 + eps, the variance times a, as a part."""
    (first, times), (second, negative) = sorted(total.factors.items(), key=lambda item: -item[1])
    found = _squared(first, times, part, total.constant, algebra) if times > 0 > negative else None
    product = algebra.products[second.symbol]
    if found is None or set(product.powers.values()) != {2.0}:
        return None
    (summed,) = product.powers if len(product.powers) == 1 else (second,)
    moment = _moment(summed, 1.0, part, algebra)
    if moment is None or moment.axes != found.axes or algebra.alone(moment.data) != algebra.alone(found.data):
        return None
    times = -negative * product.number * moment.factor**2
    if not math.isclose(times * found.count, found.factor, rel_tol=SAME):
        return None
    mean = Product(1 / (moment.factor * moment.count), {Laid(summed.symbol, part.shape): 1.0})
    return replace(found, mean=mean)


def _root(symbol: Symbol, algebra: Algebra) -> tuple[Symbol, float] | None:
    """The tensor and the number with symbol = number * tensor^2; None where there are none."""
    wanted = algebra.products[symbol]
    halved = {part: power / 2 for part, power in wanted.powers.items()}
    pending, seen = [symbol], {symbol}
    while pending:
        for source in pending.pop().inputs:
            product = algebra.products[source]
            if source.shape == symbol.shape and dict(product.powers) == halved and halved:
                return source, wanted.number / product.number**2
            if source not in seen and _within(product, wanted):
                seen.add(source)
                pending.append(source)
    return None


def _within(product: Product, wanted: Product) -> bool:
    """Whether a product is made of parts of another."""
    return bool(product.powers) and product.powers.keys() <= wanted.powers.keys()
