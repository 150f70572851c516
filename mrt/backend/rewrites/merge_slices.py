"""Sums over slices of channels, as channel granularity makes them, compiled as the one reduction that they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mrt.backend.kernels.dot_instructions import choose_dot
from mrt.backend.kernels.generic.sliced_dot import prefers_slices
from mrt.backend.memory.storage import padded_length
from mrt.backend.operators.sliced_convolution import SlicedConvolution
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import SliceAxis
from mrt.symbol.types import narrowest_dtype

Reduction = Convolution | Deconvolution | FullyConnected
DEEPEST = 4
"""Operators from a term to its reduction: f_g * (Y(X_g, W_g) + c * Y(X_g, 1)) has so many."""


@dataclass(frozen=True)
class MergeSlices(Rewrite[AddN]):
    """AddN of f_g * Y(X_g, W_g), the X_g being all slices of one X in order, becomes one operator on X.

    Y is Convolution, Deconvolution or FullyConnected.

    1. A convolution that the machine computes faster so becomes a SlicedConvolution, with the factors as a parameter.
    2. All else becomes Y(X, [f_1 W_1, f_2 W_2, ...]), the factors in the weight.

    Y is linear, so that all are the same integers. A factor is one for every output channel or one for all. Terms for
    zero points, f_g * (Y(X_g, W_g) + c * Y(X_g, 1)), are part of the weight, which is W_g + c then. It is done where
    the one sum stays within 32 bits in any order of its terms, by what is known of X; never in floating point, where
    sums depend on that order. Without a machine case 1 is left out.
    """

    about = (AddN,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[AddN], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not symbol.type.is_integer:
            return None
        terms = {source: _term_of(source, graph) for source in inputs}
        found = [term for source in inputs if (term := terms[source]) is not None]
        if not found:
            return None
        if len(found) < len(inputs):
            other = next(source for source in inputs if terms[source] is None)
            return f"{other.name} ({other.op}), which it adds, is no product of a slice of channels and a constant"
        if len(found) < 2 or not _covers(found):
            return "what it adds is not made of all slices of one tensor, in order and by one operator"
        return self._merged(graph, symbol, found, builder)

    def _merged(self, graph: Graph, symbol: Symbol, terms: Sequence[_Term], builder: GraphBuilder) -> Symbol | str:
        """The sum of all terms as one operator, or why it cannot be."""
        operator, data = terms[0].operator, terms[0].slice.inputs[0]
        weight = np.concatenate([term.folded for term in terms], axis=terms[0].input_axis)
        known = self.facts.bounds(graph)[data.name]
        if not all(i.fits_int32 for i in operator.intermediates(known, Interval.constant(weight))):
            return "the sum over all slices at once might exceed 32 bits"
        values, width = [weight], self._width(terms, weight)
        if width:
            operator = SlicedConvolution(**{**operator.attributes(), "width": width})
            counts = [-(-term.length // width) for term in terms]
            factors = np.repeat(np.stack([term.factors for term in terms]), counts, axis=0)
            values = [np.concatenate([term.weight for term in terms], axis=1), factors]
        names = [f"{symbol.name}_weight", f"{symbol.name}_factors"]
        parameters = [
            builder.parameter(name, value.astype(_narrowest(value)), symbol.origin)
            for name, value in zip(names, values, strict=False)
        ]
        return builder.apply(operator, [data, *parameters], symbol.name, symbol.origin)

    def _width(self, terms: Sequence[_Term], folded: Array) -> int:
        """The width of slices in which a convolution is faster; 0 where it is not, or where they do not fit dots.

        Slices of several lengths, as neighbours with the same factor are one, are cut to a length that divides them.
        """
        operator, data, machine = terms[0].operator, terms[0].slice.inputs[0], self.facts.machine
        if machine is None or not isinstance(operator, Convolution):
            return 0
        if any(term.factors.min() < 1 for term in terms):
            return 0
        if any(_narrowest(term.weight) != "int8" for term in terms):
            return 0
        apart = np.concatenate([term.weight for term in terms], axis=1).astype("int8")
        own, dot = (
            choose_dot(data.dtype, each, "int32", machine) for each in (apart, folded.astype(_narrowest(folded)))
        )
        lengths, channels = [term.length for term in terms], folded.shape[1]
        for width in (math.gcd(*lengths[:-1]), math.gcd(*lengths)):
            if width % own.depth == 0 and -(-channels // width) * width <= padded_length(channels):
                return width if prefers_slices(width * math.prod(folded.shape[2:]), own, dot, machine) else 0
        return 0


@dataclass(frozen=True, eq=False)
class _Term:
    """One operand: factors * operator(slice, weight), with factors (O,) and the weight in int64."""

    operator: Reduction
    slice: Symbol
    weight: Array
    factors: Array

    @property
    def input_axis(self) -> int:
        """The axis of the weight that counts input channels: of the first two the one that does not count outputs."""
        return 0 if self.operator.weight_channel_axis else 1

    @property
    def length(self) -> int:
        """Its input channels."""
        return int(self.weight.shape[self.input_axis])

    @property
    def folded(self) -> Array:
        """The weight with the factors in it."""
        axis = self.operator.weight_channel_axis
        return self.weight * self.factors.reshape(tuple(-1 if i == axis else 1 for i in range(self.weight.ndim)))

    def scaled(self, value: Array, rank: int) -> _Term | None:
        """The term, of rank `rank`, times a constant: one for each channel or for all; one channel may become many.

        None where the constant varies along another axis.
        """
        axis = self.operator.channel_axis() % rank
        aligned = value.reshape((1,) * (rank - value.ndim) + value.shape)
        if any(length > 1 for i, length in enumerate(aligned.shape) if i != axis):
            return None
        factors = self.factors * aligned.reshape(-1).astype(np.int64)
        if len(factors) == len(self.factors):
            return replace(self, factors=factors)
        weight = np.repeat(self.weight, len(factors), self.operator.weight_channel_axis)
        return replace(self, operator=_of_outputs(self.operator, len(factors)), weight=weight, factors=factors)

    def plus(self, other: _Term) -> _Term | None:
        """The sum with another term of the same operator on the same slice; None where it is none."""
        if (self.operator, self.slice) != (other.operator, other.slice):
            return None
        return replace(self, weight=self.folded + other.folded, factors=np.ones_like(self.factors))


def _of_outputs(operator: Reduction, count: int) -> Reduction:
    if isinstance(operator, FullyConnected):
        return replace(operator, num_hidden=count)
    return replace(operator, num_filter=count)


def _narrowest(value: Array) -> str:
    return narrowest_dtype(int(value.min()), int(value.max()))


def _term_of(symbol: Symbol, graph: Graph, deepest: int = DEEPEST) -> _Term | None:
    """What an operand is, through factors and terms for zero points; None where it is no reduction of a slice."""
    if not deepest:
        return None
    if isinstance(symbol.operator, BroadcastMul):
        term, value = _term_of(symbol.inputs[0], graph, deepest - 1), graph.value(symbol.inputs[1])
        if term is None or value is None or value.ndim > symbol.type.rank:
            return None
        return term.scaled(value, symbol.type.rank)
    if isinstance(symbol.operator, BroadcastAdd):
        terms = [_term_of(source, graph, deepest - 1) for source in symbol.inputs]
        return None if terms[0] is None or terms[1] is None else terms[0].plus(terms[1])
    return _reduction_of(symbol, graph)


def _reduction_of(symbol: Symbol, graph: Graph) -> _Term | None:
    operator = symbol.operator
    if not isinstance(operator, Convolution | Deconvolution | FullyConnected) or len(symbol.inputs) != 2:
        return None
    part, parameter = symbol.inputs
    weight = graph.value(parameter)
    if weight is None or not isinstance(part.operator, SliceAxis):
        return None
    if part.operator.axis != operator.data_channel_axis(part.type.rank) or getattr(operator, "num_group", 1) != 1:
        return None
    ones = np.ones(weight.shape[operator.weight_channel_axis], np.int64)
    return _Term(operator, part, weight.astype(np.int64), ones)


def _covers(terms: Sequence[_Term]) -> bool:
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
