"""The blocked accumulation behind products of two tensors that are both computed: columns of the result in lanes.

The second is laid out [block, reduction..., lane] with 8 or 16 columns to a block, so that one vector of it meets one
broadcast element of the first, which is read in the graph's own layout; the accumulators
[..., block, ..., position, lane] are put into the output's layout, and through whatever is fused, by a second stage.
Integers are exact: products are formed in the accumulator's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from mrt.backend.expressions import Expression, Tensor, constant
from mrt.backend.stages import stage

MAX_LANES = 16
"""float32 or int32 elements of the widest vectors; narrower machines take two or four vectors."""
MAX_TILE = 14
"""Positions that a register tile may span."""


def lanes_for(channels: int) -> int:
    """How many output channels go to a block."""
    return MAX_LANES if channels > MAX_LANES // 2 else MAX_LANES // 2


def blocks_for(channels: int) -> int:
    return -(-channels // lanes_for(channels))


def padded_positions(count: int) -> int:
    """`count`, or a little more where only that splits into register tiles of a useful width."""
    if count <= MAX_TILE:
        return count
    widths = range(MAX_TILE, MAX_TILE // 2 - 1, -1)
    best = min(widths, key=lambda width: (-count % width, -width))
    return count + -count % best


def block_rows(
    channels: int,
    reduction: Sequence[int],
    element: Callable[..., Expression],
    dtype: str,
    leading: Sequence[int] = (),
) -> Tensor:
    """A weight as [leading..., block, reduction..., lane], made while running; what fills the last block is 0.

    element(*leading index, channel, *reduction index) is one element of it.
    """
    lanes, blocks = lanes_for(channels), blocks_for(channels)
    rank = len(leading)

    def body(*at: Expression) -> Expression:
        before, block, places, lane = at[:rank], at[rank], at[rank + 1 : -1], at[-1]
        channel = block * lanes + lane
        value = element(*before, channel, *places)
        whole = channels == blocks * lanes
        return value if whole else tirx.if_then_else(channel < channels, value, constant(0, dtype))

    return stage((*leading, blocks, *reduction, lanes), body, "blocked")


def accumulate(
    shape: tuple[int, ...],
    block_axis: int,
    channels: int,
    reduction: Sequence[int],
    product: Callable[..., Expression],
    channel_axis: int,
) -> Tensor:
    """Sums `product(index, reduction index)` into accumulators of `shape` [..., block, ..., position, lane].

    channels: output channels that read the same input (of one group). channel_axis: see `Hint`.
    """
    axes = [te.reduce_axis((0, n), f"r{i}") for i, n in enumerate(reduction)]
    return stage(
        shape,
        lambda *at: te.sum(product(at, axes), axis=axes),
        "accumulate",
        block_axis=block_axis,
        group_blocks=blocks_for(channels),
        channel_axis=channel_axis,
        whole_blocks=channels % lanes_for(channels) == 0,
    )
