"""Expanding a prepared float graph into the integer graph, symbol by symbol, as the plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mrt.calibration import Threshold
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Inputs, check_covered, expansion_of
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan import ScalePlan, make_plan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import Target
from mrt.symbol import Array, Graph, Symbol, TensorType
from mrt.symbol.types import narrowest_dtype


@dataclass(frozen=True, eq=False)
class IntegerGraph:
    """What quantization makes: the integer graph, its inputs and outputs with their scales, and all scales by name.

    An input's range is what its quantizer saturates to.
    """

    graph: Graph
    inputs: tuple[tuple[Symbol, Target], ...]
    outputs: tuple[Quantized, ...]
    scales: Mapping[str, Array]
    zero_points: Mapping[str, int]
    notes: tuple[str, ...] = ()


def expand_graph(graph: Graph, thresholds: Mapping[str, Threshold], config: QuantizationConfig) -> IntegerGraph:
    """The integer form of a prepared float graph.

    Raises UnsupportedOperatorError listing every operator without an integer form, and QuantizationError naming the
    symbol that does not fit 32 bits.
    """
    check_covered(graph)
    plan = make_plan(graph, thresholds, config)
    builder = IntegerBuilder(reserved=graph.by_name)
    wide: dict[Symbol, Quantized] = {}
    inputs = []
    for symbol in graph.inputs:
        given = config.inputs.get(symbol.name)
        target = input_target(plan.own[symbol.name]) if given is None else plan.own[symbol.name]
        builder.begin(symbol)
        dtype = narrowest_dtype(target.lo, target.hi) if given is None else given.dtype
        wide[symbol] = builder.input(symbol.name, TensorType(symbol.shape, dtype), target)
        inputs.append((wide[symbol].symbol, target))
    for symbol in graph.operators:
        wide[symbol] = _expand(symbol, wide, plan, builder)
    outputs = tuple(_output(symbol, wide, plan, builder) for symbol in graph.outputs)
    integer = builder.graph([output.symbol for output in outputs])
    scales = {name: scale for name, scale in builder.scales.items() if name in integer.by_name}
    zero_points = {name: zero for name, zero in builder.zero_points.items() if name in integer.by_name}
    return IntegerGraph(integer, tuple(inputs), outputs, scales, zero_points, tuple(builder.notes))


def input_target(target: Target) -> Target:
    """A target whose scale is a float32, as the quantization of float inputs needs."""
    scale = float(np.nextafter(np.float32(target.scale), np.float32(np.inf)))
    return replace(target, scale=scale)


def _expand(symbol: Symbol, wide: Mapping[Symbol, Quantized], plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    values: list[Quantized | Array] = []
    for index, source in enumerate(symbol.inputs):
        parameter = plan.graph.value(source)
        if parameter is not None:
            values.append(parameter)
            continue
        target = plan.edge(symbol, index)
        builder.begin(source)
        values.append(wide[source] if target is None else builder.requantize(wide[source], target))
    builder.begin(symbol)
    return expansion_of(symbol).expand(symbol, Inputs(symbol, tuple(values)), plan, builder)


def _output(symbol: Symbol, wide: Mapping[Symbol, Quantized], plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    builder.begin(symbol)
    parameter = plan.graph.value(symbol)
    target = plan.output(symbol)
    if parameter is not None:
        return builder.constant_at(symbol.name, parameter, target)
    return builder.requantize(wide[symbol], target)
