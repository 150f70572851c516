"""The registry of expansions: how each float operator becomes integers, and in which form it wants its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from mrt.errors import QuantizationError, UnsupportedOperatorError
from mrt.messages import split_option
from mrt.quantization.demand import Demand
from mrt.quantization.exact_integers import is_exact
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import Target
from mrt.quantization.tensor_plan import Plan, TensorPlan
from mrt.symbol import Array, Graph, Operator, Symbol
from mrt.symbol.operator import registered_operators
from mrt.symbol.registry import ByRecord


@dataclass(frozen=True)
class Inputs:
    """The inputs of the operator being expanded: quantized symbols, and parameters in float."""

    operator: Symbol
    values: tuple[Quantized | Array, ...]

    def quantized(self, index: int) -> Quantized:
        """Input `index`, which must not be a parameter."""
        value = self.values[index]
        if not isinstance(value, Quantized):
            raise QuantizationError(f"{self.operator.name} ({self.operator.op}): input {index} must not be a constant")
        return value

    def parameter(self, index: int) -> Array:
        """The float array of input `index`, which must be a parameter."""
        value = self.values[index]
        if isinstance(value, Quantized):
            raise QuantizationError(
                f"{self.operator.name} ({self.operator.op}): {self.operator.inputs[index].name} must be a constant"
            )
        return value


_Record = TypeVar("_Record", bound=Operator)

# What is registered for a record takes symbols whose operator is of that record.
Expand = Callable[[Symbol[_Record], Inputs, Plan, IntegerBuilder], Quantized]
Demands = Callable[[Symbol[_Record], Graph], tuple[Demand, ...]]
Reach = Callable[[Symbol[_Record], TensorPlan, float, float], tuple[float, float]]
Grid = Callable[[Symbol[_Record], Graph], Target | None]
TrainedForm = Callable[[Symbol[_Record], Graph, Sequence[Target | None]], Target | None]
Factor = Callable[[Symbol[_Record], Graph], float]
Defers = Callable[[Symbol[_Record]], bool]


def no_grid(symbol: Symbol, graph: Graph) -> Target | None:
    """None: the operator is no quantizer."""
    return None


def kept_target(symbol: Symbol, graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    """The target of the data, for operators whose output holds its values; channel groups follow their channels."""
    target = sources[0]
    if target is None or not symbol.operator.keeps_scale:
        return None
    if target.groups is None:
        return target
    axis = symbol.operator.kept_axis(target.groups.axis, 0, *(source.type for source in symbol.inputs))
    if axis is None or axis == 0:
        return None
    neighbours = symbol.shape[axis] // symbol.inputs[0].shape[target.groups.axis]
    return replace(target, groups=replace(target.groups, axis=axis, step=target.groups.step * neighbours))


@dataclass(frozen=True)
class Expansion:
    """How one operator becomes integers.

    expand: makes the integer symbols. demands: the form of each input. guard_bits: how much finer than the next
    consumer's scale the COMMON scale is. gain: the factor by which a WIDE input's scale is multiplied on its way
    through, for operators that pass an accumulator on. adds_constant: whether a constant operand joins the accumulator
    at its own scale, as a bias does. reach: of the real values [lo, hi] of a NARROW input, and the plan of the
    operator's own output, the interval beyond which the output stays what it is at its end, so that the input may
    saturate there; None where all of them matter.
    why_one_scale: what it does to NARROW inputs for which they need one scale, as a note has it. grid: of a quantizer
    with a GRID input, the integers to which it rounds that. resolution: of a quantizer with a WIDE input, the scale
    that tells its levels well apart, 0 for none. trained_form: the form of the output that trained quantization gives,
    by those of the inputs; None where it gives none. defers_rounding: whether it takes its data as it is where what
    reads it rounds or adds it up, in a network that brings quantizers; moves: whether it does so in any network, since
    it only moves or selects elements. See `deferring`.
    """

    expand: Expand[Any]
    demands: Demands[Any]
    guard_bits: int = 0
    gain: Factor[Any] = lambda symbol, graph: 1.0
    adds_constant: bool = False
    reach: Reach[Any] | None = None
    why_one_scale: str = "does not keep their channels apart"
    grid: Grid[Any] = no_grid
    trained_form: TrainedForm[Any] = kept_target
    resolution: Factor[Any] = lambda symbol, graph: 0.0
    defers_rounding: Defers[Any] = lambda symbol: False
    moves: bool = False


_EXPANSIONS: ByRecord[Expansion] = ByRecord("expansion", "expansions")


def all_inputs(demand: Demand) -> Demands[Operator]:
    """The same demand for every input."""
    return lambda symbol, graph: (demand,) * len(symbol.inputs)


def expansion(
    *records: type[_Record],
    demands: Demands[_Record] | Demand = Demand.NARROW,
    guard_bits: int = 0,
    gain: Factor[_Record] = Expansion.gain,
    adds_constant: bool = False,
    reach: Reach[_Record] | None = None,
    why_one_scale: str = Expansion.why_one_scale,
    grid: Grid[_Record] = no_grid,
    trained_form: TrainedForm[_Record] = kept_target,
    resolution: Factor[_Record] = Expansion.resolution,
    defers_rounding: Defers[_Record] | None = None,
    moves: bool = False,
) -> Callable[[Expand[_Record]], Expand[_Record]]:
    """Registers a function as the expansion of the operators of `records`, and of records derived from these that have
    none of their own. The other arguments are those of `Expansion`."""

    def register(function: Expand[_Record]) -> Expand[_Record]:
        wanted = all_inputs(demands) if isinstance(demands, Demand) else demands
        made = Expansion(
            function,
            wanted if defers_rounding is None else _deferred(wanted, defers_rounding),
            guard_bits,
            gain,
            adds_constant,
            reach,
            why_one_scale,
            grid,
            trained_form,
            resolution,
            defers_rounding or Expansion.defers_rounding,
            moves,
        )
        for record in records:
            _EXPANSIONS.add(record, made)
        return function

    return register


def _integers_of_integers(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Y = f(X), the same operator on the same integers, at scale 1 as inputs of integers are, in int32."""
    operands = []
    for source, value in zip(op.inputs, inputs.values, strict=True):
        if isinstance(value, Quantized):
            given = builder.centred(value).symbol
        else:
            given = builder.constant(source.name, value.astype(np.int64))
        operands.append(builder.cast(given, "int32"))
    return builder.quantized(builder.apply(op.operator, operands), 1.0)


