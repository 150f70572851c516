"""An image at given places between its elements: which elements count there, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.resizing import LINEAR, Kernel, cubic
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.transform import Take

_KERNELS: dict[str, Kernel | None] = {
    "nearest": None,
    "linear": LINEAR,
    "bilinear": LINEAR,
    "cubic": cubic(-0.75),
    "bicubic": cubic(-0.75),
}
"""What weighs the elements, None where the nearest one counts alone."""

PADDINGS = ("zeros", "border", "reflection")
"""What lies outside: nothing, the outermost element, or the image in a mirror at its border."""

_Taps = list[tuple[Array, Array]]
"""Elements along one axis, int64, and how much each counts, for every place."""


def sampled(node: ModelNode, method: str, padding: str, aligned: bool, axis: int = -1) -> Symbol:
    """The node's data (N, C, *sizes) at the places of a constant grid (N, *new sizes, axes), its second input.

    The coordinates lie along the grid's axis `axis`, those of the data's last axis first; -1 and 1 are the centers of
    the outermost elements if aligned, else their outer borders. A sum of elements at constant places times constants.
    UnsupportedOperatorError for a grid that is computed, or not the same for all images of the batch.
    """
    data = node.symbol(0)
    sizes = data.shape[2:]
    if not node.is_known(1):
        raise node.unsupported("input grid", "computed from the data", "a constant, since places cannot be rounded,")
    given = node.known(1, "grid")
    grid = np.moveaxis(given, axis, -1).astype(np.float32) if given.ndim == data.type.rank else given
    if grid.ndim != data.type.rank or grid.shape[-1] != len(sizes) or not np.isfinite(grid).all():
        raise node.unsupported("input grid", f"of shape {grid.shape}", f"finite places in {data.type}")
    if not (grid == grid[:1]).all():
        raise node.unsupported("input grid", "not the same for all images of the batch", "one for all")
    if method not in _KERNELS or padding not in PADDINGS:
        raise node.unsupported("mode and padding", f"{method} and {padding}", f"one of {[*_KERNELS]} and {PADDINGS}")
    node.made(grid.shape)
    taps = [
        _taps(grid[0, ..., -1 - axis].reshape(-1), size, _KERNELS[method], padding, aligned)
        for axis, size in enumerate(sizes)
    ]
    return _summed(node, data, taps, grid.shape[1:-1])


def _summed(node: ModelNode, data: Symbol, taps: Sequence[_Taps], shape: tuple[int, ...]) -> Symbol:
    sizes = data.shape[2:]
    flat = reshaped(node, data, (*data.shape[:2], int(np.prod(sizes))), "flat")
    terms: list[Symbol] = []
    for combination in product(*taps):
        weights = np.prod([weight for _, weight in combination], axis=0)
        if not weights.any():
            continue
        places = np.ravel_multi_index([place for place, _ in combination], sizes).astype(np.int32)
        number = len(terms)
        term = node.apply(Take(axis=2), [flat, node.parameter(places, f"places{number}")], f"taken{number}")
        if not (weights == 1).all():
            factors = node.parameter(weights.reshape(1, 1, -1), f"weights{number}")
            term = node.apply(BroadcastMul(), [term, factors], f"weighted{number}")
        terms.append(term)
    if not terms:
        raise node.unsupported("input grid", "outside of the image everywhere", "a place inside")
    total = node.apply(AddN(), terms, "total") if len(terms) > 1 else terms[0]
    return reshaped(node, total, (*data.shape[:2], *shape))


def _taps(grid: Array, size: int, kernel: Kernel | None, padding: str, aligned: bool) -> _Taps:
    """The elements of an axis of `size` that count at places in [-1, 1]."""
    half = np.float32(0.5)
    lies = (grid + 1) * half * np.float32(size - 1) if aligned else ((grid + 1) * np.float32(size) - 1) * half
    if kernel is None or kernel.reach == 1:
        # The cubic kernel's place stays where it is; of its elements each is looked up outside.
        lies = _inside(lies, size, padding, aligned)
    if kernel is None:
        return [_element(np.rint(lies), np.ones(len(lies)), size, padding, aligned)]
    first = np.floor(lies)
    return [
        _element(first + step, kernel.weight(np.abs(first + step - lies.astype(np.float64))), size, padding, aligned)
        for step in range(1 - kernel.reach, kernel.reach + 1)
    ]


def _element(places: Array, weights: Array, size: int, padding: str, aligned: bool) -> tuple[Array, Array]:
    inside = _inside(places, size, padding, aligned)
    counts = (inside >= 0) & (inside <= size - 1)
    return np.clip(inside, 0, size - 1).astype(np.int64), np.where(counts, weights, 0.0)


def _inside(places: Array, size: int, padding: str, aligned: bool) -> Array:
    """Where places outside are looked up; with zeros they stay outside."""
    if padding == "zeros":
        return places
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
        if not span:
            return np.zeros_like(places)
        turned = np.abs(places - low) % (2 * span)
        places = np.minimum(turned, 2 * span - turned) + low
    return np.clip(places, 0, size - 1)
