"""What computes make: stages, which are stored, and views of elements that are computed where they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from mrt.backend.memory.storage import View
from mrt.backend.tir.expressions import Expression, Tensor, combined, constant
from mrt.symbol import Symbol


class Hint:
    """Attributes of TE stages that the scheduler reads."""

    GROUP_BLOCKS = "mrt.group_blocks"
    """Of an accumulation by dots: how many blocks in a row read the same input."""
    DOT = "mrt.dot"
    """Marks an accumulation by dots, [positions..., block, lane]; its reduction ends with the depth of a dot. The
    value is the name of the tensor intrinsic, or an empty string."""
    CROSSED = "mrt.crossed"
    """Of an accumulation by dots: whether each of its steps crosses two (see `crossed_dot`)."""
    JOINT = "mrt.joint"
    """Of an accumulation by dots of packed weights: whether the intrinsic takes all steps that share bytes."""
    UNPACKED = "mrt.unpacked"
    """Marks what makes weights as dots read them of packed ones, [block, taps..., step, field, lane, depth]."""
    PAIRS = "mrt.pairs"
    """Marks the products of neighbouring steps of the data, added up, [positions..., pair]: the tensor intrinsic."""
    OF_DATA = "mrt.of_data"
    """Marks what takes these off the sums of crossed dots, [positions...]."""
    BYTES = "mrt.bytes"
    """Marks what makes the bytes of int16 that packed weights are multiplied with."""
    MATRIX = "mrt.matrix"
    """Marks what a product of computed matrices makes of its second one before it sums: the name of the tensor
    intrinsic that makes it, or an empty string."""
    SLICES = "mrt.slices"
    """Marks the sum of what an accumulation by dots gives for each slice of channels, times the slice's factor."""
    PARTS = "mrt.parts"
    """Of an accumulation by dots: how many blocks in a row make one of the output, as the bytes of its weights."""
    WHOLE = "mrt.whole"
    """Marks what makes the sums of whole weights of those of their bytes, [positions..., block, lane]."""
    PIECES = "mrt.pieces"
    """Marks what combines the vectors of each piece of a row, [rows..., piece, lane]."""
    ACROSS = "mrt.across"
    """Marks what combines the elements of one vector."""
    HALVES = "mrt.halves"
    """Marks the same, scheduled, where it is to be done by halves of the vector (see `CombineHalves`)."""
    FEWER_ROWS = "mrt.fewer_rows"
    """Marks the loop over tiles of rows of which the last has fewer: the rows of a tile, and in all."""
    COLUMNS = "mrt.columns"
    """Marks sums over the taps of depthwise convolutions, [n, y, x, block, lane, row, column]: the instruction that
    multiplies a column."""
    TAPS = "mrt.taps"
    """Marks sums over the taps of depthwise convolutions of floats, [n, position..., block, lane, tap...]."""
    IN_GROUPS = "mrt.in_groups"
    """Marks those whose weights lie as strips of groups read them."""
    COLUMN_GROUPS = "mrt.column_groups"
    """Marks the loop over strips of such sums that are stored as bytes (see `ColumnGroups`)."""
    ACCUMULATOR_INIT = "mrt.accumulator_init"
    """Marks what adds to sums that which they may begin with (see `AccumulatorInit`)."""
    WINOGRAD = "mrt.winograd"
    """Marks the products of Winograd's algorithm, [n, tile line, tile column, block, point, lane]: the numbers of its
    `WinogradTiling`."""
    WINOGRAD_DATA = "mrt.winograd_data"
    """Marks what makes the transformed data of Winograd's algorithm, [n, tile line, tile column, point, channel]: the
    points along an axis of a tile."""
    WINOGRAD_PRODUCTS = "mrt.winograd_products"
    """Marks what keeps the sums of its products, [n, tile line, tile column, block, point, lane]."""
    WINOGRAD_RESULTS = "mrt.winograd_results"
    """Marks what makes multiples of the results of these, [n, tile line, tile column, line, column, block, lane]: the
    points along an axis of a tile."""
    WINOGRAD_SUMS = "mrt.winograd_sums"
    """Marks what makes sums of these."""
    TILES = "mrt.tiles"
    """Of an accumulation by dots that is scheduled: the numbers of its `Tiling`."""
    PREFETCH = "mrt.prefetch"
    """Marks the loop over the steps of dots that prefetches: the numbers of its `Prefetches`."""
    PREFETCH_STREAM = "mrt.prefetch_stream"
    """Marks the loop over the steps of dots whose weights follow each other in memory: how many bytes later lies what
    it prefetches, and how many of the last axes of the weights are those of a step."""
    PREFETCH_RESULTS = "mrt.prefetch_results"
    """Marks the loop over the taps of dots that prefetches the memory of results: how many taps there are."""
    PREFETCH_WRITTEN = "mrt.prefetch_written"
    """Marks the first loop of a reduction by dots, before which the memory of a tile's results is fetched."""
    PREFETCH_BLOCKS = "mrt.prefetch_blocks"
    """Marks the first loop of a reduction by dots, before which a share of the next blocks' weights is fetched: blocks
    and positions of a tile, and how many tiles are summed for the same blocks."""
    PREFETCH_NEXT = "mrt.prefetch_next"
    """Marks the loop over the steps of dots each of which prefetches what the next kernel reads."""
    TWO_STEPS = "mrt.two_steps"
    """Marks the loop over the steps of dots that makes two of them in each turn."""
    LINE = "mrt.line"
    """Of an accumulation by dots whose positions are one axis, but not in the data's memory: how many are a line."""
    OVERLAPS = "mrt.overlaps"
    """Marks the loop over an odd number of blocks of output channels whose sums are read in pairs."""
    PACKED_STORE = "mrt.packed_store"
    """Marks the loops that store bytes of requantized int16s: how many of those within say which channels."""
    JOINED_LOOK_UPS = "mrt.joined_look_ups"
    """Marks the loops over the vectors of a tile that look up together (see `JoinLookUps`)."""
    UNROLL_AND_JAM = "mrt.unroll_and_jam"
    """Marks the loop over tiles of positions that is unrolled and jammed: how many of them at a time."""
    FUSED = "mrt.fused"
    """Marks a loop that threads may share and that was several: how many turns each of them had."""
    TURNED = "mrt.turned"
    """Marks a block that reads a tensor across the order in which it writes (see `TurnedTiles`)."""
    INNER = "mrt.inner"
    """Of a reduction: the axis along which neighbours lie in memory."""


