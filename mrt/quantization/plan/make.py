"""Making the plan of a prepared float graph from what calibration saw and what the options ask."""

from __future__ import annotations

from collections.abc import Mapping

from mrt.calibration import Range
from mrt.quantization.constant_grids import ConstantGrid, fold_constants
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.channel_splits import CHANNEL_SPLITS
from mrt.quantization.plan.concat_parts import PART_SPLITS, PARTS
from mrt.quantization.plan.facts import Facts, run_fact_passes
from mrt.quantization.plan.own_quantizers import OPTIONS, OWN_QUANTIZERS
from mrt.quantization.plan.ranges import NEVER_NEGATIVE, RANGES
from mrt.quantization.plan.states import HELD, STATES
from mrt.quantization.plan.trained import FIXED_FORMS, fixed_targets
from mrt.quantization.plan.walk import plan_tensors
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Graph

FACT_PASSES = (
    FIXED_FORMS,
    RANGES,
    NEVER_NEGATIVE,
    OPTIONS,
    STATES,
    HELD,
    OWN_QUANTIZERS,
    PARTS,
    PART_SPLITS,
    CHANNEL_SPLITS,
)
"""What is found of the tensors themselves, in order; the walk from the outputs then makes the plan of each."""


def observed_tensors(graph: Graph) -> tuple[str, ...]:
    """The tensors whose ranges the plan needs: all but parameters and those that trained quantization fixes."""
    graph, _ = fold_constants(graph)
    fixed = fixed_targets(graph, {})
    return tuple(s.name for s in (*graph.inputs, *graph.symbols) if graph.value(s) is None and s.name not in fixed)


def make_plan(
    graph: Graph,
    ranges: Mapping[str, Range],
    config: QuantizationConfig,
    constants: Mapping[str, ConstantGrid] | None = None,
) -> Plan:
    """The plan for a prepared graph whose constants are parameters; QuantizationError naming a tensor without range.

    ranges: those that calibration found. constants: the integers of parameters that came quantized; see
    `fold_constants`.
    """
    config.check_against(graph)
    return plan_tensors(run_fact_passes(Facts(graph, config, ranges, constants or {}), FACT_PASSES))
