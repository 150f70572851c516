"""Sums of products: the dtype in which they are exact, and convolution by matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mrt.symbol.interval import Array

_BLOCK = 2**22
"""Elements of the largest array of window columns that a convolution holds at a time."""
_CACHED = 2**15
"""Elements of sums that stay in a core's cache, beside as many products and what these are of."""


def summable(x: Array, terms: int) -> Array:
    """`x` in a dtype in which any `terms` of its elements add up without overflow."""
    if x.dtype.kind == "f":
        return x.astype(np.float64)
    return x.astype(np.int64 if _magnitude(x) * terms < 2**63 else object)


def sum_of_products(compute: Callable[[Array, Array], Array], x: Array, y: Array, terms: int) -> Array:
    """compute(x, y), each of whose elements is a sum of `terms` products, in float64 or exact in integers.

    Integers go through the fast float matrix product where no partial sum can leave the integers that the float
    dtype holds exactly, else through int64 or Python ints.
    """
    if x.dtype.kind == "f" or y.dtype.kind == "f":
        return compute(x.astype(np.float64), y.astype(np.float64))
    largest = _magnitude(x) * _magnitude(y) * max(terms, 1)
    for dtype, limit in ((np.float32, 2**24), (np.float64, 2**53), (np.int64, 2**63)):
        if largest < limit:
            return compute(x.astype(dtype), y.astype(dtype)).astype(np.int64)
    return compute(x.astype(object), y.astype(object))


def convolve(x: Array, weight: Array, stride: tuple[int, ...], dilate: tuple[int, ...], groups: int) -> Array:
    """Convolution of the padded (N, C, *spatial) with the weight (O, C / groups, *kernel), in their own dtype."""
    if groups > 1 and weight.shape[1] == 1:
        return _convolve_depthwise(x, weight, stride, dilate, groups)
    view = windows(x, weight.shape[2:], stride, dilate)
    spatial_rank = weight.ndim - 2
    batch, outputs, spatial = x.shape[0], weight.shape[0], view.shape[2 : 2 + spatial_rank]
    result = np.empty((batch, outputs, *spatial), x.dtype)
    matrices = weight.reshape(groups, outputs // groups, -1)
    taps_first = (0, 1, *range(2 + spatial_rank, 2 + 2 * spatial_rank), *range(2, 2 + spatial_rank))
    for samples, rows in _blocks(batch, spatial[0], matrices[0, 0].size * groups * int(np.prod(spatial[1:]))):
        block = view[samples, :, rows].transpose(taps_first)
        columns = block.reshape(block.shape[0], groups, matrices.shape[2], -1)
        result[samples, :, rows] = np.matmul(matrices, columns).reshape(result[samples, :, rows].shape)
    return result


def _convolve_depthwise(
    x: Array, weight: Array, stride: tuple[int, ...], dilate: tuple[int, ...], groups: int
) -> Array:
    """One input channel per group: a sum over the kernel's taps of shifted images."""
    kernel = weight.shape[2:]
    spatial = tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilate, strict=True)
    )
    images = x[:, :, None]
    taps = weight.reshape(groups, -1, *kernel, *(1,) * len(kernel))
    result = np.zeros((x.shape[0], groups, taps.shape[1], *spatial), x.dtype)
    step = max(_CACHED * groups // max(result.size, 1), 1)
    for first in range(0, groups, step):
        some = (slice(None), slice(first, first + step), slice(None))
        sums = result[some]
        products = np.empty_like(sums)
        for tap in np.ndindex(*kernel):
            at = [
                slice(t * d, t * d + s * (n - 1) + 1, s)
                for t, d, s, n in zip(tap, dilate, stride, spatial, strict=True)
            ]
            sums += np.multiply(images[(*some, *at)], taps[(*some[1:], *tap)], out=products)
    return result.reshape(x.shape[0], -1, *spatial)


def windows(x: Array, kernel: tuple[int, ...], stride: tuple[int, ...], dilate: tuple[int, ...]) -> Array:
    """A view (N, C, *output spatial, *kernel) of every window."""
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilate, strict=True))
    axes: Any = tuple(range(2, x.ndim))  # NumPy 2.2 is annotated for a single axis only.
    view: Array = sliding_window_view(x, spans, axis=axes)
    steps = (slice(None), slice(None), *(slice(None, None, step) for step in (*stride, *dilate)))
    return view[steps]


def _blocks(batch: int, rows: int, row_size: int) -> Iterator[tuple[slice, slice]]:
    """Whole samples while they fit a block, else a sample's rows in parts."""
    fitting = max(1, _BLOCK // max(row_size, 1))
    if fitting >= rows:
        step = fitting // rows
        for start in range(0, batch, step):
            yield slice(start, start + step), slice(None)
        return
    for sample in range(batch):
        for start in range(0, rows, fitting):
            yield slice(sample, sample + 1), slice(start, start + fitting)


def _magnitude(x: Array) -> int:
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0
