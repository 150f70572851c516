"""The float network with a rounding at every place where its integer form rounds a tensor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from mrt.quantization.demand import Demand
from mrt.quantization.expansion import expansion_of
from mrt.quantization.quantizer import Target
from mrt.quantization.tensor_plan import Edge, Plan
from mrt.symbol import Array, Graph, Symbol, TensorType
from mrt.symbol.builder import GraphBuilder, part_of
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.round_to_grid import NUMBERS, RoundToGrid
from mrt.symbol.rebatch import sized

UNROUNDED = 2.0**-40
"""The step, as a share of a tensor's range, of a grid that is finer than float32."""


@dataclass(frozen=True, eq=False)
class Site:
    """A place where a tensor is rounded.

    name: of the input that is its grid, (NUMBERS, 1) or (NUMBERS, channels). edge: a reader that takes it so; None
    where the graph gives it. decided_by: the tensor whose bits decide how fine the grid is. axis: that counts channels.
    """

    name: str
    tensor: Symbol
    edge: Edge | None
    decided_by: str
    axis: int
    channels: int

    def grid(self, plan: Plan, finer: int = 0) -> Array:
        """The grid that a plan of the same graph asks for. finer: how many bits more it has.

        It does not end where a reader's function becomes flat at the grid of what that gives, as the quantizer does
        (`TensorPlan.used`): a trial may leave that finer, or exact.
        """
        target = self._target(plan)
        if target is None:
            raise ValueError(f"{self.tensor.name}: the plan does not round it")
        planned, parts, rows = plan[self.tensor], 2**finer, []
        for one in target.channel_targets(self.channels):
            lo, hi = float(one.lo - one.zero_point), float(one.hi - one.zero_point)
            if self.edge is not None and planned.covers_part:
                lo, hi = min(lo, planned.range.lo / one.scale), max(hi, planned.range.hi / one.scale)
            rows.append((parts / one.scale, np.floor(parts * lo), np.ceil(parts * hi), one.scale / parts))
        return np.array(rows, np.float32).T.copy()

    def unrounded(self, plan: Plan) -> Array:
        """A grid that changes nothing."""
        target = self._target(plan)
        reach = 1.0 if target is None else max(map(abs, target.real_range))
        step = max(reach * UNROUNDED, float(np.finfo(np.float32).tiny))
        everything = float(np.finfo(np.float32).max)
        numbers = np.array([[1 / step], [-everything], [everything], [step]], np.float32)
        return np.repeat(numbers, self.channels, axis=1)

    def _target(self, plan: Plan) -> Target | None:
        planned = plan[self.tensor]
        return planned.output if self.edge is None else planned.edges[self.edge]


@dataclass(frozen=True, eq=False)
class RoundedGraph:
    """graph: its inputs are those of the network, the grids of `sites`, corrections named by `corrected`, and `gates`.

    weights: what makes the parameters that stand for weights, by their names. In the graph these are zeros that take no
    memory, so that no more than a part of it has real ones at a time. corrected: by the name of a reduction, the input
    that is added to its output, (1, O, 1, …). gates: by that name, the input that says how much of the rounding of its
    weight shows, (1, …): 0 nothing, 1 all. others: by that name and the number of another weight, the input that says
    how much of it shows instead.
    """

    graph: Graph
    weights: Mapping[str, Callable[[], Array]]
    sites: tuple[Site, ...]
    corrected: Mapping[str, Symbol]
    gates: Mapping[str, Symbol]
    others: Mapping[tuple[str, int], Symbol] = field(default_factory=dict)

    def part(self, inputs: Collection[Symbol], outputs: Sequence[Symbol]) -> Graph:
        """The part of the graph from `inputs` to `outputs`, with its weights."""
        return part_of(inputs, outputs, self._value)

    def _value(self, symbol: Symbol) -> Array | None:
        make = self.weights.get(symbol.name)
        return self.graph.value(symbol) if make is None else make()


OtherWeights = Mapping[str, Sequence[Array]]
"""By the name of a reduction, what may stand for its weight instead."""


