"""Few output channels fill no vector: positions that are neighbours become channels, too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from mrt.backend.kernels.generic.winograd_choice import winograd_of
from mrt.backend.memory.storage import VECTOR
from mrt.backend.operators.join_phases import JoinPhases
from mrt.backend.operators.sliced_convolution import SlicedConvolution
from mrt.backend.rewrites.rewrite import Rewrite, constant_operands
from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.operators.convolution import Convolution

WORTH = 0.7
"""Of the products that a vector forms for each position: how many may be left, since a join copies what is made."""


@dataclass(frozen=True)
class PositionsAsChannels(Rewrite[Convolution]):
    """A Convolution by a constant weight whose output channels leave lanes empty becomes one of more channels, and a
    JoinPhases of what that gives.

    Along one axis, j counts `count` neighbouring positions p = q count + j, and

    Y[n, o, p] = sum over i, k of X[n, i, q count stride + k - pad] V[(j, o), i, k],
    V[(j, o), i, j stride + k dilate] = W[o, i, k], 0 elsewhere.

    A vector forms products of all j at once; the window is longer by (count - 1) stride. The sums are of the same
    products, and of zeros.
    """

    about = (Convolution,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Convolution], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        if isinstance(operator, SlicedConvolution):
            return None
        if self.facts.machine is None:
            return None
        values = constant_operands(graph, symbol)
        if operator.num_group > 1 or values is None:
            return None
        found = _cheapest(operator, symbol.shape[2:])
        if found is None:
            return None
        data = symbol.inputs[0]
        known = self.facts.bounds(graph)[data.name]
        if winograd_of(operator, data.type, values[0], symbol.type, self.facts.machine, known) is not None:
            return "Winograd's algorithm forms fewer products"
        axis, count = found
        weight = _repeated(operator, values[0], axis, count)
        pad, begin = _border(operator, symbol.inputs[0].shape[2 + axis], symbol.shape[2 + axis], axis, count)
        layer = _of_more_channels(operator, weight, axis, count, pad)
        given = [builder.parameter(f"{symbol.name}_weight", weight, symbol.origin)]
        if len(values) == 2:
            given.append(builder.parameter(f"{symbol.name}_bias", np.tile(values[1], count), symbol.origin))
        made = builder.apply(layer, [inputs[0], *given], f"{symbol.name}_phases", symbol.origin)
        phases, begins = [1] * len(operator.kernel), [0] * len(operator.kernel)
        phases[axis], begins[axis] = count, begin
        joined = JoinPhases(tuple(phases), tuple(begins), symbol.shape[2:])
        return builder.apply(joined, [made], symbol.name, symbol.origin)


def _cheapest(operator: Convolution, lengths: tuple[int, ...]) -> tuple[int, int] | None:
    """The axis and the number of positions that are worth most as channels; None where none are worth it.

    Memory holds a VECTOR of so few channels: shorter vectors fill it in several steps, whatever is in it.
    """
    shares = {
        (axis, count): _reach(operator, axis, count) / operator.kernel[axis] * ceil(length / count) / length
        for axis, length in reversed([*enumerate(lengths)])  # of equals the last axis, whose join moves least
        for count in range(2, min(VECTOR // operator.num_filter, length) + 1)
    }
    best = min(shares, key=lambda place: shares[place], default=None)
    return best if best is not None and shares[best] <= WORTH else None


def _reach(operator: Convolution, axis: int, count: int) -> int:
    """How far the windows of `count` neighbouring positions reach along an axis."""
    stride, dilate, _ = operator.window(len(operator.kernel))
    return dilate[axis] * (operator.kernel[axis] - 1) + 1 + (count - 1) * stride[axis]


def _repeated(operator: Convolution, weight: Array, axis: int, count: int) -> Array:
    """The weight (count * O, C, *kernel) of as many positions, each by its stride further along an axis."""
    stride, dilate, _ = operator.window(len(operator.kernel))
    outputs, inputs, *kernel = weight.shape
    shape = [count, outputs, inputs, *kernel]
    shape[3 + axis] = _reach(operator, axis, count)
    made = np.zeros(shape, weight.dtype)
    along = np.moveaxis(made, 3 + axis, -1)
    for position in range(count):
        first = position * stride[axis]
        taps = slice(first, first + dilate[axis] * (kernel[axis] - 1) + 1, dilate[axis])
        along[position, ..., taps] = np.moveaxis(weight, 2 + axis, -1)
    return made.reshape(count * outputs, *shape[2:])


def _border(operator: Convolution, data: int, result: int, axis: int, count: int) -> tuple[int, int]:
    """The pad along an axis, as long on both sides, and where the output begins in the phases of what that gives."""
    stride, _, pad = operator.window(len(operator.kernel))

    def reaches(begin: int) -> bool:
        places = ceil((begin + result) / count)
        needed = (places - 1) * count * stride[axis] + _reach(operator, axis, count)
        return data + 2 * (pad[axis] + begin * stride[axis]) >= needed

    begin = next(begin for begin in range(count) if reaches(begin))
    return pad[axis] + begin * stride[axis], begin


def _of_more_channels(operator: Convolution, weight: Array, axis: int, count: int, pad: int) -> Convolution:
    def changed(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:axis], value, *values[axis + 1 :])

    stride, dilate, pads = operator.window(len(operator.kernel))
    return replace(
        operator,
        kernel=weight.shape[2:],
        num_filter=len(weight),
        stride=changed(stride, count * stride[axis]),
        dilate=changed(dilate, 1),
        pad=changed(pads, pad),
    )
