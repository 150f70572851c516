"""A deconvolution as a convolution whose channels are the phases of the output, so that it is made of dots, too."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mrt.backend.operators.join_phases import JoinPhases
from mrt.backend.rewrites.rewrite import Rewrite, constant_operands
from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution


@dataclass(frozen=True)
class DeconvolutionAsConvolution(Rewrite[Deconvolution]):
    """Deconvolution by a constant weight becomes a Convolution, and a JoinPhases of what that gives.

    Position p of the output is phase r = (p + pad) mod stride of place q = (p + pad) div stride, and

    Y[n, o, p] = sum over i, j of X[n, i, q - j] W[i, o, r + j stride],

    in which the weight is 0 between dilated taps and behind the last one. Each r is a convolution of X by a tap of
    each stride; all together have prod(stride) times as many output channels. The sums are of the same products.
    """

    about = (Deconvolution,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Deconvolution], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        values = constant_operands(graph, symbol)
        if values is None:
            return "its weight or bias is computed"
        operator, data = symbol.operator, inputs[0]
        stride, _ = operator.window(len(operator.kernel))
        weight = _by_phases(operator, values[0])
        pads, begins = _borders(operator, data.shape[2:], symbol.shape[2:], weight.shape[2:])
        layer = Convolution(
            kernel=weight.shape[2:],
            num_filter=len(weight),
            pad=pads,
            num_group=operator.num_group,
            no_bias=len(values) == 1,
        )
        given = [builder.parameter(f"{symbol.name}_weight", weight, symbol.origin)]
        if len(values) == 2:
            rows = values[1].reshape(operator.num_group, 1, -1)
            bias = np.broadcast_to(rows, (len(rows), prod(stride), rows.shape[-1])).reshape(-1)
            given.append(builder.parameter(f"{symbol.name}_bias", np.ascontiguousarray(bias), symbol.origin))
        made = builder.apply(layer, [data, *given], f"{symbol.name}_phases", symbol.origin)
        joined = JoinPhases(stride, begins, symbol.shape[2:], operator.num_group)
        return builder.apply(joined, [made], symbol.name, symbol.origin)


def _by_phases(operator: Deconvolution, weight: Array) -> Array:
    """The weight (C, O / groups, *kernel) of all phases, (groups * phases * O / groups, C / groups, *taps), turned."""
    rank, groups = len(operator.kernel), operator.num_group
    stride, dilate = operator.window(rank)
    rows = operator.rows(weight)
    taps = [-(-(d * (k - 1) + 1) // s) for k, d, s in zip(operator.kernel, dilate, stride, strict=True)]
    spaced = np.zeros((*rows.shape[:2], *(n * s for n, s in zip(taps, stride, strict=True))), weight.dtype)
    places = tuple(slice(0, d * (k - 1) + 1, d) for k, d in zip(operator.kernel, dilate, strict=True))
    spaced[(slice(None), slice(None), *places)] = rows
    halves = [length for pair in zip(taps, stride, strict=True) for length in pair]
    apart = spaced.reshape(groups, -1, rows.shape[1], *halves)
    phases, steps = [4 + 2 * axis for axis in range(rank)], [3 + 2 * axis for axis in range(rank)]
    moved = np.flip(apart.transpose(0, *phases, 1, 2, *steps), tuple(range(-rank, 0)))
    return np.ascontiguousarray(moved).reshape(-1, rows.shape[1], *taps)


def _borders(
    operator: Deconvolution, data: tuple[int, ...], result: tuple[int, ...], taps: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Along each axis the pad of the convolution, as long on both sides, and where the output begins in its phases."""
    stride, _ = operator.window(len(taps))
    border, _ = operator.border(data)
    pads, begins = [], []
    for length, count, tap, s, pad in zip(data, result, taps, stride, border, strict=True):
        before = tap - 1 - pad // s
        after = (count - 1 + pad) // s - (length - 1)
        pads.append(max(before, after, 0))
        begins.append(pad - (tap - 1 - pads[-1]) * s)
    return tuple(pads), tuple(begins)