def rounded_graph(
    plan: Plan, batch: int, weights: Mapping[str, Array], has_gates: bool = False, others: OtherWeights | None = None
) -> RoundedGraph:
    """The planned network for `batch` samples at once, or as many as it bakes in; its outputs are `measured` ones.

    weights: by the name of a reduction, what is to stand for its weight. has_gates: whether each of these can be turned
    off, for which a reduction does twice the work: f(x, W) + gate f(x, W' - W), f being linear in the weight. others:
    weights that a trial may choose for some of these; each of them is as much work once more.
    """
    return _Rounding(plan, sized(plan.graph, batch), weights, has_gates, others or {}).made()


def measured(graph: Graph) -> tuple[Symbol, ...]:
    """The float tensors whose errors are the network's: its outputs, and instead of a Concat's its parts.

    A part that is small, such as scores beside boxes, would not be seen in the whole. Instead of an output of integers,
    or of elements in their order, there are the floats from which it follows.
    """
    found: dict[Symbol, None] = {}
    pending = list(reversed(graph.outputs))
    while pending:
        symbol = pending.pop()
        parts = [source for source in symbol.inputs if graph.value(source) is None]
        is_seen_before = not symbol.type.is_float or symbol.operator.compares_elements
        if _joins(symbol) or (symbol.operator.keeps_scale and _joins(root_of(symbol))) or is_seen_before:
            pending += reversed(parts)
        elif graph.value(symbol) is None:
            found[symbol] = None
    return tuple(found)


def _joins(symbol: Symbol) -> bool:
    return len(symbol.inputs) > 1 and symbol.operator.joined_axis(symbol.type.rank) is not None


