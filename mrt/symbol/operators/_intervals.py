"""Interval arithmetic that several records share; integers exact, floats free of NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from mrt.symbol.interval import Array, Interval, add, exact_array, magnitudes, multiply, narrowed, subtract, total
from mrt.symbol.operator import Operator
from mrt.symbol.operators._products import sum_of_products
from mrt.symbol.types import TensorType

_EXPANDED_LIMIT = 2**20
"""A reshape keeps no more bounds than these of one tensor."""
_REPEATED_LIMIT = 2**15
"""It repeats bounds until there are so many; what networks flatten is seldom longer."""
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

    rows: (G, O, inputs * taps). lo, hi: (G, inputs), finite. Of integers both are (W (lo + hi) -+ |W| (hi - lo)) / 2,
    which is whole; rounded floats would lose the sign of a sum that is 0.
    """
    lo, hi = np.repeat(lo, taps, axis=1)[..., None], np.repeat(hi, taps, axis=1)[..., None]
    if "f" in (rows.dtype.kind, lo.dtype.kind, hi.dtype.kind):
        parts = [(np.maximum(block, 0), np.minimum(block, 0)) for block in _row_blocks(rows)]
        least = [_products(above, lo) + _products(below, hi) for above, below in parts]
        most = [_products(above, hi) + _products(below, lo) for above, below in parts]
    else:
        ends, width = add(lo, hi), subtract(hi, lo)
        parts = [(_products(block, ends), _products(magnitudes(block), width)) for block in _row_blocks(rows)]
        least = [subtract(middle, reach) >> 1 for middle, reach in parts]
        most = [add(middle, reach) >> 1 for middle, reach in parts]
    return np.concatenate(least, axis=1), np.concatenate(most, axis=1)


def _products(rows: Array, columns: Array) -> Array:
    """(G, O), each row (G, O, K) times its column (G, K, 1)."""
    return sum_of_products(np.matmul, rows, columns, rows.shape[-1])[..., 0]


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


def reshaped(x: Interval, shape: tuple[int, ...], repeats: int = _REPEATED_LIMIT) -> Interval:
    """The bounds of a tensor whose elements are laid out anew, in the same order; x holds as many as `shape`.

    Axes are split and joined in groups; a group along which no bound varies stays one bound. Exact, but where axes with
    and without variation are joined into more than `repeats` elements, as channels and positions when all of a sound
    is normalised at once: each bound would stand there thousands of times, in every later step. These get one bound
    for all, and so does a tensor whose bounds take 2^20 numbers.
    """
    lo, hi = (x.lo, x.hi) if x.lo.shape == x.hi.shape else np.broadcast_arrays(x.lo, x.hi)
    if lo.size == 1:
        return x.reshaped(shape)
    if 0 in shape:
        return Interval(np.broadcast_to(lo, x.shape).reshape(shape), np.broadcast_to(hi, x.shape).reshape(shape), shape)
    made: list[int] = []
    for old, new in _axis_groups(x.shape, shape):
        axes = tuple(range(*old.indices(len(x.shape))))
        varies = [lo.shape[a] == x.shape[a] for a in axes]
        if all(varies):
            made += shape[new]
            continue
        if any(lo.shape[a] > 1 for a in axes) and prod(x.shape[old]) <= repeats:
            lengths = tuple(x.shape[a] if a in axes else n for a, n in enumerate(lo.shape))
            lo, hi = np.broadcast_to(lo, lengths), np.broadcast_to(hi, lengths)
            made += shape[new]
        else:
            lo, hi = lo.min(axis=axes, keepdims=True), hi.max(axis=axes, keepdims=True)
            made += [1] * len(shape[new])
    if lo.size >= _EXPANDED_LIMIT:
        return x.reshaped(shape)
    return Interval(lo.reshape(made), hi.reshape(made), shape)


def _axis_groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Runs of old axes and the new ones that hold the same elements, each run as short as it can be.

    (2, 6, 5) and (2, 2, 3, 5) are three runs: (2) and (2), (6) and (2, 3), (5) and (5). No length is 0.
    """
    i = j = 0
    while i < len(old) or j < len(new):
        first, start = i, j
        held, wanted = 1, 1
        while i == first or j == start or held != wanted:
            if j < len(new) and (wanted < held or i == len(old)):
                wanted, j = wanted * new[j], j + 1
            elif i < len(old):
                held, i = held * old[i], i + 1
            else:
                break
        yield slice(first, i), slice(start, j)


def _times(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        result = multiply(a, b)
    return np.where(np.isnan(result), 0.0, result) if result.dtype.kind == "f" else result


def _sum(bound: Array, shape: tuple[int, ...], axes: tuple[int, ...], times: int) -> Array:
    for a in axes:
        if bound.shape[a] != shape[a]:
            times *= shape[a]
    return exact_array(total(bound, axes, times, keepdims=True))