def stage(shape: tuple[int, ...], body: Callable[..., Expression], name: str, **hints: Any) -> Tensor:
    """A TE stage; hints are given by the names of `Hint`'s members in lower case, None where there is none."""
    given = {getattr(Hint, key.upper()): value for key, value in hints.items() if value is not None}
    return te.compute(shape, body, name=name, attrs=given)


def inlined(
    shape: tuple[int, ...],
    dtype: str,
    body: Callable[..., Expression],
    inner: int | None = None,
    non_negative: bool = False,
) -> View:
    """Elements that are computed where they are read. inner: the axis along which they are best walked."""
    return View(shape, dtype, body, inner, non_negative=non_negative)


def elementwise(symbol: Symbol, *inputs: Tensor, body: Callable[..., Expression], non_negative: bool = False) -> View:
    """An elementwise operator: `body` of the inputs' elements, broadcast to the symbol's shape.

    non_negative: see `View`.
    """

    def element(*at: Expression) -> Expression:
        return combined(body, [broadcast(x, at, symbol.shape) for x in inputs])

    inner = next((x.inner for x in inputs if isinstance(x, View) and x.shape == symbol.shape), None)
    return inlined(symbol.shape, symbol.dtype, element, inner, non_negative)


def broadcast(x: Tensor, at: tuple[Expression, ...], shape: tuple[int, ...]) -> Expression:
    """The element of `x` that NumPy's broadcasting puts at the index `at` of `shape`.

    Along an axis of length 1 in both, the index is kept where `x` may be read beyond its end, since the walk may go
    over padding in memory.
    """
    missing = len(at) - len(x.shape)
    places = list(at[missing:])
    for axis, length in enumerate(x.shape):
        if int(length) == 1 and (shape[missing + axis] != 1 or not _reaches_on(x, axis)):
            places[axis] = constant(0, "int32")
    return x(*places)


def _reaches_on(x: Tensor, axis: int) -> bool:
    """Whether `x` may be read beyond the end of an axis, where padding is."""
    if not isinstance(x, View) or x.flattened is not None:
        return False
    return x.storage is None or (x.inner == axis and x.length > 1)
