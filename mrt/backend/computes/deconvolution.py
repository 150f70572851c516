"""Deconvolution: each phase of the output is a convolution of the data with every stride-th tap of the weight.

One by a constant weight has become a convolution already (`DeconvolutionAsConvolution`); here a weight is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from mrt.backend.computes.convolution import reduce_window
from mrt.backend.te.registry import compute
from mrt.backend.te.stages import inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, remainder, whole_part
from mrt.symbol import Symbol
from mrt.symbol.operators.deconvolution import Deconvolution


@compute(Deconvolution)
def deconvolution(symbol: Symbol[Deconvolution], data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Position p is phase r = (p + pad) mod stride of place q = (p + pad) div stride, and

    Y[n, o, p] = sum over i, j of X[n, i, q - j] W[i, o, r + j stride],

    in which the data is 0 outside and so is the weight; between dilated taps it is 0 too.
    """
    operator, source = symbol.operator, symbol.inputs[0].shape
    stride, dilate = operator.window(len(operator.kernel))
    pad, _ = operator.border(source[2:])
    reach = [d * (k - 1) + 1 for k, d in zip(operator.kernel, dilate, strict=True)]
    taps = [-(-n // s) for n, s in zip(reach, stride, strict=True)]
    first = [p // s for p, s in zip(pad, stride, strict=True)]
    places = [(n - 1 + p) // s - begin + 1 for n, p, s, begin in zip(symbol.shape[2:], pad, stride, first, strict=True)]

    bordered = _bordered(data, [begin - n + 1 for begin, n in zip(first, taps, strict=True)], places, taps)
    spaced = _spaced(weight, dilate, [n * s for n, s in zip(taps, stride, strict=True)])
    phases = _phases(symbol, bordered, spaced, stride, taps, places)

    def element(n: Expression, channel: Expression, *position: Expression) -> Expression:
        moved = [p + before for p, before in zip(position, pad, strict=True)]
        phase = [remainder(p, s) for p, s in zip(moved, stride, strict=True)]
        place = [whole_part(p, s) - begin for p, s, begin in zip(moved, stride, first, strict=True)]
        total = phases(n, channel, *phase, *place)
        return total if bias is None else total + bias(channel).astype(symbol.dtype)

    return inlined(symbol.shape, symbol.dtype, element)


def _phases(
    symbol: Symbol[Deconvolution],
    bordered: Tensor,
    spaced: Tensor,
    stride: Sequence[int],
    taps: Sequence[int],
    places: Sequence[int],
) -> Tensor:
    """The convolution of each phase, (batch, channels, phases..., places...).

    taps: of one phase along each axis; places: how many of them there are. bordered, spaced: data and weight, which
    hold 0 where there is none.
    """
    groups, rank, dtype = symbol.operator.num_group, len(taps), symbol.dtype
    group_inputs, per_group = symbol.inputs[0].shape[1] // groups, symbol.shape[1] // groups

    def product(at: Sequence[Expression], reduction: Sequence[Expression]) -> Expression:
        n, channel, *rest = at
        phase, place = rest[:rank], rest[rank:]
        within, *steps = reduction
        inner = channel if groups == 1 else tirx.floormod(channel, per_group)
        outer = within if groups == 1 else tirx.floordiv(channel, per_group) * group_inputs + within
        x = bordered(n, outer, *(q + (count - 1) - j for q, count, j in zip(place, taps, steps, strict=True)))
        w = spaced(outer, inner, *(r + j * s for r, j, s in zip(phase, steps, stride, strict=True)))
        return x.astype(dtype) * w.astype(dtype)

    shape = (*symbol.shape[:2], *stride, *places)
    return reduce_window(shape, (group_inputs, *taps), product, "deconvolution_phases", dtype)


def _bordered(data: Tensor, begins: Sequence[int], places: Sequence[int], taps: Sequence[int]) -> Tensor:
    """The data from `begins` on, as far as `places` windows of `taps` reach; 0 where there is none."""
    batch, channels, *spatial = (int(n) for n in data.shape)
    lengths = [count + n - 1 for count, n in zip(places, taps, strict=True)]

    def element(n: Expression, channel: Expression, *at: Expression) -> Expression:
        moved = [i + begin for i, begin in zip(at, begins, strict=True)]
        inside = [
            test
            for i, begin, length, end in zip(moved, begins, lengths, spatial, strict=True)
            for test, needed in ((i >= 0, begin < 0), (i < end, begin + length > end))
            if needed
        ]
        if not inside:
            return data(n, channel, *moved)
        return tirx.if_then_else(tirx.all(*inside), data(n, channel, *moved), constant(0, data.dtype))

    return stage((batch, channels, *lengths), element, "bordered")


def _spaced(weight: Tensor, dilate: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """The weight with zeros between its taps, and after them up to `lengths`."""
    inputs, outputs, *kernel = (int(n) for n in weight.shape)

    def element(i: Expression, o: Expression, *at: Expression) -> Expression:
        inside = []
        for place, d, k, length in zip(at, dilate, kernel, lengths, strict=True):
            if d > 1:
                inside.append(tirx.floormod(place, d) == 0)
            if length > d * (k - 1) + 1:
                inside.append(place < d * (k - 1) + 1)
        value = weight(i, o, *(whole_part(place, d) if d > 1 else place for place, d in zip(at, dilate, strict=True)))
        return tirx.if_then_else(tirx.all(*inside), value, constant(0, weight.dtype)) if inside else value

    return stage((inputs, outputs, *lengths), element, "spaced")
