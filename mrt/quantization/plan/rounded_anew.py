"""Where the integers that a network brings are not taken on to its next quantizer as they are, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrt.quantization.demand import Demand
from mrt.quantization.expansion import expansion_of, named
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.fake_quantize import FakeQuantize

_ROUNDING = (Demand.NARROW, Demand.CHANNELS, Demand.OUTPUT)


def requantization_notes(plan: Plan) -> tuple[str, ...]:
    """A note for every reason, none where the network brings no quantizers.

    1. An operator rounds what was made of dequantized integers, since no quantizer of the network stands before it.
    2. An operator adds up channels whose quantizer gave each a scale of its own.
    3. A quantizer has no form in which the operator before it could round for it; it is computed element by element.
    """
    if all(tensor.fixed is None for tensor in plan.tensors.values()):
        return ()
    anew: dict[str, dict[str, None]] = {}
    mixed: dict[str, list[str]] = {}
    apart: dict[str, list[str]] = {}
    between: set[Symbol] = set()
    for symbol in plan.graph.operators:
        demands = expansion_of(symbol).demands(symbol, plan.graph)
        for index, (demand, source) in enumerate(zip(demands, symbol.inputs, strict=True)):
            if plan[symbol].ends_graph:
                continue
            if demand in _ROUNDING and source in between and plan[symbol].fixed is None:
                anew.setdefault(symbol.op, {})[source.name] = None
            elif demand in (Demand.NARROW, Demand.CHANNELS) and _is_merged(plan, symbol, index):
                mixed.setdefault(symbol.op, []).append(source.name)
            elif source in between or plan[source].fixed is not None:
                between.add(symbol)
        if plan[symbol].fixed is not None:
            between.discard(symbol)
        reason = _why_apart(plan, symbol)
        if reason:
            apart.setdefault(reason, []).append(symbol.name)
    notes = [
        f"rounded anew for {op}, since no quantizer of the network stands before it: {named(list(names))}"
        for op, names in anew.items()
    ]
    notes += [
        f"rounded anew to one scale for {op}, which adds up channels of several: {named(names)}"
        for op, names in mixed.items()
    ]
    return (*notes, *(f"computed element by element, {reason}: {named(names)}" for reason, names in apart.items()))


def _is_merged(plan: Plan, symbol: Symbol, index: int) -> bool:
    """Whether input `index`, fixed with a scale for each channel, is read with one scale."""
    fixed = plan[symbol.inputs[index]].fixed
    edge = plan.edge(symbol, index)
    return fixed is not None and fixed.groups is not None and edge is not None and edge.groups is None


def _why_apart(plan: Plan, symbol: Symbol) -> str:
    if not isinstance(symbol.operator, FakeQuantize) or plan.edge(symbol, 0) is not None:
        return ""
    limits = [plan.graph.value(source) for source in symbol.inputs[1:]]
    known: Sequence[Array] = [limit for limit in limits if limit is not None]
    if len(known) < len(limits):
        return "since their limits are computed"
    grid = symbol.operator.grid(known, symbol.type.rank)
    if (grid.step_in < 0).any():
        return "since their limits are in the wrong order"
    if (grid.step_in == 0).any():
        return "since their limits are equal"
    if (grid.zero_in != np.rint(grid.zero_in)).any():
        return "since their zero point is no integer"
    return "since their limits vary along several axes or samples"
