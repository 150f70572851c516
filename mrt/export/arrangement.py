"""Exporters of operators that move elements, in any format that reshapes, transposes and slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mrt.export.lowering import Value, from_depth, to_depth
from mrt.export.node import ArrangingNode
from mrt.symbol import Operator
from mrt.symbol.operators.arrangement import DepthToSpace, SliceLike, SpaceToDepth, SwapAxis
from mrt.symbol.operators.normalization import Dropout, Identity
from mrt.symbol.operators.state import Assign
from mrt.symbol.operators.transform import ExpandDims, Flatten, Reshape, Slice, SliceAxis, Squeeze, Transpose


def _same(op: Operator, node: ArrangingNode[Value]) -> Value:
    return node.input(0)


def _reshaped(op: Operator, node: ArrangingNode[Value]) -> Value:
    return node.reshaped(node.input(0), node.shape)


def _transposed(op: Transpose, node: ArrangingNode[Value]) -> Value:
    return node.transposed(node.input(0), op.order(len(node.shape)))


def _swapped(op: SwapAxis, node: ArrangingNode[Value]) -> Value:
    order = list(range(len(node.shape)))
    first, second = op.axes(len(order))
    order[first], order[second] = second, first
    return node.transposed(node.input(0), order)


def _sliced(op: Slice | SliceAxis, node: ArrangingNode[Value]) -> Value:
    return node.sliced(node.input(0), op.slices(len(node.shape)), node.input_shape(0))


def _sliced_like(op: SliceLike, node: ArrangingNode[Value]) -> Value:
    """The second tensor's shape decided the symbol's; its values are not read."""
    return node.sliced(node.input(0), [slice(n) for n in node.shape], node.input_shape(0))


def _from_depth(op: DepthToSpace, node: ArrangingNode[Value]) -> Value:
    """By reshapes, since few formats and runtimes have it for every dtype."""
    return from_depth(node, node.input(0), node.input_shape(0), op.block_size)


def _to_depth(op: SpaceToDepth, node: ArrangingNode[Value]) -> Value:
    """By reshapes, as `_from_depth`."""
    return to_depth(node, node.input(0), node.input_shape(0), op.block_size)


ARRANGING: Mapping[tuple[type[Operator], ...], Callable[..., Any]] = {
    (Identity, Dropout, Assign): _same,
    (Flatten, Reshape, ExpandDims, Squeeze): _reshaped,
    (Transpose,): _transposed,
    (SwapAxis,): _swapped,
    (Slice, SliceAxis): _sliced,
    (SliceLike,): _sliced_like,
    (DepthToSpace,): _from_depth,
    (SpaceToDepth,): _to_depth,
}
"""The exporters by the records that they serve, for a format to register."""
