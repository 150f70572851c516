"""Scores to which a bias and a mask are added as one sum: the bias joins the scores, and the mask is added last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Graph, GraphBuilder, RewritePass, Symbol
from mrt.symbol.masks import LOWERS, bias_place, biased_mask, forbids, shared_out
from mrt.symbol.operation import Operation
from mrt.symbol.operators.broadcast import BroadcastAdd


@dataclass(frozen=True)
class MaskSums(RewritePass):
    """What masks scores is a tensor of its own, of which it is known that it is 0 or forbids.

    kept: names of symbols that must stay, such as those before which the graph will be cut.

    1. X + (B + M) for softmaxes alone, B a constant and M computed, which does nothing but forbid scores: (X + B) + M.
       B is a position bias, such as T5's, which joins the scores' accumulator.
    2. X + where(C, B, L), L a constant of LOWERS or less: (X + B) + where(C, 0, L). What is forbidden stays so, since B
       is small beside L.
    """

    kept: frozenset[str] = frozenset()

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operands = shared_out(graph, symbol)
        if symbol.operator.operation is not Operation.ADD or symbol.name in self.kept:
            return None
        for place, total in enumerate(operands):
            parts = None if total.name in self.kept else _parts(graph, total, inputs[place], builder)
            if parts is not None:
                bias, mask = parts
                biased = builder.apply(BroadcastAdd(), [inputs[1 - place], bias], f"{symbol.name}_biased")
                return builder.apply(BroadcastAdd(), [biased, mask], symbol.name, symbol.origin)
        return None


def _parts(graph: Graph, total: Symbol, made: Symbol, builder: GraphBuilder) -> tuple[Symbol, Symbol] | None:
    """The bias and the mask of a sum of both, or of a choice between a bias and minus infinity; None of others.

    made: what has become of `total`.
    """
    sum_places = biased_mask(graph, total)
    if sum_places is not None:
        bias, mask = (made.inputs[place] for place in sum_places)
        return bias, mask
    place = bias_place(graph, total, LOWERS)
    if place is None or not forbids(graph, total):
        return None
    bias = made.inputs[place]
    constant = graph.value(total.inputs[place])
    if constant is None or not constant.any():
        return None
    nothing = builder.parameter(f"{total.name}_nothing", np.zeros((1,) * bias.type.rank, bias.dtype))
    choice = [nothing if index == place else source for index, source in enumerate(made.inputs)]
    return bias, builder.apply(total.operator, choice, f"{total.name}_mask")
