"""Sliding windows over the spatial axes: how they lie, the border of `same` padding, and pooling over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.pooling import dilated_windows, pooled
from mrt.frontend.shared.shaping import bordered, unless_default
from mrt.symbol import Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Slice


@dataclass(frozen=True)
class Windows:
    """How windows lie over the spatial axes; every field has one entry per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def is_symmetric(self) -> bool:
        return self.begins == self.ends

    @property
    def spans(self) -> tuple[int, ...]:
        """How many elements a window reaches over, dilation included."""
        return spans(self.kernel, self.dilation)


def spans(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """How many elements a kernel reaches over along each axis."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))


def same_pads(
    spatial: Sequence[int], stride: Sequence[int], reached: Sequence[int], upper: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each axis with which there are ceil(size / stride) windows of `reached` elements.

    upper: of an odd number the larger half comes after the data, else before it.
    """
    totals = [
        max((-(-size // step) - 1) * step + span - size, 0)
        for size, step, span in zip(spatial, stride, reached, strict=True)
    ]
    halves, rests = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (halves, rests) if upper else (rests, halves)


def convolved(node: ModelNode, inputs: Sequence[Symbol], windows: Windows, groups: int, suffix: str = "") -> Symbol:
    """A Convolution of data, weight (O, C / groups, *kernel) and perhaps a bias.

    Padding that is equal on both sides stays with the convolution, any other becomes a Pad before it.
    """
    data, weight = inputs[:2]
    if not windows.is_symmetric:
        data = bordered(node, data, windows.begins, windows.ends, f"{suffix}_pad" if suffix else "pad")
    operator = Convolution(
        kernel=windows.kernel,
        num_filter=weight.shape[0],
        stride=unless_default(windows.stride, 1),
        dilate=unless_default(windows.dilation, 1),
        pad=unless_default(windows.begins, 0) if windows.is_symmetric else (),
        num_group=groups,
        no_bias=len(inputs) == 2,
    )
    return node.apply(operator, [data, *inputs[1:]], suffix)


def pooled_over(
    node: ModelNode, data: Symbol, windows: Windows, kind: str, rounds_up: bool, counts_padding: bool, suffix: str = ""
) -> Symbol:
    """The "max", "avg" or "sum" of each window.

    rounds_up: a last window that reaches past the end counts, unless it would start in the end padding.
    counts_padding: an average divides by the places of a window, not by its elements.
    """
    if max(windows.dilation) > 1:
        return _dilated(node, data, windows, kind, rounds_up, counts_padding, suffix)
    convention = "valid"
    if rounds_up:
        data, windows, convention = _rounded_up(node, data, windows)
    operator = Pooling(
        kernel=windows.kernel,
        pool_type=kind,
        stride=unless_default(windows.stride, 1),
        pad=unless_default(windows.begins, 0) if windows.is_symmetric else windows.begins + windows.ends,
        pooling_convention=convention,
        count_include_pad=counts_padding,
    )
    return node.apply(operator, [data], suffix)


def _dilated(
    node: ModelNode, data: Symbol, windows: Windows, kind: str, rounds_up: bool, counts_padding: bool, suffix: str
) -> Symbol:
    """Windows with gaps, of which one that would start in the end padding is dropped."""
    along = {}
    for axis, (size, kernel, stride, dilation, begin, end, span) in enumerate(
        zip(
            data.shape[2:],
            windows.kernel,
            windows.stride,
            windows.dilation,
            windows.begins,
            windows.ends,
            windows.spans,
            strict=True,
        ),
        start=2,
    ):
        free = size + begin + end - span
        node.made((kernel, max(free // stride + 2, 1)))
        count = (-(-free // stride) if rounds_up else free // stride) + 1
        if rounds_up and (count - 1) * stride >= size + begin:
            count -= 1
        along[axis] = dilated_windows(size, kernel, stride, dilation, begin, end, count)
    return pooled(node, data, along, kind, counts_padding, suffix)


def _rounded_up(node: ModelNode, data: Symbol, windows: Windows) -> tuple[Symbol, Windows, str]:
    """Data, windows and convention whose last window never starts in the end padding.

    A window that is longer than the padded data is cut to that where rounding up counts it, as the only one.
    The convention "full" rounds the number of windows up, too, but keeps such a window. On an axis whose last window is
    dropped the elements that only that window reaches are taken away, first from the end padding, then from the data
    (no other window reads those): nothing is left to round.
    """
    sizes = data.shape[2:]
    padded = [n + b + e for n, b, e in zip(sizes, windows.begins, windows.ends, strict=True)]
    cut = (n if n < k < n + s else k for n, k, s in zip(padded, windows.kernel, windows.stride, strict=True))
    windows = replace(windows, kernel=tuple(cut))
    rest = [(n - k) % s for n, k, s in zip(padded, windows.kernel, windows.stride, strict=True)]
    dropped = [
        r > 0 and n - k - r + s >= size + b
        for r, n, k, s, size, b in zip(rest, padded, windows.kernel, windows.stride, sizes, windows.begins, strict=True)
    ]
    if all(gone or not r for gone, r in zip(dropped, rest, strict=True)):
        return data, windows, "valid"
    excess = [r if gone else 0 for gone, r in zip(dropped, rest, strict=True)]
    ends = tuple(max(e - x, 0) for e, x in zip(windows.ends, excess, strict=True))
    unread = [max(x - e, 0) for e, x in zip(windows.ends, excess, strict=True)]
    if any(unread):
        stops = tuple(size - n if n else None for size, n in zip(sizes, unread, strict=True))
        data = node.apply(Slice(begin=(None,) * data.type.rank, end=(None, None, *stops)), [data], "read")
    return data, replace(windows, ends=ends), "full"
