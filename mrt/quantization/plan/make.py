"""Making the scale plan of a prepared float graph from what calibration saw and what the options ask."""

from __future__ import annotations

from collections.abc import Mapping

from mrt.calibration import Range
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.backward import look_ahead
from mrt.quantization.plan.channel_splits import channel_splits
from mrt.quantization.plan.own_quantizers import asked_options, own_target
from mrt.quantization.plan.ranges import calibrated_ranges, magnitude, never_negative_tensors
from mrt.quantization.plan.tensor_plan import Plan
from mrt.quantization.plan.trained import ConstantGrid, fixed_targets, fold_constants
from mrt.symbol import Graph


def observed_tensors(graph: Graph) -> tuple[str, ...]:
    """The tensors whose thresholds the plan needs: all but parameters and those that trained quantization fixes."""
    graph, _ = fold_constants(graph)
    fixed = fixed_targets(graph, {})
    return tuple(s.name for s in (*graph.inputs, *graph.symbols) if graph.value(s) is None and s.name not in fixed)


def make_plan(
    graph: Graph,
    thresholds: Mapping[str, Range],
    config: QuantizationConfig,
    constants: Mapping[str, ConstantGrid] | None = None,
) -> Plan:
    """The plan for a prepared graph whose constants are parameters; QuantizationError naming a tensor whose threshold
    is missing.

    constants: the integers of parameters that came quantized; see `fold_constants`.
    """
    config.check_against(graph)
    fixed = fixed_targets(graph, config.inputs)
    ranges = calibrated_ranges(graph, thresholds, config, fixed)
    never_negative = never_negative_tensors(graph, ranges)
    asked = asked_options(graph, ranges, config, fixed)
    own = {
        symbol.name: own_target(graph, symbol, asked[symbol.name], ranges[symbol.name], symbol.name in never_negative)
        for symbol in (*graph.inputs, *graph.symbols)
    }
    draft = Plan(
        graph,
        config,
        asked,
        magnitudes={name: magnitude(threshold) for name, threshold in ranges.items()},
        never_negative=never_negative,
        fixed=fixed,
        constants=constants or {},
        own=own,
        grouped={name: target for name, target in fixed.items() if target.groups is not None},
        narrow=own,
    )
    return look_ahead(draft, ranges, channel_splits(graph, thresholds, asked, never_negative))
