"""Deconvolution with the padding of ONNX and Relax, which cut each end of an axis by a number of its own."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.shaping import unless_default
from mrt.frontend.shared.slicing import sliced
from mrt.symbol import Symbol
from mrt.symbol.operators.deconvolution import Deconvolution


def reach(
    spatial: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """How far the taps reach along each axis, before padding cuts it."""
    return tuple((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(spatial, kernel, stride, dilation, strict=True))


def deconvolved(
    node: ModelNode,
    inputs: Sequence[Symbol],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    begins: tuple[int, ...],
    shape: Sequence[int],
    suffix: str = "",
) -> Symbol:
    """A Deconvolution of data, weight (C, O / groups, *kernel) and perhaps a bias, `shape` its positions.

    begins: how many positions are cut off at the beginning of each axis. The operator cuts as much off the end; where
    less shall be cut there, adj adds it again, and where more the rest is a slice.
    """
    data, weight = inputs[:2]
    kernel = weight.shape[2:]
    whole = reach(data.shape[2:], kernel, stride, dilation)
    ends = [total - 2 * begin for total, begin in zip(whole, begins, strict=True)]
    adj = tuple(max(n - end, 0) for n, end in zip(shape, ends, strict=True))
    parts = {2 + i: slice(0, n) for i, (n, end) in enumerate(zip(shape, ends, strict=True)) if n < end}
    operator = Deconvolution(
        kernel=kernel,
        num_filter=weight.shape[1] * groups,
        stride=unless_default(stride, 1),
        dilate=unless_default(dilation, 1),
        pad=unless_default(begins, 0),
        adj=unless_default(adj, 0),
        num_group=groups,
        no_bias=len(inputs) == 2,
    )
    whole_suffix = f"{suffix}_whole" if suffix else "whole"
    return sliced(node, node.apply(operator, inputs, whole_suffix if parts else suffix), parts, suffix)
