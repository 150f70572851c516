"""Fully connected layers in groups of inputs, each with a scale, compiled as one product of a matrix with few rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.backend.kernels.dot_instructions import choose_dot
from mrt.backend.kernels.generic.packed_weights import choose_packing
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.memory.storage import padded_length
from mrt.backend.operators.sliced_fully_connected import SlicedFullyConnected
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.integer import RightShift
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import SliceAxis
from mrt.symbol.types import narrowest_dtype


@dataclass(frozen=True)
class MergeRowSlices(Rewrite[AddN]):
    """AddN of right_shift(f_g * FullyConnected(X_g, W_g), s) becomes a SlicedFullyConnected of X.

    The X_g are all slices of one X in order, of one width; the shift is the same for all, or there is none. It is done
    where the weights can be packed (`choose_packing`): they are multiplied for few rows, and wait for memory.
    """

    about = (AddN,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[AddN], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if self.facts.machine is None:
            return None
        terms = [term for source in inputs if (term := _term_of(source, graph)) is not None]
        if len(terms) < 2 or len(terms) < len(inputs) or not _follow(terms):
            return None
        data, operator = terms[0].part.inputs[0], terms[0].operator
        weight = np.concatenate([term.weight for term in terms], axis=1)
        if not self._packs(graph, data, weight, operator, terms[0].width):
            return None
        factors = np.stack([term.factors for term in terms])
        merged = SlicedFullyConnected(
            num_hidden=operator.num_hidden,
            no_bias=True,
            flatten=operator.flatten,
            width=terms[0].width,
            shift=terms[0].shift,
        )
        dtype = narrowest_dtype(int(factors.min()), int(factors.max()))
        given = [
            builder.parameter(f"{symbol.name}_weight", weight, symbol.origin),
            builder.parameter(f"{symbol.name}_factors", factors.astype(dtype), symbol.origin),
        ]
        return builder.apply(merged, [data, *given], symbol.name, symbol.origin)

    def _packs(self, graph: Graph, data: Symbol, weight: Array, layer: FullyConnected, width: int) -> bool:
        machine = self.facts.machine
        if machine is None or weight.dtype != np.int8 or data.dtype not in ("int8", "uint8", "int16"):
            return False
        known = self.facts.bounds(graph)[data.name]
        dot = choose_dot(data.dtype, weight, "int32", machine, Pairs(known, not layer.flatten))
        memory = (
            padded_length(len(weight), True) // dot.lanes,
            padded_length(weight.shape[1], True),
            data.type.size // data.shape[-1],
        )
        return choose_packing(weight, dot, memory, known, machine, width) is not None


@dataclass(frozen=True, eq=False)
class _Term:
    """One operand: right_shift(factors * operator(part, weight), shift), with factors (O,)."""

    operator: FullyConnected
    part: Symbol
    weight: Array
    factors: Array
    shift: int

    @property
    def width(self) -> int:
        return int(self.weight.shape[1])


def _term_of(symbol: Symbol, graph: Graph) -> _Term | None:
    shift = 0
    if isinstance(symbol.operator, RightShift):
        shifts = graph.value(symbol.inputs[1])
        if shifts is None or shifts.min() != shifts.max():
            return None
        shift, symbol = int(shifts.min()), symbol.inputs[0]
    if not isinstance(symbol.operator, BroadcastMul):
        return None
    sums, factors = symbol.inputs[0], graph.value(symbol.inputs[1])
    if factors is None or factors.size not in (1, symbol.shape[-1]) or factors.shape[-1:] != (factors.size,):
        return None
    operator = sums.operator
    if not isinstance(operator, FullyConnected) or len(sums.inputs) != 2 or sums.shape != symbol.shape:
        return None
    part, weight = sums.inputs[0], graph.value(sums.inputs[1])
    is_row = not operator.flatten or part.type.rank == 2
    if weight is None or not is_row or not isinstance(part.operator, SliceAxis):
        return None
    return _Term(operator, part, weight, np.broadcast_to(factors.reshape(-1), symbol.shape[-1:]), shift)


def _follow(terms: Sequence[_Term]) -> bool:
    """Whether the terms are alike, on the slices of one tensor, in order and without a gap."""
    first = terms[0]
    data, last = first.part.inputs[0], first.part.type.rank - 1
    for number, term in enumerate(terms):
        cut = term.part.operator
        if not isinstance(cut, SliceAxis) or term.part.inputs[0] is not data or cut.axis % (last + 1) != last:
            return False
        if (cut.begin, term.width, term.operator, term.shift) != (
            number * first.width,
            first.width,
            first.operator,
            first.shift,
        ):
            return False
    return len(terms) * first.width == int(data.shape[-1])
