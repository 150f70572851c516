"""Drops the taps of convolutions that read nothing but the border."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mrt.symbol import Graph, GraphBuilder, RewritePass, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pad import Pad


@dataclass(frozen=True)
class DropBorderTaps(RewritePass):
    """A convolution of a Pad with zeros forms no products that are 0 at all its positions.

    Such are taps of a wide dilation beside a small image, as rates of 24 and 36 have in DeepLab, and all but the middle
    one of 3 x 3 on an image of one element, as in the last heads of a detector. The first and the last taps along each
    axis are dropped of which no position reads the data, with as much of the Pad as only they read. The weights must be
    constants. The result is the same.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator, pad = symbol.operator, inputs[0].operator
        if not isinstance(operator, Convolution) or any(operator.pad) or not isinstance(pad, Pad):
            return None
        weight = graph.value(symbol.inputs[1])
        if not pad.is_of_zeros or weight is None:
            return None
        stride, dilate, _ = operator.window(len(operator.kernel))
        widths, kept = list(pad.pad_width), []
        for axis, (taps, each, step) in enumerate(zip(operator.kernel, dilate, stride, strict=True), 2):
            before, after = widths[2 * axis : 2 * axis + 2]
            last = (symbol.shape[axis] - 1) * step
            first, end = _live(taps, each, last, before, inputs[0].shape[axis] - after)
            first, end = min(first, before // each), max(end, taps - after // each)
            widths[2 * axis : 2 * axis + 2] = before - first * each, after - (taps - end) * each
            kept.append(slice(first, end))
        if widths == list(pad.pad_width):
            return None
        data = inputs[0].inputs[0]
        if any(widths):
            data = builder.apply(replace(pad, pad_width=tuple(widths)), [data], f"{symbol.name}_border", symbol.origin)
        cut = np.ascontiguousarray(weight[(slice(None), slice(None), *kept)])
        taps_left = builder.parameter(f"{symbol.inputs[1].name}_within", cut, symbol.inputs[1].origin)
        narrow = replace(operator, kernel=cut.shape[2:])
        return builder.apply(narrow, [data, taps_left, *inputs[2:]], symbol.name, symbol.origin)


def _live(taps: int, each: int, last: int, begin: int, end: int) -> tuple[int, int]:
    """The first tap that reads data at some position, and the one behind the last; all of them if none does.

    each: how far a tap is from the one before. last: the last position. begin, end: of the data within the border.
    """
    live = [tap for tap in range(taps) if tap * each < end and tap * each + last >= begin]
    return (live[0], live[-1] + 1) if live else (0, taps)
