"""Expanding a prepared float graph into the integer graph, symbol by symbol, as the plan says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mrt.calibration import Calibration, Range
from mrt.collector import give_back_freed, paused_collector
from mrt.errors import MRTError, QuantizationError
from mrt.execution import THREADS, Executor
from mrt.quantization.algorithms.algorithm import Apart, Rounding, find_algorithm
from mrt.quantization.algorithms.channel_choice import resolve_granularity
from mrt.quantization.constant_grids import fold_constants
from mrt.quantization.expansion import Inputs, check_covered, expansion_of
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.integer_graph import IntegerGraph, input_target
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.integer.rounder import Asked, Rounder
from mrt.quantization.integer.weights import QuantizedWeight
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.concat_parts import part_notes
from mrt.quantization.plan.lost_values import fixed_output_note, unresolved_range_notes
from mrt.quantization.plan.make import make_plan
from mrt.quantization.plan.missing_ranges import check_ranges
from mrt.quantization.plan.ranges import calibrated_ranges
from mrt.quantization.plan.rounded_anew import requantization_notes
from mrt.quantization.plan.trained import fixed_targets
from mrt.quantization.quantizer import Target, round_half_away
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Symbol, TensorType
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.states import state_names
from mrt.symbol.types import narrowest_dtype

BYTES_BETWEEN = 2**24
"""Freed memory is given back after so many bytes of parameters: what is made on the way takes several times as much."""


def expand_graph(
    graph: Graph,
    calibrated: Mapping[str, Range],
    config: QuantizationConfig,
    corrections: Mapping[str, Array] | None = None,
    observed: Calibration | None = None,
    executor: Executor = THREADS,
) -> IntegerGraph:
    """The integer form of a prepared float graph.

    corrections: by the name of a reduction, what is added to its real output: float64 (O,), one for each output
    channel. observed: what the algorithms that `config` names need besides ranges. executor: see `round_ahead`.

    Raises UnsupportedOperatorError listing every operator without an integer form, and QuantizationError naming the
    symbol that does not fit 32 bits, or whose correction does not fit it.
    """
    return expand_planned(plan_graph(graph, calibrated, config), corrections or {}, observed, executor)


@paused_collector()
def expand_planned(
    planned: PlannedGraph,
    corrections: Mapping[str, Array],
    observed: Calibration | None = None,
    executor: Executor = THREADS,
    rounder: Rounder | None = None,
) -> IntegerGraph:
    """`expand_graph` of a graph whose plan is made. rounder: see `Expander`."""
    round_ahead(planned, observed, executor)
    expander = Expander(planned, observed, rounder)
    for name in corrections:
        if name not in expander.graph.by_name:
            raise QuantizationError(f"a correction is given for {name}, which the graph does not have")
    for symbol in expander.graph.operators:
        expander.expand(symbol)
        if symbol.name in corrections:
            expander.correct(symbol, corrections[symbol.name])
    made = expander.finish()
    del expander
    give_back_freed()
    return made


@dataclass(frozen=True, eq=False)
class PlannedGraph:
    """A prepared float graph with its plan.

    plan: its graph has quantized constants as parameters. ranges: of every tensor. notes: what was chosen, what is left
    with one scale and what is rounded anew, and why.
    """

    plan: Plan
    ranges: Mapping[str, Range]
    notes: tuple[str, ...]


def plan_graph(graph: Graph, calibrated: Mapping[str, Range], config: QuantizationConfig) -> PlannedGraph:
    """The plan of a prepared float graph, granularity `auto` decided; raises what `expand_graph` does.

    calibrated: the ranges that calibration found, by tensor.
    """
    check_covered(graph)
    graph, constants = fold_constants(graph)
    ranges = calibrated_ranges(graph, calibrated, config, fixed_targets(graph, config.inputs))
    config, chosen = resolve_granularity(graph, ranges, config)
    plan = make_plan(graph, ranges, config, constants)
    check_ranges(plan, calibrated)
    notes = (
        *chosen,
        *plan.left_alone,
        *part_notes(plan),
        *requantization_notes(plan),
        *unresolved_range_notes(plan, calibrated),
    )
    return PlannedGraph(plan, ranges, notes)


class Expander:
    """Makes the integer graph of a prepared float graph, one operator after the other in the order of the graph.

    Between two of them what was made so far can be run, and a reduction's output be corrected by what that shows.
    """

    def __init__(
        self, planned: PlannedGraph, observed: Calibration | None = None, rounder: Rounder | None = None
    ) -> None:
        """rounder: who quantizes weights; by default as the configuration asks for."""
        self.plan = planned.plan
        self.graph = planned.plan.graph
        """The float graph, its quantized constants as parameters: the symbols that `expand` takes."""
        self.builder = IntegerBuilder(self.graph.by_name, observed, rounder)
        self.builder.notes += planned.notes
        self._ranges = planned.ranges
        self._wide: dict[Symbol, Quantized] = {}
        self._states = state_names(self.graph)
        self._corrections: dict[str, Array] = {}
        self._read = 0
        """Bytes of parameters that were expanded since freed memory was given back."""
        self.inputs = tuple(self._input(symbol) for symbol in self.graph.inputs)
        """The integer graph's inputs, with what their quantizers saturate to."""

    def _input(self, symbol: Symbol) -> tuple[Symbol, Target]:
        given, own = self.plan.config.inputs.get(symbol.name), self.plan[symbol].own
        target = own if own.pinned else input_target(own)
        self.builder.begin(symbol)
        dtype = narrowest_dtype(target.lo, target.hi) if given is None else given.dtype
        self._wide[symbol] = self.builder.input(symbol.name, TensorType(symbol.shape, dtype), target)
        # The scale of a state is met exactly, but nobody gives its integers.
        is_state = symbol.name in self._states
        return self._wide[symbol].symbol, replace(target, pinned=False) if is_state else target

    def expand(self, symbol: Symbol) -> Quantized:
        """The integers of an operator of the float graph; what it reads must have been expanded."""
        values: list[Quantized | Array] = []
        for index, source in enumerate(symbol.inputs):
            parameter = self.graph.value(source)
            if parameter is not None:
                values.append(parameter)
                continue
            target = self.plan.edge(symbol, index)
            self.builder.begin(source)
            wide = self._wide[source]
            values.append(wide if target is None else self.builder.requantize(wide, target))
        self.builder.begin(symbol)
        inputs = Inputs(symbol, tuple(values))
        self._wide[symbol] = expansion_of(symbol).expand(symbol, inputs, self.plan, self.builder)
        self._read += sum(value.nbytes for value in values if isinstance(value, np.ndarray))
        if self._read > BYTES_BETWEEN:
            self._read = 0
            give_back_freed()
        return self._wide[symbol]

    def correct(self, symbol: Symbol, correction: Array) -> None:
        """Adds real values, one for each output channel, to what the reduction `symbol` was expanded to last.

        They are rounded to steps of the accumulator, and join the constants that are added to it before or after.
        """
        axis, value = symbol.channel_axis, self._wide[symbol]
        if axis is None or correction.shape != (symbol.shape[axis],) or not np.isfinite(correction).all():
            needed = "none" if axis is None else f"{symbol.shape[axis]} finite values"
            raise QuantizationError(
                f"{symbol.name} ({symbol.op}): a correction of {correction.size} values is given, {needed} can be taken"
            )
        self._corrections[symbol.name] = correction
        shape = tuple(-1 if k == axis else 1 for k in range(symbol.type.rank))
        steps = round_half_away(correction.reshape(shape) / value.scale)
        if steps.any():
            self.builder.begin(symbol)
            name = f"{symbol.name}_bias_correction"
            total = self.builder.add_constant(value.symbol, name, steps, "_bias_corrected")
            self._wide[symbol] = self.builder.quantized(total, value.scale, value.zero_points)

    def form(self, consumer: Symbol, index: int) -> Symbol | None:
        """The integer symbol from which input `index` of an operator follows by steps that sum nothing up.

        Narrow where it was rescaled for that operator already; None for a parameter.
        """
        source = consumer.inputs[index]
        if self.graph.value(source) is not None:
            return None
        return self.builder.form(self._wide[source], self.plan.edge(consumer, index))

    def finish(self) -> IntegerGraph:
        """The integer graph; every operator of the float graph must have been expanded."""
        builder = self.builder
        outputs = tuple(self._output(symbol) for symbol in self.graph.outputs)
        builder.notes += self._rounding_notes()
        integer = builder.graph([output.symbol for output in outputs])
        scales = {name: scale for name, scale in builder.scales.items() if name in integer.by_name}
        zero_points = {name: zero for name, zero in builder.zero_points.items() if name in integer.by_name}
        return IntegerGraph(
            integer, self.inputs, outputs, scales, zero_points, tuple(builder.notes), dict(self._corrections)
        )

    def _rounding_notes(self) -> Iterator[str]:
        config = self.plan.config
        for name in config.roundings:
            layers = [s for s in self.graph.operators if s.channel_axis is not None]
            naming = [layer for layer in layers if config.weight_of(layer.name).rounding == name]
            yield from find_algorithm(Rounding, name).notes(naming, self.builder.observed)

    def _output(self, symbol: Symbol) -> Quantized:
        self.builder.begin(symbol)
        parameter = self.graph.value(symbol)
        target = self.plan[symbol].output
        if parameter is not None:
            return self.builder.constant_at(symbol.name, parameter, target)
        output = self.builder.requantize(self._wide[symbol], target)
        bounds = self.builder.bounds(output.symbol)
        note = fixed_output_note(symbol, self._ranges[symbol.name], bounds, self.plan.config.output.bits)
        self.builder.notes += [] if note is None else [note]
        zero, (lo, hi) = output.zero_point, DTYPE_RANGES[output.symbol.dtype]
        if lo <= zero <= hi:
            return output
        # Whoever takes the output subtracts its zero point, which may lie beyond all that the output reaches.
        dtype = narrowest_dtype(min(int(bounds.min), zero), max(int(bounds.max), zero))
        return self.builder.quantized(self.builder.cast(output.symbol, dtype), output.scale, output.zero_points)


