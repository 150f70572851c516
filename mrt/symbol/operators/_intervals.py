"""Interval arithmetic that several records share; integers exact, floats free of NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from mrt.symbol.interval import Array, Interval, add, exact_array, multiply, narrowed, subtract, total
from mrt.symbol.operator import Operator
from mrt.symbol.operators._products import sum_of_products
from mrt.symbol.types import TensorType

_EXPANDED_LIMIT = 2**20
"""Bounds of more elements than this are kept as scalars where a reshape would need them in full."""
_REPEATED_LIMIT = 2**15
"""So are bounds of at least so many where a reshape would repeat fewer; what networks flatten is shorter."""
_BLOCK = 2**17
"""Weights that are summed at once: copies of so many stay in the cache."""


def unknown(shape: Sequence[int]) -> Interval:
    """Any float at all."""
    return Interval.of(-np.inf, np.inf, shape)


def output_shape(operator: Operator, *inputs: Interval) -> tuple[int, ...]:
    """The shape that a float or integer operator gives for inputs of these intervals."""
    return operator.infer(*(TensorType(x.shape) for x in inputs)).shape


def without_nan(x: Interval) -> Interval:
    """Bounds that are NaN (inf - inf) become infinite."""
    if x.lo.dtype.kind != "f":
        return x
    return Interval(np.where(np.isnan(x.lo), -np.inf, x.lo), np.where(np.isnan(x.hi), np.inf, x.hi), x.shape)


def added(x: Interval, y: Interval, shape: Sequence[int]) -> Interval:
    """Bounds of x + y for independent tensors that broadcast to `shape`."""
    with np.errstate(all="ignore"):
        return without_nan(Interval.of(add(x.lo, y.lo), add(x.hi, y.hi), shape))


def subtracted(x: Interval, y: Interval, shape: Sequence[int]) -> Interval:
    """Bounds of x - y for independent tensors that broadcast to `shape`."""
    with np.errstate(all="ignore"):
        return without_nan(Interval.of(subtract(x.lo, y.hi), subtract(x.hi, y.lo), shape))


def product(x: Interval, y: Interval, shape: Sequence[int]) -> Interval:
    """Bounds of x * y for independent tensors that broadcast to `shape`; 0 times infinity is 0."""
    lefts = (x.lo,) if x.is_constant else (x.lo, x.hi)
    rights = (y.lo,) if y.is_constant else (y.lo, y.hi)
    corners = [_times(a, b) for a in lefts for b in rights]
    lo, hi = corners[0], corners[0]
    for corner in corners[1:]:
        lo, hi = np.minimum(lo, corner), np.maximum(hi, corner)
    return Interval.of(lo, hi, shape)


def summed(x: Interval, axes: tuple[int, ...], times: int = 1) -> Interval:
    """Bounds of the sum over `axes` (which stay, with length 1), taken `times` times.

    Along an axis where one bound stands for all elements it counts once for each.
    """
    with np.errstate(all="ignore"):
        lo = _sum(x.lo, x.shape, axes, times)
        hi = _sum(x.hi, x.shape, axes, times)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return without_nan(Interval(lo, hi, shape))


def weighted(x: Interval, weight: Interval, groups: int = 1) -> Interval:
    """Bounds, of shape (O,), of the sum over i and k of x[g I + i] weight[o, i, k] for every o, g being its group.

    x: bounds of the (groups I,) channels, or one for all. weight: (O, I, *kernel), where groups divides O.
    """
    outputs, inputs, taps = weight.shape[0], weight.shape[1], prod(weight.shape[2:])
    if weight.known is not None and weight.known.dtype.kind in "iu" and x.is_one:
        positive, negative = weight.signed_sums
        lo, hi = (add(multiply(positive, a), multiply(negative, b)) for a, b in ((x.min, x.max), (x.max, x.min)))
        return Interval(lo, hi, (outputs,))
    ends = (np.broadcast_to(end.reshape(-1), (groups * inputs,)) for end in (x.lo, x.hi))
    lo, hi = (end.reshape(groups, inputs) for end in ends)
    if weight.is_constant and _is_finite(lo) and _is_finite(hi):
        known = np.broadcast_to(weight.lo if weight.known is None else weight.known, weight.shape)
        found = _weighted_by(narrowed(known).reshape(groups, outputs // groups, -1), lo, hi, taps)
    elif weight.known is not None and (lo == -np.inf).all() and (hi == np.inf).all():
        reads = weight.known.reshape(groups, outputs // groups, -1).any(axis=-1)
        found = np.where(reads, -np.inf, 0.0), np.where(reads, np.inf, 0.0)
    else:
        each = (*weight.shape[:2], *(1,) * (len(weight.shape) - 2))
        seen = [np.repeat(end, outputs // groups, axis=0).reshape(each) for end in (lo, hi)]
        terms = product(Interval(seen[0], seen[1], weight.shape), weight, weight.shape)
        sums = summed(terms, tuple(range(1, len(each))))
        found = sums.lo, sums.hi
    return Interval(found[0].reshape(-1), found[1].reshape(-1), (outputs,))


def _weighted_by(rows: Array, lo: Array, hi: Array, taps: int) -> tuple[Array, Array]:
    """The least and the greatest sum of known weights, (G, O), for lo <= x <= hi.

    rows: (G, O, inputs * taps). lo, hi: (G, inputs), finite.
    """
    ends = np.repeat(np.stack([lo, hi], axis=-1), taps, axis=1)
    sums = [_signed_sums(block, ends) for block in _row_blocks(rows)]
    found = np.concatenate(sums, axis=1) if len(sums) > 1 else sums[0]
    return found[..., 0], found[..., 1]


def _signed_sums(rows: Array, ends: Array) -> Array:
    """(G, O, 2): the sums of rows (G, O, K) with the ends (G, K, 2) at which they are least and greatest."""
    above = sum_of_products(np.matmul, np.maximum(rows, 0), ends, rows.shape[-1])
    below = sum_of_products(np.matmul, np.minimum(rows, 0), ends[..., ::-1], rows.shape[-1])
    return add(above, below)


def _row_blocks(rows: Array) -> Iterator[Array]:
    """The rows of all groups, (G, O, K), as many at once as stay in the cache."""
    step = max(_BLOCK * rows.shape[1] // max(rows.size, 1), 1)
    for first in range(0, max(rows.shape[1], 1), step):
        yield rows[:, first : first + step]


def _is_finite(bound: Array) -> bool:
    return bound.dtype.kind != "f" or bool(np.isfinite(bound).all())


def partial_sums(terms: Interval) -> Interval:
    """The terms, each widened to hold 0: sums of these bound every partial sum, in any order of adding.

    Factors of terms serve as well: zero in one of them is zero in the product.
    """
    return terms.including(0)


def hull_of(intervals: Sequence[Interval], shape: Sequence[int]) -> Interval:
    """The smallest interval that holds all of these, whose bounds broadcast to `shape`."""
    lo, hi = intervals[0].lo, intervals[0].hi
    for x in intervals[1:]:
        lo, hi = np.minimum(lo, x.lo), np.maximum(hi, x.hi)
    return Interval.of(lo, hi, shape)


def reshaped(x: Interval, shape: Sequence[int]) -> Interval:
    """The bounds of a tensor whose elements are laid out anew, in the same order.

    Exact where the bounds are scalar or the tensor is small; else one bound for all. Bounds that would be repeated,
    such as those of channels when positions join them, are kept in smaller tensors only: a network that normalises
    all of a sound at once would hold each of a few hundred bounds thousands of times, in every step. A leading axis
    that stays and along which the bounds do not vary is not expanded.
    """
    if x.lo.size == 1 and x.hi.size == 1:
        return x.reshaped(shape)
    keeps = bool(shape) and bool(x.shape) and shape[0] == x.shape[0] and x.lo.shape[0] == x.hi.shape[0] == 1
    old, new = ((1, *x.shape[1:]), (1, *shape[1:])) if keeps else (x.shape, tuple(shape))
    repeats = max(x.lo.size, x.hi.size) < prod(new)
    if prod(new) >= (_REPEATED_LIMIT if repeats else _EXPANDED_LIMIT):
        return x.reshaped(shape)
    lo, hi = (np.broadcast_to(v, old).reshape(new) for v in (x.lo, x.hi))
    return Interval(lo, hi, tuple(shape))


def _times(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        result = multiply(a, b)
    return np.where(np.isnan(result), 0.0, result) if result.dtype.kind == "f" else result


def _sum(bound: Array, shape: tuple[int, ...], axes: tuple[int, ...], times: int) -> Array:
    for a in axes:
        if bound.shape[a] != shape[a]:
            times *= shape[a]
    return exact_array(total(bound, axes, times, keepdims=True))
