"""Images at constant places, and the places that affine maps give: GridSample, AffineGrid."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, Value, converter
from mrt.frontend.shared.sampling import sampled
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Transpose


@converter("GridSample")
def grid_sample(node: Node) -> Symbol:
    """Modes before opset 20 are called bilinear and bicubic, then linear and cubic."""
    mode, padding = node.text("mode", "bilinear"), node.text("padding_mode", "zeros")
    return sampled(node, mode, padding, bool(node.integer("align_corners", 0)))


@converter("AffineGrid")
def affine_grid(node: Node) -> Value:
    """theta (x, y, 1) at the places of an image of (N, C, *sizes), the last axis first: a product with a constant."""
    shape, theta = node.known_integers(1, "size"), node.shape(0)
    sizes = shape[2:]
    rank = len(sizes)
    if rank not in (2, 3) or theta != (shape[0], rank, rank + 1) or min(sizes) < 1:
        raise GraphError(f"{node.label}: theta has shape {theta}, the image {shape}; they do not fit")
    node.made((math.prod(sizes), rank + 1))
    places = _places(sizes, bool(node.integer("align_corners", 0)))
    known = node.array(0)
    if known is not None:
        return np.asarray(np.einsum("pk,nrk->npr", places, known).reshape(shape[0], *sizes, rank).astype(known.dtype))
    operator = FullyConnected(num_hidden=len(places), no_bias=True, flatten=False)
    mapped = node.apply(operator, [node.symbol(0), node.parameter(places, "places")], "mapped")
    moved = node.apply(Transpose(axes=(0, 2, 1)), [mapped], "moved")
    return reshaped(node, moved, (shape[0], *sizes, rank))


def _places(sizes: tuple[int, ...], aligned: bool) -> Array:
    """The places (count, rank + 1) of an image in [-1, 1], the last axis first, and ones."""
    lines = [
        (np.linspace(-1, 1, n) if n > 1 else np.zeros(1)) if aligned else (2 * np.arange(n) + 1) / n - 1 for n in sizes
    ]
    grid = np.meshgrid(*lines, indexing="ij")
    return np.stack([*(line.reshape(-1) for line in reversed(grid)), np.ones(math.prod(sizes))], axis=-1)