class RoundedWeights(Mapping[str, Array]):
    """The real values of integer weights by the reduction's name, float64 of the weight's shape.

    The integers are held, and each weight is made anew when it is asked for: all of them would take eight times the
    bytes.
    """

    def __init__(self, made: Mapping[str, Callable[[], Array]]) -> None:
        self._made = dict(made)

    def __getitem__(self, name: str) -> Array:
        return self._made[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def rounded_weights(
    planned: PlannedGraph,
    observed: Calibration | None = None,
    executor: Executor = THREADS,
    rounder: Rounder | None = None,
) -> RoundedWeights:
    """What the integer weight of every reduction stands for; raises what `expand_graph` does.

    executor: see `round_ahead`; rounder: see `Expander`.
    """
    round_ahead(planned, observed, executor)
    expander = Expander(planned, observed, rounder)
    found: dict[str, Callable[[], Array]] = {}
    for symbol in expander.graph.operators:
        expander.expand(symbol)
        dequantized = expander.builder.dequantized_weight
        if dequantized is not None and symbol.channel_axis is not None:
            found[symbol.name] = dequantized
    del expander  # whose symbols and their bounds take more than the integers
    give_back_freed()
    return RoundedWeights(found)


MUCH = 2.0**32
"""Multiplications from which weights are rounded ahead: less takes no longer than to find out at which scales."""


def round_ahead(planned: PlannedGraph, observed: Calibration | None, executor: Executor) -> None:
    """Has weights rounded that take long, many layers at once: expansions that follow find them done.

    The scales of a layer follow from the bounds of what it reads, and so from the weights before it. An expansion by
    which all weights are rounded to the nearest goes ahead and says which scales these will be. Where they come to be
    others, the layer is rounded when it is expanded: integers are the same in any case.
    """
    if executor.width < 2 or observed is None:
        return
    apart = _apart(planned.plan, observed)
    if sum(each.work for each in apart.values()) < MUCH:
        return
    for name, found in executor.in_order(_rounded_apart, _ahead(planned, observed, apart)):
        layer, options = planned.plan.graph.by_name[name], planned.plan.config.weight_of(name)
        find_algorithm(Rounding, options.rounding).take(layer, observed, found)
    give_back_freed()


def _apart(plan: Plan, observed: Calibration) -> dict[str, Apart]:
    """What rounds the weights of layers apart from the others, by name, where that pays."""
    found: dict[str, Apart] = {}
    for layer in plan.graph.operators:
        if layer.channel_axis is not None and plan[layer.inputs[1]].constant is None:
            options = plan.config.weight_of(layer.name)
            apart = find_algorithm(Rounding, options.rounding).apart(layer, observed, options)
            found |= {} if apart is None else {layer.name: apart}
    return found


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer whose weight is to be rounded, for all that is asked."""

    name: str
    apart: Apart
    asked: tuple[Asked, ...]


def _rounded_apart(layer: _Layer) -> tuple[str, Any]:
    for asked in layer.asked:
        asked.quantized(layer.apart.integers, layer.apart.covering(asked.options))
    return layer.name, layer.apart.found()


def _ahead(planned: PlannedGraph, observed: Calibration, apart: Mapping[str, Apart]) -> Iterator[_Layer]:
    """The layers, with what an expansion asks for whose weights are rounded to the nearest."""
    pending: list[Asked] = []

    def nearest(layer: Symbol, asked: Asked) -> QuantizedWeight:
        pending.append(asked)
        return asked.quantized()

    expander = Expander(planned, observed, nearest)
    for symbol in expander.graph.operators:
        try:
            expander.expand(symbol)
        except MRTError:  # of which the expansion that follows will tell
            return
        if symbol.name in apart:
            yield _Layer(symbol.name, apart[symbol.name], tuple(pending))
        pending.clear()
