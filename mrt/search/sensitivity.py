"""How much of the error at a network's outputs each weight and each tensor causes at each width, alone.

The float network is compiled once in a form whose errors are fed: what readers take is rounded at scales that are
inputs, and every layer adds its data times a rounding error of its weight, by a factor that is an input. Errors of
different items are nearly independent, so that their energies add up where all are rounded together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.calibration import Range
from mrt.quantization.expand import plan_graph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.quantizer import Target, largest
from mrt.quantization.tensor_plan import Plan
from mrt.search.metric import energies
from mrt.search.space import WIDTHS, Item, Key
from mrt.symbol import Array, Evaluate, Graph, Runner, Symbol, TensorType
from mrt.symbol.builder import GraphBuilder, rewrite_graph
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.functions import RoundHalfEven
from mrt.symbol.rebatch import batch_of, sized

Sensitivity = Mapping[Key, Mapping[int, float]]
"""By item and bits: the energy of the error at the outputs, over that of the outputs."""

REFERENCE = 4
"""The bits of the rounding error of weights that is compiled; that of other widths is a multiple of it."""
EXACT_BITS = 22
"""A step of 2^-22 of the range is no more than what float32 itself rounds."""
MOST_STEPS = 2.0**23
"""Integers up to twice this are exact in float32."""
MOST_MAGNITUDE = 2.0**60
"""A target without limits reaches further than any tensor."""
WORK = 4e11
"""Multiplications that a measurement may take: it runs on fewer samples where a network has many."""
MOST_SAMPLES, LEAST_SAMPLES = 64, 4


@dataclass(frozen=True)
class _Grid:
    """The rounding of a tensor: clip(round(x / scale), lo, hi) * scale."""

    scale: float
    lo: float
    hi: float

    @staticmethod
    def of(target: Target) -> _Grid:
        target = target.with_one_scale
        return _Grid(target.scale, target.lo - target.zero_point, target.hi - target.zero_point)

    @staticmethod
    def exact(target: Target) -> _Grid:
        """One that changes nothing of what the target holds."""
        target = target.with_one_scale
        magnitude = min(target.scale * target.reach, MOST_MAGNITUDE)
        exponent = np.ceil(np.log2(magnitude)) if magnitude > 0 else 0.0
        return _Grid(float(2.0 ** (exponent - EXACT_BITS)), -MOST_STEPS, MOST_STEPS)

    def feeds(self, name: str) -> dict[str, Array]:
        values = (1 / self.scale, self.lo, self.hi, self.scale)
        return {f"{name}/{part}": np.full(1, value, np.float32) for part, value in zip(_PARTS, values, strict=True)}


_PARTS = ("inverse", "lo", "hi", "scale")


def measure_sensitivity(
    graph: Graph,
    ranges: Mapping[str, Range],
    config: QuantizationConfig,
    items: Sequence[Item],
    samples: Mapping[str, Array],
    runner: Runner,
    progress: Callable[[int], None] | None = None,
) -> Sensitivity:
    """The sensitivity of every item to every width of WIDTHS; of weights also to more bits than those.

    graph: prepared, float. samples: arrays by input name; of the first MOST_SAMPLES as many are taken as WORK allows.
    progress: told the number of items done.
    """
    plans = {bits: _plan(graph, ranges, config, bits) for bits in WIDTHS["activation"]}
    batch = _batch(graph, items, len(next(iter(samples.values()))))
    simulated = _Simulation(sized(graph, batch), items, plans, runner)
    feeds = {name: x[: simulated.batch] for name, x in samples.items()}
    reference = simulated.run(feeds, {})
    signal = float(energies(reference).sum()) or 1.0
    found: dict[Key, dict[int, float]] = {}
    for done, item in enumerate(items):
        found[item.key] = {}
        for bits in WIDTHS[item.kind]:
            outputs = simulated.run(feeds, {item.key: bits})
            noise = energies([f - q for f, q in zip(reference, outputs, strict=True)])
            found[item.key][bits] = float(noise.sum()) / signal
        if progress is not None:
            progress(done + 1)
    return found


def _batch(graph: Graph, items: Sequence[Item], most: int) -> int:
    """How many samples each run takes: none of them twice, and a power of two so that little is compiled."""
    runs = sum(len(WIDTHS[item.kind]) for item in items)
    once = 2 * sum(item.multiplications for item in items if item.kind == "weight") or 1
    wanted = int(np.clip(WORK / (runs * once), LEAST_SAMPLES, MOST_SAMPLES))
    return min(1 << (wanted.bit_length() - 1), most)


def _plan(graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig, bits: int) -> Plan:
    """The plan where all tensors have so many bits."""
    changed = config.model_copy(update={"activation": config.activation.model_copy(update={"bits": bits})})
    return plan_graph(graph, ranges, changed).plan


class _Simulation:
    """The float network with the errors of its items fed."""

    def __init__(self, graph: Graph, items: Sequence[Item], plans: Mapping[int, Plan], runner: Runner) -> None:
        self.batch = batch_of(graph)
        self._plans = plans
        self._sites: dict[tuple[str, int], str] = {}
        self._edges: dict[str, tuple[str, str, int]] = {}
        for tensor, reader, index in (edge for item in items for edge in item.edges):
            name = f"{reader}/{index}"
            self._sites[reader, index] = name
            self._edges[name] = (tensor, reader, index)
        self._exact = {name: _Grid.exact(_target(plans[16], edge)) for name, edge in self._edges.items()}
        self._items = {item.key: item for item in items}
        layers = [item.name for item in items if item.kind == "weight"]
        self._weights = {name: graph.parameters[graph.by_name[name].inputs[1].name] for name in layers}
        axes = {name: graph.by_name[name].operator.weight_channel_axis for name in self._weights}
        self._axes = {name: 0 if axis is None else axis for name, axis in axes.items()}
        self._evaluate: Evaluate = runner.prepare(self._graph(graph))

    def run(self, feeds: Mapping[str, Array], widths: Mapping[Key, int]) -> list[Array]:
        """The outputs where the items of `widths` are rounded, and no other."""
        grids = dict(self._exact)
        factors = dict.fromkeys(self._weights, 0.0)
        for key, bits in widths.items():
            if self._items[key].kind == "weight":
                factors[key[1]] = self._factor(key[1], bits)
            for edge in self._items[key].edges:
                grids[self._sites[edge[1:]]] = _Grid.of(_target(self._plans[bits], edge))
        fed = {_factor_name(name): np.full(1, factor, np.float32) for name, factor in factors.items()}
        for name, grid in grids.items():
            fed |= grid.feeds(name)
        return [np.array(output) for output in self._evaluate({**feeds, **fed})]

    def _factor(self, name: str, bits: int) -> float:
        """The error of the weight at `bits` over that which is compiled, by their root mean squares."""
        weight, axis = self._weights[name], self._axes[name]
        errors = [float(np.square(rounding_error(weight, axis, b)).mean()) for b in (bits, REFERENCE)]
        return float(np.sqrt(errors[0] / errors[1])) if errors[1] else 0.0

    def _graph(self, graph: Graph) -> Graph:
        def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol:
            read = tuple(
                _rounded(builder, source, self._sites[symbol.name, k]) if (symbol.name, k) in self._sites else source
                for k, source in enumerate(inputs)
            )
            result = builder.apply(symbol.operator, read, symbol.name, symbol.origin)
            if symbol.name not in self._weights:
                return result
            error = rounding_error(self._weights[symbol.name], self._axes[symbol.name], REFERENCE)
            value = builder.parameter(f"{symbol.name}/error", error.astype(np.float32))
            moved = builder.apply(symbol.operator, (read[0], value, *read[2:]), f"{symbol.name}/moved")
            factor = builder.input(_factor_name(symbol.name), TensorType((1,), "float32"))
            scaled = builder.apply(BroadcastMul(), (moved, factor))
            return builder.apply(BroadcastAdd(), (result, scaled))

        return rewrite_graph(graph, rewrite)


def _target(plan: Plan, edge: tuple[str, str, int]) -> Target:
    """The form that a reader takes an input in; as it is where a plan of more bits asks for none."""
    tensor, reader, index = edge
    return plan.tensors[tensor].edges[reader, index] or plan.tensors[tensor].own


def _rounded(builder: GraphBuilder, source: Symbol, name: str) -> Symbol:
    """`source` rounded as is fed."""
    inverse, lo, hi, scale = (builder.input(f"{name}/{part}", TensorType((1,), "float32")) for part in _PARTS)
    steps = builder.apply(RoundHalfEven(), (builder.apply(BroadcastMul(), (source, inverse)),))
    beyond = builder.apply(Relu(), (builder.apply(BroadcastSub(), (steps, hi)),))
    below = builder.apply(Relu(), (builder.apply(BroadcastSub(), (lo, steps)),))
    held = builder.apply(BroadcastAdd(), (builder.apply(BroadcastSub(), (steps, beyond)), below))
    return builder.apply(BroadcastMul(), (held, scale))


def rounding_error(weight: Array, axis: int, bits: int) -> Array:
    """What rounding to the nearest takes from a weight, float64; symmetric, one scale for each place of `axis`."""
    values = weight.astype(np.float64)
    others = tuple(k for k in range(values.ndim) if k != axis)
    top = largest(bits)
    step = np.abs(values).max(axis=others, keepdims=True, initial=0.0) / top
    safe = np.where(step > 0, step, 1.0)
    error: Array = np.clip(np.rint(values / safe), -top, top) * safe - values
    return error


def _factor_name(layer: str) -> str:
    return f"{layer}/factor"
