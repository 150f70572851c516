"""Which tensors need data: those that are rounded to a range which nothing but calibration tells."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mrt.calibration import Threshold
from mrt.errors import QuantizationError
from mrt.quantization.expansion import Demand, expansion_of, named
from mrt.quantization.plan import ScalePlan
from mrt.symbol.operators.activation import Clip


def check_ranges(plan: ScalePlan, thresholds: Mapping[str, Threshold]) -> None:
    """QuantizationError listing the tensors that are rounded to a range which only data can tell.

    thresholds: those that calibration found. Without one a tensor has the range that is proven of it. That of a sum of
    products is far beyond what occurs, so that it serves for sums that the next quantizer rounds, not to be rounded by.
    """
    graph = plan.graph
    unseen = {symbol.name for symbol in graph.operators} - set(thresholds) - set(plan.fixed)
    far: set[str] = set()
    for symbol in graph.operators:
        operator = symbol.operator
        if symbol.name in unseen and not (
            isinstance(operator, Clip) and math.isfinite(operator.a_max - operator.a_min)
        ):
            is_sum = operator.data_channel_axis(symbol.inputs[0].type.rank) is not None
            if is_sum or any(source.name in far for source in symbol.inputs):
                far.add(symbol.name)
    wanted: dict[str, None] = {}
    for symbol in graph.operators:
        if plan.only_leaves(symbol):
            continue
        demands = expansion_of(symbol).demands(symbol, graph)
        for demand, source in zip(demands, symbol.inputs, strict=True):
            rounded = symbol if demand is Demand.OUTPUT else source
            if demand in (Demand.NARROW, Demand.CHANNELS, Demand.OUTPUT) and rounded.name in far:
                wanted[rounded.name] = None
    if wanted:
        raise QuantizationError(
            f"the range of {len(wanted)} tensors that are rounded is not known without data: {named(list(wanted))}; no "
            f"quantizer of the network gives it, calibrate with data"
        )
