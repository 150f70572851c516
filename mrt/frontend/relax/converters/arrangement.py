"""Repeating elements and moving them between channels and space: tile, repeat, flip, resizing, pixel_shuffle."""

from __future__ import annotations

import numpy as np

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.shuffling import shuffled
from mrt.frontend.tvm import arrangement
from mrt.symbol import Symbol
from mrt.symbol.operators.arrangement import Tile

converter("image.grid_sample")(arrangement.grid_sample)
converter("repeat")(arrangement.repeat)
converter("flip")(arrangement.flip)


@converter("tile")
def tile(node: Node) -> Symbol:
    return node.apply(Tile(reps=node.sizes("repeats")), [node.symbol(0)])


@converter("nn.pixel_shuffle")
def pixel_shuffle(node: Node) -> Symbol:
    data = node.symbol(0)
    if data.type.rank != 4:
        raise node.unsupported("the data", data.type, "rank 4")
    return shuffled(node, data, node.integer("upscale_factor"))


@converter("image.resize2d", "image.resize3d")
def resize(node: Node) -> Symbol:
    return arrangement.resize(node, node.known_integers(1, "size"), np.rint)
