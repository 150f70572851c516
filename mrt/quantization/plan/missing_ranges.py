"""Which tensors need data: those that are rounded to a range which nothing but calibration tells."""

from __future__ import annotations

from collections.abc import Mapping

from mrt.calibration import Range
from mrt.errors import QuantizationError
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import expansion_of, named
from mrt.quantization.options import ActivationConfig
from mrt.quantization.plan.ranges import REAL_LIMIT
from mrt.quantization.plan.trained import FINE_BITS, interpolates
from mrt.quantization.tensor_plan import UNLIMITED, Plan
from mrt.symbol import Graph, Interval, Symbol

LARGEST_PART = 0.5
"""A part of a known range is what a function tells apart, rather than an end of it, if it is at most as large."""


def check_ranges(plan: Plan, calibrated: Mapping[str, Range]) -> None:
    """QuantizationError listing the tensors that are rounded to a range which only data can tell.

    calibrated: those that calibration found. Without one a tensor has the range that is proven of it. That of a sum of
    products is far beyond what occurs, so that it serves for sums that the next quantizer rounds, not to be rounded by;
    but where its readers tell a part of it apart, such as functions that saturate, it is rounded by that part.
    """
    graph = plan.graph
    unseen = {symbol.name for symbol in graph.operators} - set(calibrated)
    far: set[str] = set()
    for symbol in graph.operators:
        if symbol.name not in unseen or plan[symbol].fixed is not None or _is_bounded(graph, symbol):
            continue
        if _sums_products(plan, symbol) or any(source.name in far for source in symbol.inputs):
            far.add(symbol.name)
    wanted: dict[str, None] = {}
    for symbol in graph.operators:
        if plan[symbol].ends_graph:
            continue
        demands = expansion_of(symbol).demands(symbol, graph)
        for index, (demand, source) in enumerate(zip(demands, symbol.inputs, strict=True)):
            if demand is Demand.OUTPUT and symbol.name in far:
                wanted[symbol.name] = None
            is_rounded = demand in (Demand.NARROW, Demand.CHANNELS) and source.name in far
            if is_rounded and not _tells_a_part(plan, symbol, index):
                wanted[source.name] = None
    if wanted:
        raise QuantizationError(
            f"the range of {len(wanted)} tensors that are rounded is not known without data: {named(list(wanted))}; no "
            f"quantizer of the network gives it, calibrate with data"
        )


def _sums_products(plan: Plan, symbol: Symbol) -> bool:
    """Whether a symbol adds up so many products that its proven range says little of what occurs.

    Of products of two tensors that is not so where their quantizer has FINE_BITS: these leave enough of them.
    """
    if symbol.operator.data_channel_axis(symbol.inputs[0].type.rank) is not None:
        return not interpolates(plan.graph, symbol)
    options = plan[symbol].options
    is_fine = not isinstance(options, ActivationConfig) or options.bits >= FINE_BITS
    return not is_fine and symbol.operator.summed_products(*(source.type for source in symbol.inputs)) > 1


def _is_bounded(graph: Graph, symbol: Symbol) -> bool:
    """Whether a symbol has a range of its own, whatever that of its data is, such as a sigmoid."""
    known = [graph.value(source) for source in symbol.inputs]
    everything = [
        Interval.of(-REAL_LIMIT, REAL_LIMIT, source.shape) if value is None else Interval.constant(value)
        for source, value in zip(symbol.inputs, known, strict=True)
    ]
    return bool(symbol.operator.bounds(*everything).magnitude < REAL_LIMIT)


def _tells_a_part(plan: Plan, symbol: Symbol, index: int) -> bool:
    """Whether a symbol tells no more of input `index` apart than a range of its own, or the next quantizer, does."""
    if expansion_of(symbol).reach is None:
        return False
    edge, next_target = plan.edge(symbol, index), plan[symbol].next_target
    is_rounded = next_target is not None and next_target.exact and next_target.hi < UNLIMITED
    known = plan[symbol.inputs[index]].magnitude
    is_part = edge is not None and Range(*edge.real_range).magnitude < known * LARGEST_PART
    return is_rounded or is_part or _is_bounded(plan.graph, symbol)
