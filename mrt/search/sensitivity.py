"""How much of the error at a network's outputs each weight and each tensor causes at each width, alone.

The float network is compiled once in a form whose errors are fed: every item's tensors are rounded at scales that are
inputs, and every layer adds its data times a rounding error of its weight, by a factor that is an input. Errors of
different items are nearly independent, so that their energies add up where all are rounded together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.calibration import Range
from mrt.quantization.expand import plan_graph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.quantizer import Target, largest
from mrt.search.metric import energies
from mrt.search.space import WIDTHS, Item, Key, Kind
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
    def exact(magnitude: float) -> _Grid:
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
    plans = {bits: _own_targets(graph, ranges, config, bits) for bits in WIDTHS["activation"]}
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


def _own_targets(
    graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig, bits: int
) -> Mapping[str, Target]:
    """The quantizer of every tensor where all have so many bits."""
    changed = config.model_copy(update={"activation": config.activation.model_copy(update={"bits": bits})})
    return {name: tensor.own for name, tensor in plan_graph(graph, ranges, changed).plan.tensors.items()}


class _Simulation:
    """The float network with the errors of its items fed."""

    def __init__(
        self, graph: Graph, items: Sequence[Item], plans: Mapping[int, Mapping[str, Target]], runner: Runner
    ) -> None:
        self.batch = batch_of(graph)
        self._plans = plans
        tensors = {name for item in items if item.kind == "activation" for name in item.members}
        self._exact = {name: _Grid.exact(plans[16][name].real_range[1]) for name in sorted(tensors)}
        self._members = {item.key: item.members for item in items}
        self._weights = {item.name: graph.parameters[item.members[0]] for item in items if item.kind == "weight"}
        axes = {name: graph.by_name[name].operator.weight_channel_axis for name in self._weights}
        self._axes = {name: 0 if axis is None else axis for name, axis in axes.items()}
        self._evaluate: Evaluate = runner.prepare(self._graph(graph, tensors))

    def run(self, feeds: Mapping[str, Array], widths: Mapping[Key, int]) -> list[Array]:
        """The outputs where the items of `widths` are rounded, and no other."""
        grids = dict(self._exact)
        factors = dict.fromkeys(self._weights, 0.0)
        for (kind, name), bits in widths.items():
            if kind == "weight":
                factors[name] = self._factor(name, bits)
            else:
                grids |= {member: _Grid.of(self._plans[bits][member]) for member in self._members[kind, name]}
        fed = {name: np.full(1, factor, np.float32) for name, factor in _named(factors).items()}
        for name, grid in grids.items():
            fed |= grid.feeds(name)
        return [np.array(output) for output in self._evaluate({**feeds, **fed})]

    def _factor(self, name: str, bits: int) -> float:
        """The error of the weight at `bits` over that which is compiled, by their root mean squares."""
        weight, axis = self._weights[name], self._axes[name]
        errors = [float(np.square(rounding_error(weight, axis, b)).mean()) for b in (bits, REFERENCE)]
        return float(np.sqrt(errors[0] / errors[1])) if errors[1] else 0.0

    def _graph(self, graph: Graph, tensors: Iterable[str]) -> Graph:
        rounded = frozenset(tensors)
        made: dict[str, Symbol] = {}

        def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol:
            read = tuple(
                _rounded(builder, source, old.name, made) if old.name in rounded else source
                for old, source in zip(symbol.inputs, inputs, strict=True)
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


def _rounded(builder: GraphBuilder, source: Symbol, name: str, made: dict[str, Symbol]) -> Symbol:
    """`source` rounded as is fed, once for all that read it."""
    if name not in made:
        inverse, lo, hi, scale = (builder.input(f"{name}/{part}", TensorType((1,), "float32")) for part in _PARTS)
        steps = builder.apply(RoundHalfEven(), (builder.apply(BroadcastMul(), (source, inverse)),))
        beyond = builder.apply(Relu(), (builder.apply(BroadcastSub(), (steps, hi)),))
        below = builder.apply(Relu(), (builder.apply(BroadcastSub(), (lo, steps)),))
        held = builder.apply(BroadcastAdd(), (builder.apply(BroadcastSub(), (steps, beyond)), below))
        made[name] = builder.apply(BroadcastMul(), (held, scale))
    return made[name]


def rounding_error(weight: Array, axis: int, bits: int) -> Array:
    """What rounding to the nearest takes from a weight, float64; symmetric, one scale for each place of `axis`."""
    values = weight.astype(np.float64)
    others = tuple(k for k in range(values.ndim) if k != axis)
    top = largest(bits)
    step = np.abs(values).max(axis=others, keepdims=True, initial=0.0) / top
    safe = np.where(step > 0, step, 1.0)
    error: Array = np.clip(np.rint(values / safe), -top, top) * safe - values
    return error


def _named(factors: Mapping[str, float]) -> dict[str, float]:
    return {_factor_name(name): factor for name, factor in factors.items()}


def _factor_name(layer: str) -> str:
    return f"{layer}/factor"


__all__ = ["Kind", "Sensitivity", "measure_sensitivity", "rounding_error"]
