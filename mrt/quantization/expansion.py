"""The registry of expansions: how each float operator becomes integers, and in which form it wants its inputs."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mrt.errors import GraphError, QuantizationError, UnsupportedOperatorError
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import Target
from mrt.symbol import Array, Graph, Symbol

if TYPE_CHECKING:
    from mrt.quantization.integer.builder import IntegerBuilder
    from mrt.quantization.plan.tensor_plan import Plan, TensorPlan


class Demand(enum.Enum):
    """The form in which an operator wants one input."""

    WIDE = "wide"
    """As its producer gives it: any width up to 32 bits, possibly one scale per channel."""
    NARROW = "narrow"
    """At the tensor's own quantizer: the asked bits, one scale."""
    CHANNELS = "channels"
    """As NARROW, with one scale and zero point for each group of channels where the tensor has channel granularity
    along an axis that the operator keeps apart or, a layer, sums over."""
    OUTPUT = "output"
    """At the quantizer of the operator's own output, in channel groups where that has them."""
    COMMON = "common"
    """At the one scale that the plan gives the operator's output."""
    GRID = "grid"
    """At the integers to which the operator, a quantizer of the float graph, rounds."""


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


Expand = Callable[[Symbol, Inputs, "Plan", "IntegerBuilder"], Quantized]
Demands = Callable[[Symbol, Graph], tuple[Demand, ...]]
Reach = Callable[[Symbol, "TensorPlan", float, float], tuple[float, float]]
Grid = Callable[[Symbol, Graph], "Target | None"]
Fixes = Callable[[Symbol, Graph, Sequence["Target | None"]], "Target | None"]


def no_grid(symbol: Symbol, graph: Graph) -> Target | None:
    """That of operators which are no quantizers."""
    return None


def carried_target(symbol: Symbol, graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    """That of the data, for operators whose output holds its values: channel groups lie where these are put."""
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
    operator's own output, the interval beyond which
    the output stays what it is at its end, so that the input may saturate there; None where all of them matter.
    mixes: what it does to NARROW inputs for which they need one scale, as a note has it. grid: of a quantizer with a
    GRID input, the integers to which it rounds that; resolves: of one with a WIDE input, the scale that tells its
    levels well apart, 0 for none. fixes: the form of the output that follows from those of the inputs (None where
    nothing fixes one), where trained quantization has a say in it. waits: whether it takes its data as it is where what
    reads it rounds or adds it up; see `waiting`.
    """

    expand: Expand
    demands: Demands
    guard_bits: int = 0
    gain: Callable[[Symbol, Graph], float] = lambda symbol, graph: 1.0
    adds_constant: bool = False
    reach: Reach | None = None
    mixes: str = "does not keep their channels apart"
    grid: Grid = no_grid
    fixes: Fixes = carried_target
    resolves: Callable[[Symbol, Graph], float] = lambda symbol, graph: 0.0
    waits: Callable[[Symbol], bool] = lambda symbol: False


_EXPANSIONS: dict[str, Expansion] = {}


def all_inputs(demand: Demand) -> Demands:
    """The same demand for every input."""
    return lambda symbol, graph: (demand,) * len(symbol.inputs)


def expansion(
    *ops: str,
    demands: Demands | Demand = Demand.NARROW,
    guard_bits: int = 0,
    gain: Callable[[Symbol, Graph], float] = lambda symbol, graph: 1.0,
    adds_constant: bool = False,
    reach: Reach | None = None,
    mixes: str = Expansion.mixes,
    grid: Grid = no_grid,
    fixes: Fixes = carried_target,
    resolves: Callable[[Symbol, Graph], float] = lambda symbol, graph: 0.0,
    waits: Callable[[Symbol], bool] | None = None,
) -> Callable[[Expand], Expand]:
    """Registers a function as the expansion of the operators `ops`."""

    def register(function: Expand) -> Expand:
        wanted = all_inputs(demands) if isinstance(demands, Demand) else demands
        wanted = wanted if waits is None else _patient(wanted)
        for op in ops:
            if op in _EXPANSIONS:
                raise GraphError(f"operator {op} has two expansions")
            _EXPANSIONS[op] = Expansion(
                function,
                wanted,
                guard_bits,
                gain,
                adds_constant,
                reach,
                mixes,
                grid,
                fixes,
                resolves,
                waits or Expansion.waits,
            )
        return function

    return register


def expansion_of(symbol: Symbol) -> Expansion:
    """The expansion of a symbol's operator; UnsupportedOperatorError if there is none."""
    load_plugins()
    try:
        return _EXPANSIONS[symbol.op]
    except KeyError:
        raise UnsupportedOperatorError(f"{symbol.name} ({symbol.op}) has no integer form") from None


def waiting(graph: Graph) -> frozenset[Symbol]:
    """The operators that take their data as it is, since what reads them rounds it or sums it up.

    They are such that move, select or limit values, in a graph that brings quantizers: these round once, and nothing is
    to be rounded before. Where one of their readers wants narrow integers they take these too.
    """
    if graph not in _WAITING:
        found: set[Symbol] = set()
        if any(expansion_of(symbol).grid is not no_grid for symbol in graph.operators):
            for symbol in reversed(graph.operators):
                readers = graph.consumers[symbol]
                leaves = symbol in graph.outputs or not readers
                if (
                    expansion_of(symbol).waits(symbol)
                    and not leaves
                    and all(_takes_wide(reader, symbol, graph, found) for reader in readers)
                ):
                    found.add(symbol)
        _WAITING[graph] = frozenset(found)
    return _WAITING[graph]


_WAITING: WeakKeyDictionary[Graph, frozenset[Symbol]] = WeakKeyDictionary()


def _takes_wide(reader: Symbol, symbol: Symbol, graph: Graph, found: set[Symbol]) -> bool:
    expansion = expansion_of(reader)
    if expansion.waits(reader):
        return reader in found
    wanted = expansion.demands(reader, graph)[reader.inputs.index(symbol)]
    return wanted in (Demand.WIDE, Demand.COMMON, Demand.GRID)


def _patient(demands: Demands) -> Demands:
    """`demands`, the data as it is for operators that are waiting."""

    def wanted(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
        found = demands(symbol, graph)
        return (Demand.WIDE, *found[1:]) if symbol in waiting(graph) else found

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
    load_plugins()
    return frozenset(_EXPANSIONS)


def check_covered(graph: Graph) -> None:
    """UnsupportedOperatorError listing every operator without an expansion, its count and its first symbols."""
    load_plugins()
    missing: dict[str, list[str]] = {}
    for symbol in graph.operators:
        if symbol.op not in _EXPANSIONS:
            missing.setdefault(symbol.op, []).append(symbol.name)
    if missing:
        raise UnsupportedOperatorError(
            "these operators have no integer form: "
            + "; ".join(f"{op} ({len(names)}: {named(names)})" for op, names in missing.items())
            + "; cut them off with prepare.split where they end the network"
        )


def named(names: Sequence[str]) -> str:
    """The first three names, for a message."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


@cache
def load_plugins() -> None:
    """Imports every package of the entry-point group `mrt.plugins`, `expansions` among them."""
    import expansions  # noqa: F401  (registers on import, also where nothing is installed)

    for point in entry_points(group="mrt.plugins"):
        point.load()
