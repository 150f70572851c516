"""Layouts such as NHWC, read from attributes, and the transposes between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.frontend.shared.channels_first import reordered, transposed
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Symbol


def permutation(node: TVMNode, attribute: str, layout: str) -> tuple[int, ...]:
    """The axes that bring a tensor from the layout that an attribute names, such as "NHWC", to `layout`.

    Raises UnsupportedOperatorError where the two do not have the same axes, as in blocked layouts.
    """
    found = node.text(attribute)
    if sorted(found) != sorted(layout):
        raise node.unsupported(f"attribute {attribute}", found, f"an order of the axes {layout}")
    return tuple(found.index(letter) for letter in layout)


def spatial_axes(count: int) -> str:
    """The letters of the last `count` spatial axes."""
    return "DHW"[-count:]


def channels_first(node: TVMNode, attribute: str, spatial: int) -> Symbol:
    """The data input as NCW, NCHW or NCDHW; an attribute names the layout that it has."""
    axes = permutation(node, attribute, "NC" + spatial_axes(spatial))
    return transposed(node, node.symbol(0, "data"), axes, "data")


def in_layout(node: TVMNode, attribute: str, spatial: int, make: Callable[[str], Symbol]) -> Symbol:
    """What `make` gives, which has its channels first, brought into the layout that an attribute names.

    make: is told the suffix of the name of what it makes.
    """
    return reordered(node, np.argsort(permutation(node, attribute, "NC" + spatial_axes(spatial))).tolist(), make)


def weight_in(node: TVMNode, channels: str, spatial: int) -> Symbol:
    """The weight of a window with its axes `channels`, "OI" or "IO", before the kernel's; at once where it is known."""
    layout = channels + spatial_axes(spatial)
    axes = permutation(node, "kernel_layout", layout)
    if axes == tuple(range(len(axes))):
        return node.symbol(1, "weight")
    if node.array(1) is None:
        return transposed(node, node.symbol(1), axes, "weight")
    return node.parameter_of(1, "weight", layout.lower(), lambda weight: np.transpose(weight, axes))
