"""Sums over slices of channels, as channel granularity makes them, compiled as the one reduction that they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Graph, GraphBuilder, Interval, Operator, RewritePass, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import SliceAxis
from mrt.symbol.types import narrowest_dtype

INPUT_AXIS = {Convolution: 1, Deconvolution: 0, FullyConnected: 1}
"""The axis of the weight that counts input channels."""


@dataclass(frozen=True)
class MergeSlices(RewritePass):
    """add_n of f_g * Y(X_g, W_g), the X_g being all slices of one X in order, becomes Y(X, [f_1 W_1, f_2 W_2, ...]).

    Y is linear, so that both are the same integers; the factors, of which each is one for every output channel or one
    for all, go into the weight. It is done where the one sum stays within 32 bits whatever X's dtype holds, in any
    order of its terms; never in floating point, where sums depend on that order.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not isinstance(symbol.operator, AddN) or not symbol.type.is_integer:
            return None
        terms = [_term_of(source, graph) for source in inputs]
        found = [term for term in terms if term is not None]
        if len(found) < max(len(terms), 2) or not _covers(found):
            return None
        operator, data = found[0].operator, found[0].slice.inputs[0]
        weight = np.concatenate([term.weight for term in found], axis=INPUT_AXIS[type(operator)])
        lo, hi = int(weight.min()), int(weight.max())
        interval = Interval.of(*DTYPE_RANGES[data.dtype], data.shape)
        if not all(i.fits_int32 for i in operator.intermediates(interval, Interval.constant(weight))):
            return "the sum over all slices at once might exceed 32 bits"
        parameter = builder.parameter(f"{symbol.name}_weight", weight.astype(narrowest_dtype(lo, hi)), symbol.origin)
        return builder.apply(operator, [data, parameter], symbol.name, symbol.origin)


@dataclass(frozen=True, eq=False)
class _Term:
    """One operand: operator(slice, weight), the weight times the operand's factor in int64."""

    operator: Operator
    slice: Symbol
    weight: Array


def _term_of(symbol: Symbol, graph: Graph) -> _Term | None:
    reduction, constant = symbol.inputs if isinstance(symbol.operator, BroadcastMul) else (symbol, None)
    if type(reduction.operator) not in INPUT_AXIS or len(reduction.inputs) != 2:
        return None
    factor = np.ones(1, np.int64) if constant is None else _factor_of(reduction, graph.value(constant))
    part, parameter = reduction.inputs
    weight = graph.value(parameter)
    if factor is None or weight is None or not isinstance(part.operator, SliceAxis):
        return None
    axis = reduction.operator.data_channel_axis(part.type.rank)
    if part.operator.axis != axis or getattr(reduction.operator, "num_group", 1) != 1:
        return None
    channels = reduction.operator.weight_channel_axis
    shape = tuple(-1 if i == channels else 1 for i in range(weight.ndim))
    return _Term(reduction.operator, part, weight.astype(np.int64) * factor.reshape(shape))


def _factor_of(reduction: Symbol, value: Array | None) -> Array | None:
    """A constant that is one for each output channel or one for all, as int64 (O,) or (1,); None for any other."""
    if value is None or value.ndim > reduction.type.rank:
        return None
    aligned = value.reshape((1,) * (reduction.type.rank - value.ndim) + value.shape)
    axis = reduction.channel_axis
    if any(length > 1 for i, length in enumerate(aligned.shape) if i != axis):
        return None
    return aligned.reshape(-1).astype(np.int64)


def _covers(terms: list[_Term]) -> bool:
    """Whether the terms are one operator on the slices of one tensor, in order and without a gap."""
    data, end = terms[0].slice.inputs[0], 0
    for term in terms:
        cut = term.slice.operator
        if not isinstance(cut, SliceAxis) or term.operator != terms[0].operator or term.slice.inputs[0] is not data:
            return False
        if cut.begin != end:
            return False
        end += term.slice.shape[cut.axis]
    cut = terms[0].slice.operator
    return isinstance(cut, SliceAxis) and end == data.shape[cut.axis]
