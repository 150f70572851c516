"""Normalisations that are spelled out: by mean and variance, by the root of the mean square, by the length."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mrt.preparation.patterns.algebra import Algebra, Laid, Product
from mrt.preparation.patterns.moments import SAME, Squares, reduced, squares
from mrt.symbol import Array, Symbol


@dataclass(frozen=True)
class Normalization:
    """gain * (data - mean) / sqrt(variance + eps) + shift over `axes`, or gain * data / sqrt(sum of squares + eps).

    centred: which of the two. gain, shift: float64, of the rank of the data, each axis 1 or full.
    """

    data: Symbol
    axes: tuple[int, ...]
    eps: float
    centred: bool
    gain: Array
    shift: Array


def find_normalization(symbol: Symbol, algebra: Algebra) -> Normalization | str | None:
    """The normalisation that `symbol` is; why it is none that it looks like, or None.

    1. d V^-0.5 times constants, plus constants: V = a sum(d^2) + e over some axes, d = x - mean(x) over the same, or
       any other tensor d, or a (mean(x^2) - mean(x)^2) + e. The exponent comes from a square root, a power, a
       reciprocal, a division, in any order.
    2. x V^-0.5 g - mean(x) V^-0.5 g, plus constants, which is the same.
    3. d / max(√V, e), or √V + e, with an e that is next to nothing.
    """
    total = algebra.totals[symbol]
    computed = {part: times for part, times in total.factors.items() if not algebra.is_constant(part)}
    shifts = {part: times for part, times in total.factors.items() if algebra.is_constant(part)}
    if any(part.shape != part.symbol.shape for part in total.factors):
        return None
    shift = _constant(symbol, Product(), {}) * total.constant
    for part, times in shifts.items():
        shift = shift + times * _constant(symbol, Product(1.0, {part: 1.0}), {part: algebra.graph.value(part.symbol)})
    terms = [algebra.products[part.symbol].times(Product(times)) for part, times in computed.items()]
    if len(terms) == 1:
        return _of_one_term(symbol, terms[0], shift, algebra)
    return _of_two_terms(symbol, terms, shift, algebra) if len(terms) == 2 else None


def _of_one_term(symbol: Symbol, term: Product, shift: Array, algebra: Algebra) -> Normalization | str | None:
    """Rules 1 and 3."""
    for part, exponent in term.powers.items():
        found = squares(part, exponent, algebra)
        if isinstance(found, str):
            return found
        if found is not None and found.mean is not None:
            found = _less_mean(found, term, algebra)
        if found is None:
            continue
        rest = term.times(Product(1.0, {part: exponent}), -1.0).times(algebra.products[found.data], -1.0)
        if any(not algebra.is_constant(other) for other in rest.powers):
            return f"it divides by the length of {found.data.name}, but not that tensor alone"
        mean = _mean_of(found, algebra)
        return _normalization(symbol, found, None if mean is None else mean[0], rest, shift, algebra)
    return None


def _of_two_terms(symbol: Symbol, terms: list[Product], shift: Array, algebra: Algebra) -> Normalization | str | None:
    """Rule 2."""
    for part, exponent in terms[0].powers.items():
        found = squares(part, exponent, algebra)
        if found is None or isinstance(found, str):
            continue
        data = _mean_of(found, algebra) if found.mean is None else (found.data, found.mean)
        if data is None:
            continue
        source, mean = data
        over = Product(1.0, {part: exponent})
        rests = [term.times(over, -1.0) for term in terms]
        for first, second in (rests, rests[::-1]):
            gain = first.times(algebra.products[source], -1.0)
            other = second.times(mean, -1.0)
            is_same = math.isclose(gain.number, -other.number, rel_tol=SAME) and gain.powers == other.powers
            if is_same and all(algebra.is_constant(p) for p in gain.powers):
                return _normalization(symbol, found, source, gain, shift, algebra)
    return None


def _less_mean(found: Squares, term: Product, algebra: Algebra) -> Squares | None:
    """The squares as those of the factor of a product that is the data less their mean; None where there is none."""
    for part, power in term.powers.items():
        less = replace(found, data=part.symbol, mean=None)
        mean = _mean_of(less, algebra) if power == 1.0 and part.shape == found.data.shape else None
        if mean is not None and algebra.alone(mean[0]) == algebra.alone(found.data):
            return less
    return None


def _mean_of(found: Squares, algebra: Algebra) -> tuple[Symbol, Product] | None:
    """x and mean(x) where the squares are those of x - mean(x), the mean over the axes of their sum; else None."""
    total = algebra.totals[found.data]
    for mean, factor in () if total.constant else total.factors.items():
        product = algebra.products[mean.symbol]
        base = next(iter(product.powers)).symbol if len(product.powers) == 1 else mean.symbol
        number = product.number if len(product.powers) == 1 else 1.0
        moment = reduced(Laid(base, mean.shape)) if base.type.size == mean.symbol.type.size else None
        if moment is None or moment.axes != found.axes or moment.data.shape != found.data.shape:
            continue
        rest = {part: times for part, times in total.factors.items() if part != mean}
        is_mean = math.isclose(factor * number * moment.factor * moment.count, -1.0, rel_tol=SAME)
        if is_mean and algebra.is_total(rest, moment.data):
            return moment.data, product
    return None


def _normalization(
    symbol: Symbol,
    found: Squares,
    centred: Symbol | None,
    rest: Product,
    shift: Array,
    algebra: Algebra,
) -> Normalization | str:
    """The normalisation of `centred`, less whose mean the squares are, or of the data of the squares themselves."""
    data = found.data if centred is None else centred
    if 0 in found.axes:
        return "it is normalised over axis 0, the batch"
    if data.shape != symbol.shape:
        return f"its data {data.name} is {data.type}, and becomes {symbol.type}"
    factor = found.factor if centred is None else found.factor * found.count
    values = {part: algebra.graph.value(part.symbol) for part in rest.powers}
    gain = _constant(symbol, rest, values) / math.sqrt(factor)
    if not np.isfinite(gain).all():
        return "its constant factor is not finite"
    return Normalization(data, found.axes, found.eps / factor, centred is not None, gain, shift)


def _constant(symbol: Symbol, product: Product, values: dict[Laid, Array | None]) -> Array:
    """The value of a product of constants, of the rank of `symbol`, float64."""
    result = np.full((1,) * symbol.type.rank, product.number, np.float64)
    for part, exponent in product.powers.items():
        value = np.asarray(values[part], np.float64).reshape(part.shape)
        with np.errstate(all="ignore"):
            result = result * value.reshape((1,) * (symbol.type.rank - value.ndim) + value.shape) ** exponent
    return result
