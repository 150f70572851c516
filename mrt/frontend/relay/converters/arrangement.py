"""Repeating elements and moving them between channels and space: tile, repeat, reverse, resizing, depth_to_space."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.relay.node import Node, converter
from mrt.frontend.shared.folding import check_size
from mrt.frontend.shared.resizing import resized
from mrt.frontend.shared.shuffling import shuffled
from mrt.frontend.tvm import arrangement
from mrt.frontend.tvm.layouts import channels_first, in_layout
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.arrangement import DepthToSpace, SpaceToDepth, Tile

converter("image.grid_sample")(arrangement.grid_sample)
converter("repeat")(arrangement.repeat)
converter("reverse")(arrangement.flip)


@converter("tile")
def tile(node: Node) -> Symbol:
    return node.apply(Tile(reps=node.sizes("reps")), [node.symbol(0)])


@converter("image.resize1d", "image.resize2d", "image.resize3d")
def resize(node: Node) -> Symbol:
    return arrangement.resize(node, node.sizes("size"), _half_away)


def _half_away(places: Array) -> Array:
    rounded: Array = np.copysign(np.floor(np.abs(places) + np.float32(0.5)), places)
    return rounded


@converter("nn.upsampling")
def upsampling(node: Node) -> Symbol:
    """Rows and columns repeated a whole number of times, or with as many interpolated."""
    method = node.text("method")
    if method not in ("nearest_neighbor", "bilinear"):
        raise node.unsupported("attribute method", method, "nearest_neighbor or bilinear")
    scales = node.number("scale_h"), node.number("scale_w")
    if not all(scale.is_integer() and scale >= 1 for scale in scales):
        raise node.unsupported("attributes scale_h and scale_w", scales, "whole numbers")
    data = channels_first(node, "layout", 2)
    height, width = (size * int(scale) for size, scale in zip(data.shape[2:], scales, strict=True))
    check_size(node, (height, width))
    if method == "bilinear":
        return arrangement.enlarged(node, data, (height, width), node.flag("align_corners"))
    sources = {axis: np.repeat(np.arange(data.shape[axis]), int(scale)) for axis, scale in enumerate(scales, start=2)}
    return in_layout(node, "layout", 2, lambda suffix: resized(node, data, sources, suffix))


@converter("nn.depth_to_space")
def depth_to_space(node: Node) -> Symbol:
    """Mode DCR has the depth outermost, CRD the channels."""
    data, size, mode = _image(node), node.integer("block_size"), node.text("mode")
    if mode == "CRD" and node.text("layout") == "NCHW":
        return shuffled(node, data, size)
    if mode != "DCR":
        raise node.unsupported("attribute mode", mode, "DCR, or CRD in layout NCHW")
    return in_layout(node, "layout", 2, lambda suffix: node.apply(DepthToSpace(size), [data], suffix))


@converter("nn.space_to_depth")
def space_to_depth(node: Node) -> Symbol:
    data, size = _image(node), node.integer("block_size")
    return in_layout(node, "layout", 2, lambda suffix: node.apply(SpaceToDepth(size), [data], suffix))


def _image(node: Node) -> Symbol:
    data = channels_first(node, "layout", 2)
    if data.type.rank != 4:
        raise GraphError(f"{node.label}: data is {data.type}; rank 4 is needed")
    return data
