"""How much of the error at a network's outputs each weight and each tensor causes at each width, alone.

Tensors are rounded by the simulation (`mrt/quantization/simulation`), one at a time. For weights the float network is
compiled once more, each layer adding its data times the rounding error of its weight, by a factor that is fed. Errors
of different items are nearly independent, so that their energies add up where all are rounded together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.calibration import Calibration
from mrt.execution import Program
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.expand import plan_graph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.quantizer import largest
from mrt.quantization.simulation.rounded_graph import measured
from mrt.quantization.simulation.simulation import Simulation, Trial
from mrt.quantization.tensor_plan import Plan
from mrt.search.space import WIDTHS, Item, Key, Space
from mrt.symbol import Array, Graph, Symbol, TensorType
from mrt.symbol.builder import GraphBuilder, rewrite_graph
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.rebatch import batch_of, sized

Sensitivity = Mapping[Key, Mapping[int, float]]
"""By item and bits: the energy of the error at the outputs, over that of the outputs."""

REFERENCE = 4
"""The bits of the rounding error of weights that is compiled; that of other widths is a multiple of it."""
WORK = 2e11
"""Multiplications that the measurement of tensors, and that of weights, may take: it bounds their samples."""
MOST_SAMPLES, LEAST_SAMPLES = 32, 2


def measure_sensitivity(
    graph: Graph,
    observed: Calibration,
    config: QuantizationConfig,
    space: Space,
    samples: Samples,
    progress: Callable[[int], None] | None = None,
) -> Sensitivity:
    """The sensitivity of every item to every width of WIDTHS.

    graph: prepared, float. config: whatever bits it gives items. samples: those that calibrate. progress: told the
    number of items done.
    """
    tell = progress or (lambda done: None)
    config = space.with_widths(config, {})
    plan = plan_graph(graph, observed.ranges, config).plan
    weights = [item for item in space.items if item.kind == "weight"]
    tensors = [item for item in space.items if item.kind == "activation"]
    found: dict[Key, Mapping[int, float]] = {}
    if weights:
        found |= _of_weights(plan.graph, weights, samples, _most(space, len(weights)))
    tell(len(weights))
    if tensors:
        simulation = Simulation(plan, {}, samples)
        plans = {bits: _plan(graph, observed, config, bits) for bits in WIDTHS["activation"]}
        most = _most(space, len(tensors) * len(plans))
        for done, item in enumerate(tensors):
            found[item.key] = _of_tensor(simulation, item, plans, most)
            tell(len(weights) + done + 1)
    return found


def _most(space: Space, runs: int) -> int:
    """How many samples are taken, so that so many runs stay within WORK."""
    return int(np.clip(WORK / max(2 * space.multiplications * runs, 1), LEAST_SAMPLES, MOST_SAMPLES))


def _plan(graph: Graph, observed: Calibration, config: QuantizationConfig, bits: int) -> Plan:
    """The plan where all tensors have so many bits."""
    changed = config.model_copy(update={"activation": config.activation.model_copy(update={"bits": bits})})
    return plan_graph(graph, observed.ranges, changed).plan


def _of_tensor(simulation: Simulation, item: Item, plans: Mapping[int, Plan], most: int) -> dict[int, float]:
    names = frozenset(s.name for s in simulation.sites if s.edge is not None and s.decided_by == item.name)
    trials = [Trial(names, plan=plan, samples=most) for plan in plans.values()]
    return dict(zip(plans, simulation.errors(trials, Trial(frozenset())), strict=True))


def _of_weights(graph: Graph, items: Sequence[Item], samples: Samples, most: int) -> dict[Key, Mapping[int, float]]:
    """graph: that of the plan."""
    weights = {item.name: _weight(graph, item.name) for item in items}
    axes = {name: graph.by_name[name].operator.weight_channel_axis or 0 for name in weights}
    moved = _moved(graph.with_outputs(measured(graph)), weights, axes)
    batch, program = batch_of(moved), Program(moved, samples.runner)
    feeds = _first(samples, max(most // batch, 1) * batch)
    exact = _Moved(feeds, tuple(weights), batch).outputs("", program)
    signals = [_energy(value) for value in exact]
    work = _Moved(feeds, tuple(weights), batch, exact)
    found: dict[Key, Mapping[int, float]] = {}
    energies = samples.executor.in_order(work, [item.name for item in items], (program,))
    for item, off in zip(items, energies, strict=True):
        errors = [energy / s for energy, s in zip(off, signals, strict=True) if s > 0]
        alone = float(np.mean(errors)) if errors else 0.0
        rounded = {b: rounding_error(weights[item.name], axes[item.name], b) for b in WIDTHS["weight"]}
        compiled = _energy(rounded[REFERENCE])
        found[item.key] = {b: alone * _energy(e) / compiled if compiled else 0.0 for b, e in rounded.items()}
    return found


def _moved(graph: Graph, weights: Mapping[str, Array], axes: Mapping[str, int]) -> Graph:
    """The network with layers that add what the rounding error of their weights gives, times factors that are fed."""

    def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        if symbol.name not in weights:
            return None
        error = rounding_error(weights[symbol.name], axes[symbol.name], REFERENCE)
        value = builder.parameter(f"{symbol.name}/error", error.astype(symbol.inputs[1].dtype))
        result = builder.apply(symbol.operator, inputs, symbol.name, symbol.origin)
        moved = builder.apply(symbol.operator, (inputs[0], value, *inputs[2:]), f"{symbol.name}/moved")
        factor = builder.input(_factor(symbol.name), TensorType((1,), "float32"))
        return builder.apply(BroadcastAdd(), (result, builder.apply(BroadcastMul(), (moved, factor))))

    return rewrite_graph(sized(graph, 1), rewrite)


@dataclass(frozen=True, eq=False)
class _Moved:
    """Moves the weight of one layer at a time, and tells by which energy each output is then off `exact`.

    feeds: all samples, by input name. layers: those that may be moved. batch: of the program, what `_moved` gives.
    """

    feeds: Mapping[str, Array]
    layers: tuple[str, ...]
    batch: int
    exact: Sequence[Array] = ()

    def __call__(self, layer: str, program: Program) -> list[float]:
        return [_energy(f - q) for f, q in zip(self.exact, self.outputs(layer, program), strict=True)]

    def outputs(self, layer: str, program: Program) -> list[Array]:
        """Of all samples."""
        fed = {_factor(name): np.full(1, float(name == layer), np.float32) for name in self.layers}
        count = len(next(iter(self.feeds.values())))
        parts = [
            [np.array(value) for value in program({**{n: x[k : k + self.batch] for n, x in self.feeds.items()}, **fed})]
            for k in range(0, count, self.batch)
        ]
        return [np.concatenate([np.atleast_1d(value) for value in values]) for values in zip(*parts, strict=True)]


def _first(samples: Samples, most: int) -> dict[str, Array]:
    """The first samples that calibrate, by input name; at most so many."""
    limit = most if samples.config.samples is None else min(most, samples.config.samples)
    parts: list[Mapping[str, Array]] = []
    for part in samples.batches:
        parts.append(part if isinstance(part, Mapping) else {"": part})
        if sum(len(next(iter(each.values()))) for each in parts) >= limit:
            break
    return {name: np.concatenate([part[name] for part in parts])[:limit] for name in parts[0]}


def _weight(graph: Graph, layer: str) -> Array:
    value = graph.value(graph.by_name[layer].inputs[1])
    if value is None:
        raise ValueError(f"{layer} has no weight that is a parameter")
    return value


def rounding_error(weight: Array, axis: int, bits: int) -> Array:
    """What rounding to the nearest takes from a weight, float64; symmetric, one scale for each place of `axis`."""
    values = weight.astype(np.float64)
    others = tuple(k for k in range(values.ndim) if k != axis)
    top = largest(bits)
    step = np.abs(values).max(axis=others, keepdims=True, initial=0.0) / top
    safe = np.where(step > 0, step, 1.0)
    error: Array = np.clip(np.rint(values / safe), -top, top) * safe - values
    return error


def _energy(values: Array) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def _factor(layer: str) -> str:
    return f"{layer}/factor"
