"""Dealing elements out to samples and back: SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND."""

from __future__ import annotations

import math

from mrt.errors import GraphError
from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.shared.slicing import sliced
from mrt.frontend.tflite.dilation import spread_orders, undilated
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.pad import Pad


@converter("SPACE_TO_BATCH_ND")
def space_to_batch(node: Node) -> Symbol:
    """The axes behind the first get zeros before and after them, then each element of a block goes to a sample of its
    own, the place in the block being the outer part of the sample's number.
    """
    data = node.symbol(0)
    sizes, widths = _attributes(node, "paddings")
    rank, count = data.type.rank, len(sizes)
    if any(widths):
        border = (0, 0, *widths, *(0, 0) * (rank - 1 - count))
        data = node.apply(Pad(pad_width=border), [data], "padded")
    if any(length % size for length, size in zip(data.shape[1:], sizes, strict=False)):
        raise GraphError(f"{node.label}: blocks of {sizes} do not divide {data.type}")
    blocks = [length // size for length, size in zip(data.shape[1:], sizes, strict=False)]
    rest = data.shape[1 + count :]
    split = [length for pair in zip(blocks, sizes, strict=True) for length in pair]
    apart = reshaped(node, data, (data.shape[0], *split, *rest), "apart")
    there, _ = spread_orders(count, rank)
    dealt = transposed(node, apart, there, "dealt")
    return reshaped(node, dealt, (data.shape[0] * math.prod(sizes), *blocks, *rest))


@converter("BATCH_TO_SPACE_ND")
def batch_to_space(node: Node) -> Symbol:
    """What SPACE_TO_BATCH_ND did, undone, and what the crops name cut off.

    Case 1: convolutions and functions since then become dilated convolutions of the data. Case 2: else a transpose.
    """
    data = node.symbol(0)
    sizes, crops = _attributes(node, "crops")
    whole = undilated(node, data, sizes)
    if whole is None:
        whole = _collected(node, data, sizes)
    ends = [length - after for length, after in zip(whole.shape[1:], crops[1::2], strict=False)]
    if any(end <= begin for begin, end in zip(crops[::2], ends, strict=True)):
        raise GraphError(f"{node.label}: crops {crops} leave nothing of {whole.type}")
    parts = {axis: slice(begin, end) for axis, (begin, end) in enumerate(zip(crops[::2], ends, strict=True), start=1)}
    return sliced(node, whole, parts)


def _collected(node: Node, data: Symbol, sizes: tuple[int, ...]) -> Symbol:
    batch, count = data.shape[0] // math.prod(sizes), len(sizes)
    blocks, rest = data.shape[1 : 1 + count], data.shape[1 + count :]
    if batch * math.prod(sizes) != data.shape[0]:
        raise GraphError(f"{node.label}: {data.shape[0]} samples are no whole blocks of {sizes}")
    _, back = spread_orders(count, data.type.rank)
    apart = reshaped(node, data, (*sizes, batch, *blocks, *rest), "apart")
    collected = transposed(node, apart, back, "collected")
    lengths = [block * size for block, size in zip(blocks, sizes, strict=True)]
    return reshaped(node, collected, (batch, *lengths, *rest), "whole")


def _attributes(node: Node, role: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of blocks, and for each of their axes two widths; GraphError where they do not fit."""
    sizes, widths = node.known_integers(1, "block_shape"), node.known_integers(2, role)
    rank = len(node.shape(0))
    if not 1 <= len(sizes) < rank or len(widths) != 2 * len(sizes) or min(sizes) < 1 or min(widths) < 0:
        raise GraphError(f"{node.label}: blocks {sizes} and {role} {widths} do not fit data of rank {rank}")
    return sizes, widths
