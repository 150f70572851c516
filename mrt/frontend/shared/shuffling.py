"""Channels moved into space and back, the channels outermost, which ONNX calls mode CRD and others pixel_shuffle."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol
from mrt.symbol.operators.transform import Reshape, Transpose


def shuffled(node: ModelNode, data: Symbol, size: int) -> Symbol:
    """(N, C B B, H, W) to (N, C, B H, B W), B the block size: a reshape, a transpose and a reshape.

    Y[n, c, B h + i, B w + j] = X[n, (c B + i) B + j, h, w]. GraphError where B B does not divide the channels.
    """
    if size < 1 or data.type.rank != 4 or data.shape[1] % (size * size):
        raise GraphError(f"{node.label}: data is {data.type}, block size {size}; its square must divide the channels")
    _, channels, height, width = data.shape
    count = channels // (size * size)
    apart = node.apply(Reshape(shape=(0, count, size, size, height, width)), [data], "blocks")
    moved = node.apply(Transpose(axes=(0, 1, 4, 2, 5, 3)), [apart], "moved")
    return node.apply(Reshape(shape=(0, count, height * size, width * size)), [moved])


def unshuffled(node: ModelNode, data: Symbol, size: int) -> Symbol:
    """(N, C, B H, B W) to (N, C B B, H, W), B the block size: what `shuffled` takes apart, put together."""
    if size < 1 or data.type.rank != 4 or data.shape[2] % size or data.shape[3] % size:
        raise GraphError(f"{node.label}: data is {data.type}, block size {size}; it must divide height and width")
    _, channels, height, width = data.shape
    blocks = (0, channels, height // size, size, width // size, size)
    apart = node.apply(Reshape(shape=blocks), [data], "blocks")
    moved = node.apply(Transpose(axes=(0, 1, 3, 5, 2, 4)), [apart], "moved")
    return node.apply(Reshape(shape=(0, channels * size * size, height // size, width // size)), [moved])
