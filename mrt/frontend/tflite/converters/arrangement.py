"""Repeating elements and moving them between channels and space."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.tflite.layouts import channels_last, image
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.arrangement import DepthToSpace, SpaceToDepth, Tile


@converter("TILE")
def tile(node: Node) -> Symbol:
    data, counts = node.symbol(0), node.known_integers(1, "multiples")
    if len(counts) != data.type.rank or min(counts, default=1) < 1:
        raise GraphError(f"{node.label}: multiples are {counts}; one from 1 on for each axis of {data.type} is needed")
    return node.apply(Tile(reps=counts), [data])


@converter("DEPTH_TO_SPACE")
def depth_to_space(node: Node) -> Symbol:
    """The block's place is the outer part of the channel, as in MXNet."""
    operator = DepthToSpace(block_size=node.options("DepthToSpaceOptions").integer("BlockSize"))
    data = image(node)
    return channels_last(node, 4, lambda suffix: node.apply(operator, [data], suffix))


@converter("SPACE_TO_DEPTH")
def space_to_depth(node: Node) -> Symbol:
    operator = SpaceToDepth(block_size=node.options("SpaceToDepthOptions").integer("BlockSize"))
    data = image(node)
    return channels_last(node, 4, lambda suffix: node.apply(operator, [data], suffix))