class _Rounding:
    """Makes the rounded graph."""

    def __init__(
        self, plan: Plan, graph: Graph, weights: Mapping[str, Array], has_gates: bool, others: OtherWeights
    ) -> None:
        self._others, self._other_gates = others, dict[tuple[str, int], Symbol]()
        self._plan, self._graph, self._weights, self._has_gates = plan, graph, weights, has_gates
        self._builder = GraphBuilder(reserved=graph.by_name)
        self._new: dict[Symbol, Symbol] = {}
        self._sites: dict[tuple[Symbol, Target], tuple[Site, Symbol]] = {}
        self._made: dict[str, Callable[[], Array]] = {}
        self._corrected: dict[str, Symbol] = {}
        self._gates: dict[str, Symbol] = {}

    def made(self) -> RoundedGraph:
        graph, builder = self._graph, self._builder
        for symbol in graph.inputs:
            self._new[symbol] = builder.adopt_input(symbol)
        for symbol in graph.symbols:
            if symbol not in self._new:
                self._new[symbol] = self._symbol(symbol)
        given = set(graph.outputs)
        outputs = [self._output(s) if s in given else self._new[s] for s in measured(graph)]
        sites = tuple(site for site, _ in self._sites.values())
        inputs = self._corrected, self._gates, self._other_gates
        return RoundedGraph(builder.graph(outputs), self._made, sites, *inputs)

    def _symbol(self, symbol: Symbol) -> Symbol:
        if symbol.is_variable:
            return self._builder.adopt(symbol, self._graph.value(symbol))
        inputs = [self._read(symbol, index) for index in range(len(symbol.inputs))]
        if symbol.name in self._weights and not self._has_gates:
            inputs[1] = self._weight(f"{symbol.name}_rounded_weight", symbol, lambda: self._weights[symbol.name])
        made = self._builder.apply(symbol.operator, inputs, symbol.name, symbol.origin)
        if symbol.name in self._weights and self._has_gates:
            made = self._with_gate(symbol, inputs[0], made)
        made = self._with_others(symbol, inputs[0], made) if symbol.name in self._others else made
        return made if symbol.channel_axis is None else self._with_correction(symbol, made)

    def _with_gate(self, reduction: Symbol, data: Symbol, exact: Symbol) -> Symbol:
        name, builder = reduction.name, self._builder
        exact_weight = self._graph.parameters[reduction.inputs[1].name]
        weight = self._weight(
            f"{name}_weight_error", reduction, lambda: self._weights[name] - exact_weight.astype(np.float64)
        )
        self._gates[name] = gate = self._input(f"{name}_gate", (1,) * reduction.type.rank)
        error = builder.apply(reduction.operator, [data, weight], f"{name}_error")
        shown = builder.apply(BroadcastMul(), [error, gate], f"{name}_gated_error")
        return builder.apply(ElemwiseAdd(), [exact, shown], f"{name}_gated")

    def _weight(self, name: str, reduction: Symbol, make: Callable[[], Array]) -> Symbol:
        kind = reduction.inputs[1].type
        symbol = self._builder.parameter(name, np.broadcast_to(np.zeros((), kind.dtype), kind.shape))
        self._made[symbol.name] = lambda: make().astype(kind.dtype)
        return symbol

    def _with_others(self, reduction: Symbol, data: Symbol, made: Symbol) -> Symbol:
        """f(x, W') + the sum over other weights V of gate f(x, V - W')."""
        name, builder = reduction.name, self._builder
        for number, other in enumerate(self._others[name]):
            weight = self._weight(
                f"{name}_other_weight_{number}", reduction, partial(self._difference, other, reduction.name)
            )
            gate = self._input(f"{name}_other_gate_{number}", (1,) * reduction.type.rank)
            self._other_gates[name, number] = gate
            difference = builder.apply(reduction.operator, [data, weight], f"{name}_other_{number}")
            shown = builder.apply(BroadcastMul(), [difference, gate], f"{name}_gated_other_{number}")
            made = builder.apply(ElemwiseAdd(), [made, shown], f"{name}_with_other_{number}")
        return made

    def _difference(self, other: Array, name: str) -> Array:
        return other - self._weights[name]

    def _with_correction(self, reduction: Symbol, made: Symbol) -> Symbol:
        axis = reduction.channel_axis
        shape = tuple(length if place == axis else 1 for place, length in enumerate(reduction.shape))
        self._corrected[reduction.name] = correction = self._input(f"{reduction.name}_correction", shape)
        return self._builder.apply(BroadcastAdd(), [made, correction], f"{reduction.name}_corrected")

    def _read(self, reader: Symbol, index: int) -> Symbol:
        source = reader.inputs[index]
        if self._graph.value(source) is not None or not source.type.is_float:
            return self._new[source]
        target = self._plan.tensors[source.name].edges[reader.name, index]
        if target is None:
            return self._new[source]
        demand = expansion_of(reader).demands(reader, self._graph)[index]
        decided_by = reader if demand in (Demand.OUTPUT, Demand.COMMON) else source
        return self._rounded(source, target, (reader.name, index), decided_by)

    def _output(self, symbol: Symbol) -> Symbol:
        return self._rounded(symbol, self._plan.tensors[symbol.name].output, None, symbol)

    def _rounded(self, source: Symbol, target: Target, edge: Edge | None, decided_by: Symbol) -> Symbol:
        key = (source, target)
        if key not in self._sites:
            axis = 1 if target.groups is None else target.groups.axis
            channels = 1 if target.groups is None else source.shape[axis]
            grid = self._input(f"{source.name}_grid_{len(self._sites)}", (NUMBERS, channels))
            site = Site(grid.name, source, edge, root_of(decided_by).name, axis, channels)
            rounded = self._builder.apply(RoundToGrid(axis), [self._new[source], grid], f"{source.name}_rounded")
            self._sites[key] = site, rounded
        return self._sites[key][1]

    def _input(self, name: str, shape: tuple[int, ...]) -> Symbol:
        while name in self._graph.by_name:
            name += "_"
        return self._builder.input(name, TensorType(shape, "float32"))


def root_of(symbol: Symbol) -> Symbol:
    """The tensor whose quantizer a tensor that only holds values of another follows."""
    while symbol.operator.keeps_scale and not symbol.is_variable:
        symbol = symbol.inputs[0]
    return symbol
