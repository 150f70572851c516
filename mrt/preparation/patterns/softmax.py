"""Softmax and its logarithm, spelled out with powers and their sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.preparation.patterns.algebra import Algebra, Laid, Product
from mrt.preparation.patterns.moments import MOST_ADDED, reduced
from mrt.symbol import Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.operators.functions import Exp, Log
from mrt.symbol.operators.normalization import LogSoftmax, Softmax


@dataclass(frozen=True)
class Shares:
    """The softmax of `data` along `axis`, or its logarithm."""

    data: Symbol
    axis: int
    is_logarithm: bool


def find_softmax(symbol: Symbol, algebra: Algebra) -> Shares | str | None:
    """The softmax that `symbol` is; why it is none that it looks like, or None.

    1. E / sum(E) along one axis, E = exp(X): the softmax of X. Where X = Z - M, M the same along that axis, such as
       the maximum, that of Z. At most MOST_ADDED may be added to the sum where the maximum is subtracted.
    2. log(softmax(X)) and X - log(sum(exp(X))), also X - (log(sum(exp(X - M))) + M): its logarithm.
    """
    if isinstance(symbol.operator, Log):
        inner = symbol.inputs[0]
        if isinstance(inner.operator, Softmax) and not inner.operator.temperature:
            return Shares(inner.inputs[0], inner.operator.axis % symbol.type.rank, True)
        found = _shares(inner, algebra, False)
        return Shares(found.data, found.axis, True) if isinstance(found, Shares) else None
    if symbol.operator.operation in (Operation.ADD, Operation.SUBTRACT):
        return _log_shares(symbol, algebra)
    return _shares(symbol, algebra, True)


def _shares(symbol: Symbol, algebra: Algebra, may_add: bool) -> Shares | str | None:
    product = algebra.products[symbol]
    if len(product.powers) != 2 or set(product.powers.values()) != {1.0, -1.0}:
        return None
    power, below = sorted(product.powers, key=lambda part: -product.powers[part])
    total = algebra.totals[below.symbol]
    if not isinstance(power.symbol.operator, Exp) or len(total.factors) != 1 or power.shape != symbol.shape:
        return None
    ((part, factor),) = total.factors.items()
    found = _sum_of(power.symbol, Laid(part.symbol, below.shape))
    if found is None or part.symbol.type.size != below.symbol.type.size:
        return None
    axis, times = found
    if not np.isclose(product.number, factor * times, rtol=1e-5):
        return "its sum is taken times a number"
    data = _without_highest(power.symbol.inputs[0], axis)
    if total.constant and (not may_add or data is power.symbol.inputs[0] or not 0 < total.constant <= MOST_ADDED):
        return f"{total.constant:.3g} is added to its sum"
    return Shares(data, axis, False)


def _sum_of(power: Symbol, part: Laid) -> tuple[int, float] | None:
    """The one axis over which a part is the sum of `power`, and the number that it is taken times."""
    found = reduced(part)
    if found is None or found.data is not power or len(found.axes) != 1 or found.axes[0] == 0:
        return None
    return found.axes[0], found.factor


def _without_highest(data: Symbol, axis: int) -> Symbol:
    """What `data` subtracts a tensor from that is the same along `axis`, which changes no share."""
    while data.operator.operation is Operation.SUBTRACT and len(data.inputs) == 2:
        source, highest = data.inputs
        shape = (1,) * (data.type.rank - highest.type.rank) + highest.shape
        if source.shape != data.shape or len(shape) != data.type.rank or shape[axis] != 1:
            break
        data = source
    return data


def _log_shares(symbol: Symbol, algebra: Algebra) -> Shares | None:
    total = algebra.totals[symbol]
    for part, factor in total.factors.items():
        if factor != -1.0 or not isinstance(part.symbol.operator, Log):
            continue
        product: Product = algebra.products[part.symbol.inputs[0]]
        if product.number != 1.0 or len(product.powers) != 1:
            continue
        summed = Laid(next(iter(product.powers)).symbol, part.shape)
        if not summed.symbol.inputs or not isinstance(summed.symbol.inputs[0].operator, Exp):
            continue
        power = summed.symbol.inputs[0]
        found = _sum_of(power, summed)
        rest = {other: times for other, times in total.factors.items() if other is not part}
        scores = algebra.totals[power.inputs[0]]
        if found is None or found[1] != 1.0 or rest != scores.factors or total.constant != scores.constant:
            continue
        return Shares(_without_highest(power.inputs[0], found[0]), found[0], True)
    return None


def softmax_of(found: Shares) -> Softmax | LogSoftmax:
    """The operator that has its name."""
    return LogSoftmax(axis=found.axis) if found.is_logarithm else Softmax(axis=found.axis)
