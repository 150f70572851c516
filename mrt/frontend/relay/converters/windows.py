"""Operators with sliding windows: convolution, its transpose and pooling, in any layout."""

from __future__ import annotations

from mrt.frontend.relay.node import Node, converter
from mrt.frontend.tvm import windows
from mrt.symbol import Symbol

_DIMENSIONS = (1, 2, 3)

for _kind in ("avg", "max"):
    converter(*(f"nn.{_kind}_pool{n}d" for n in _DIMENSIONS))(windows.pooling)
    converter(*(f"nn.global_{_kind}_pool{n}d" for n in _DIMENSIONS))(windows.global_pooling)


@converter(*(f"nn.conv{n}d" for n in _DIMENSIONS))
def convolution(node: Node) -> Symbol:
    """channels and kernel_size are those of the weight."""
    return node.cast(windows.convolution(node), node.out_dtype("out_dtype", node.symbol(0).dtype))


@converter(*(f"nn.conv{n}d_transpose" for n in _DIMENSIONS))
def deconvolution(node: Node) -> Symbol:
    return node.cast(windows.deconvolution(node), node.out_dtype("out_dtype", node.symbol(0).dtype))


@converter(*(f"nn.adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in _DIMENSIONS))
def adaptive_pooling(node: Node) -> Symbol:
    """No output size means that of the data, one number that of every axis."""
    given, spatial = node.sizes("output_size"), len(node.text("layout")) - 2
    target = given * spatial if len(given) == 1 else given
    return windows.adaptive_pooling(node, target or None)
