"""The registry of expansions: how each float operator becomes integers, and in which form it wants its inputs."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from mrt.errors import GraphError, QuantizationError, UnsupportedOperatorError
from mrt.quantization.quantized import Quantized
from mrt.symbol import Array, Graph, Symbol

if TYPE_CHECKING:
    from mrt.quantization.builder import IntegerBuilder
    from mrt.quantization.plan import ScalePlan


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


Expand = Callable[[Symbol, Inputs, "ScalePlan", "IntegerBuilder"], Quantized]
Demands = Callable[[Symbol, Graph], tuple[Demand, ...]]
Reach = Callable[[Symbol, "ScalePlan", float, float], tuple[float, float]]


@dataclass(frozen=True)
class Expansion:
    """How one operator becomes integers.

    expand: makes the integer symbols. demands: the form of each input. guard_bits: how much finer than the next
    consumer's scale the COMMON scale is. gain: the factor by which a WIDE input's scale is multiplied on its way
    through, for operators that pass an accumulator on. adds_constant: whether a constant operand joins the accumulator
    at its own scale, as a bias does. reach: of the real values [lo, hi] of a NARROW input, the interval beyond which
    the output stays what it is at its end, so that the input may saturate there; None where all of them matter.
    mixes: what it does to NARROW inputs for which they need one scale, as a note has it.
    """

    expand: Expand
    demands: Demands
    guard_bits: int = 0
    gain: Callable[[Symbol, Graph], float] = lambda symbol, graph: 1.0
    adds_constant: bool = False
    reach: Reach | None = None
    mixes: str = "does not keep their channels apart"


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
) -> Callable[[Expand], Expand]:
    """Registers a function as the expansion of the operators `ops`."""

    def register(function: Expand) -> Expand:
        wanted = all_inputs(demands) if isinstance(demands, Demand) else demands
        for op in ops:
            if op in _EXPANSIONS:
                raise GraphError(f"operator {op} has two expansions")
            _EXPANSIONS[op] = Expansion(function, wanted, guard_bits, gain, adds_constant, reach, mixes)
        return function

    return register


def expansion_of(symbol: Symbol) -> Expansion:
    """The expansion of a symbol's operator; UnsupportedOperatorError if there is none."""
    load_plugins()
    try:
        return _EXPANSIONS[symbol.op]
    except KeyError:
        raise UnsupportedOperatorError(f"{symbol.name} ({symbol.op}) has no integer form") from None


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