_EXACT = Expansion(_integers_of_integers, all_inputs(Demand.WIDE), gain=lambda symbol, graph: 0.0)


def expansion_of(symbol: Symbol) -> Expansion:
    """The expansion of a symbol's operator; UnsupportedOperatorError if there is none.

    What computes integers of integers alone does so in the integer graph too.
    """
    found = _EXACT if is_exact(symbol) else _EXPANSIONS.find(type(symbol.operator))
    if found is None:
        raise UnsupportedOperatorError(f"{symbol.name} ({symbol.op}) has no integer form")
    return found


def deferring(graph: Graph) -> frozenset[Symbol]:
    """The operators that take their data as it is, since what reads them rounds it or sums it up.

    They are such that move or select values, as between a layer and the sum that it is added to: what moves an
    accumulator need not round it. In a graph that brings quantizers also such that limit values or compare them: these
    round once, and nothing is to be rounded before. Where one of their readers wants narrow integers they take these
    too.
    """
    if graph not in _DEFERRING:
        found: set[Symbol] = set()
        brings = any(expansion_of(symbol).grid is not no_grid for symbol in graph.operators)
        for symbol in reversed(graph.operators):
            readers, expansion = graph.consumers[symbol], expansion_of(symbol)
            defers = expansion.defers_rounding(symbol) and (brings or expansion.moves)
            leaves = symbol in graph.outputs or not readers
            if defers and not leaves and all(_takes_wide(reader, symbol, graph, found) for reader in readers):
                found.add(symbol)
        _DEFERRING[graph] = frozenset(found)
    return _DEFERRING[graph]


_DEFERRING: WeakKeyDictionary[Graph, frozenset[Symbol]] = WeakKeyDictionary()


def _takes_wide(reader: Symbol, symbol: Symbol, graph: Graph, found: set[Symbol]) -> bool:
    expansion = expansion_of(reader)
    if expansion.defers_rounding(reader):
        return reader in found
    wanted = expansion.demands(reader, graph)[reader.inputs.index(symbol)]
    return wanted in (Demand.WIDE, Demand.COMMON, Demand.GRID)


def _deferred(demands: Demands[_Record], defers: Defers[_Record]) -> Demands[_Record]:
    """`demands`, the data as it is for operators that defer rounding."""

    def wanted(symbol: Symbol[_Record], graph: Graph) -> tuple[Demand, ...]:
        found = demands(symbol, graph)
        # `deferring` asks for the demands of those that never do.
        return (Demand.WIDE, *found[1:]) if defers(symbol) and symbol in deferring(graph) else found

    return wanted


def takes_groups(consumer: Symbol, index: int, axis: int) -> bool:
    """Whether input `index`, of demand CHANNELS, is taken in channel groups along its `axis`.

    A layer takes them along the axis that it sums over, any other operator along those that it keeps apart. Axis 0
    counts samples, not channels.
    """
    operator = consumer.operator
    summed = operator.data_channel_axis(consumer.inputs[index].type.rank)
    if axis == 0 or summed is not None:
        return axis == summed != 0
    return operator.kept_axis(axis, index, *(source.type for source in consumer.inputs)) is not None


def group_readers(graph: Graph, symbol: Symbol, axis: int) -> list[Symbol]:
    """The readers of the tensor that take it in channel groups along `axis`."""
    return [
        consumer
        for consumer in dict.fromkeys(graph.consumers[symbol])
        if any(
            source is symbol and demand is Demand.CHANNELS and takes_groups(consumer, index, axis)
            for index, (demand, source) in enumerate(
                zip(expansion_of(consumer).demands(consumer, graph), consumer.inputs, strict=True)
            )
        )
    ]


def expanded_operators() -> frozenset[str]:
    """The names of the operators that have an expansion."""
    return frozenset(record.op for record in registered_operators() if record in _EXPANSIONS)


def check_covered(graph: Graph) -> None:
    """UnsupportedOperatorError listing every operator without an expansion, its count and its first symbols."""
    missing: dict[str, list[str]] = {}
    for symbol in graph.operators:
        if type(symbol.operator) not in _EXPANSIONS and not is_exact(symbol):
            missing.setdefault(symbol.op, []).append(symbol.name)
    if missing:
        raise UnsupportedOperatorError(
            "these operators have no integer form: "
            + "; ".join(f"{op} ({len(names)}: {named(names)})" for op, names in missing.items())
            + f"; they and what follows them may stay float, as postprocessing: {split_option(_first(graph, missing))}"
        )


def _first(graph: Graph, missing: Mapping[str, Sequence[str]]) -> list[str]:
    """Those of the missing symbols in front of which there is none."""
    symbols = [graph.by_name[name] for names in missing.values() for name in names]
    behind = graph.dependents(symbols)
    return [symbol.name for symbol in symbols if behind.isdisjoint(symbol.inputs)]


def named(names: Sequence[str]) -> str:
    """The first three names, for a message."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
