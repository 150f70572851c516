"""Few input channels fill no dot: taps that are neighbours become channels, too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from mrt.backend.kernels.dot_instructions import choose_dot
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.operators.neighbours import Neighbours
from mrt.backend.operators.sliced_convolution import SlicedConvolution
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pad import Pad


@dataclass(frozen=True)
class TapsAsChannels(Rewrite[Convolution]):
    """A Convolution by a constant weight, of data that have fewer channels than a dot takes, becomes one of
    Neighbours: as many taps of an axis as fill a dot are channels.

    Y[n, o, p] = sum over i, k of X[n, i, p stride + k dilate - pad] W[o, i, k] with k = t count + f

    is that of X'[n, (i, f), q] = X[n, i, q + f dilate - pad] and W'[o, (i, f), t], whose windows have one tap of each
    `count`. In memory both X and X' fill up the same dots.
    """

    about = (Convolution,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Convolution], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator, machine = symbol.operator, self.facts.machine
        if isinstance(operator, SlicedConvolution) or machine is None:
            return None
        data, weight = symbol.inputs[0], graph.value(symbol.inputs[1])
        if weight is None or operator.num_group > 1 or weight.shape[:2] == (1, 1):  # else lanes are not channels
            return None
        known = self.facts.bounds(graph)[data.name]
        count = choose_dot(data.dtype, weight, symbol.dtype, machine, Pairs(known)).depth // data.shape[1]
        if count < 2:
            return None
        axis = min(range(len(operator.kernel)), key=lambda place: (_taps(operator, place, count), -place))
        saved = prod(operator.kernel) - _taps(operator, axis, count)
        blocks = ceil(operator.num_filter / machine.lanes)
        if saved * blocks * prod(symbol.shape[2:]) <= prod(data.shape[2:]):
            return None
        moved = _neighbours(operator, inputs[0], symbol, axis, count, builder)
        taken = _gathered(weight, axis, count)
        given = builder.parameter(f"{symbol.name}_weight", taken, symbol.origin)
        layer = _of_neighbours(operator, taken, axis, count)
        return builder.apply(layer, [moved, given, *inputs[2:]], symbol.name, symbol.origin)


def _taps(operator: Convolution, axis: int, count: int) -> int:
    """Of a window, with so many taps along an axis as one."""
    length = operator.kernel[axis]
    return prod(operator.kernel) // length * ceil(length / count)


def _neighbours(
    operator: Convolution, data: Symbol, symbol: Symbol, axis: int, count: int, builder: GraphBuilder
) -> Symbol:
    """The data with what all windows read beside it along an axis, as neighbours."""
    stride, dilate, pad = (values[axis] for values in operator.window(len(operator.kernel)))
    reach = (ceil(operator.kernel[axis] / count) * count - 1) * dilate + 1
    length, needed = data.shape[2 + axis], (symbol.shape[2 + axis] - 1) * stride + reach
    widths = [0] * (2 * data.type.rank)
    widths[2 * (2 + axis)], widths[2 * (2 + axis) + 1] = pad, max(needed - pad - length, 0)
    if any(widths):
        data = builder.apply(Pad(pad_width=tuple(widths)), [data], f"{symbol.name}_padded", symbol.origin)
    return builder.apply(Neighbours(2 + axis, count, dilate), [data], f"{symbol.name}_neighbours", symbol.origin)


def _gathered(weight: Array, axis: int, count: int) -> Array:
    """The weight (O, C, *kernel) as (O, C * count, *kernel), with zeros behind the last tap."""
    outputs, inputs, *kernel = weight.shape
    taps = ceil(kernel[axis] / count)
    around = [(0, 0)] * weight.ndim
    around[2 + axis] = (0, taps * count - kernel[axis])
    apart = np.pad(weight, around).reshape(outputs, inputs, *kernel[:axis], taps, count, *kernel[axis + 1 :])
    moved = np.moveaxis(apart, 3 + axis, 2)
    return np.ascontiguousarray(moved).reshape(outputs, inputs * count, *kernel[:axis], taps, *kernel[axis + 1 :])


def _of_neighbours(operator: Convolution, weight: Array, axis: int, count: int) -> Convolution:
    _, dilate, pad = (list(values) for values in operator.window(len(operator.kernel)))
    dilate[axis] *= count
    pad[axis] = 0
    return replace(operator, kernel=weight.shape[2:], dilate=tuple(dilate), pad=tuple(pad))
