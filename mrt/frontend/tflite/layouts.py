"""Images of TFLite have their channels last: (N, H, W, C). What reads them gets them with the channels first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.channels_first import reordered, transposed
from mrt.frontend.tflite.node import Node
from mrt.symbol import Symbol


def channels_second(node: Node) -> Symbol:
    """The data, of any rank from 2 on, with its last axis in place 1."""
    data = node.symbol(0, "data")
    rank = data.type.rank
    return transposed(node, data, (0, rank - 1, *range(1, rank - 1)), "data")


def image(node: Node) -> Symbol:
    """The data as (N, C, H, W); GraphError where it is no image."""
    if len(node.shape(0)) != 4:
        raise GraphError(f"{node.label}: data has shape {node.shape(0)}; rank 4 is needed")
    return channels_second(node)


def channels_last(node: Node, rank: int, make: Callable[[str], Symbol]) -> Symbol:
    """What `make` gives, which has the channels in place 1, with its channels last; `make` as for activated."""
    return reordered(node, (0, *range(2, rank), 1), make)


def weight(node: Node, axes: tuple[int, ...]) -> Symbol:
    """Input 1 with its axes in another order, at once where it is known; GraphError where it has not so many."""
    if len(node.shape(1)) != len(axes):
        raise GraphError(f"{node.label}: the weight has shape {node.shape(1)}; rank {len(axes)} is needed")
    if not node.is_known(1):
        return transposed(node, node.symbol(1), axes, "weight")
    kind = "".join(map(str, axes))
    return node.parameter_of(1, "weight", f"axes{kind}", lambda array: np.transpose(array, axes))
