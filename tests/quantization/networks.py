"""Small float networks and a way to quantize them without a compiler, for the tests of quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from mrt.calibration import Range
from mrt.quantization.expand import expand_planned, plan_graph
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.channels import channel_axes
from mrt.symbol.interval import Interval


def chain(shape: Sequence[int], *steps: tuple[Operator, Sequence[Array]]) -> Graph:
    """Operators one after the other, each with its parameters behind the data input."""
    builder = GraphBuilder()
    symbol: Symbol = builder.input("x", TensorType(tuple(shape)))
    for index, (operator, parameters) in enumerate(steps):
        extra = [builder.parameter(f"p{index}_{k}", np.asarray(p, np.float32)) for k, p in enumerate(parameters)]
        symbol = builder.apply(operator, [symbol, *extra], f"s{index}")
    return builder.graph([symbol])


@dataclass(frozen=True)
class Outcome:
    """A quantized network run on the samples that calibrated it."""

    integer: IntegerGraph
    real: list[list[Array]]
    """Per sample, the float outputs."""
    approximate: list[list[Array]]
    """Per sample, the dequantized integer outputs."""
    plan: Plan
    """By which the integers were made."""

    @property
    def worst_steps(self) -> float:
        """The largest error of any output element, in steps of that output."""
        return max(
            float(np.abs(a - r).max()) / q.step
            for rs, qs in zip(self.real, self.approximate, strict=True)
            for r, a, q in zip(rs, qs, self.integer.outputs, strict=True)
        )

    @property
    def relative_error(self) -> float:
        """The largest error over the largest magnitude, of the worst output."""
        worst = 0.0
        for k in range(len(self.integer.outputs)):
            real = np.stack([sample[k] for sample in self.real])
            close = np.stack([sample[k] for sample in self.approximate])
            worst = max(worst, float(np.abs(real - close).max() / max(np.abs(real).max(), 1e-30)))
        return worst


def observe(graph: Graph, samples: Sequence[dict[str, Array]]) -> dict[str, Range]:
    """Exact minima and maxima of every tensor and of its channels over the samples, by NumPy."""
    axes = channel_axes(graph)
    seen: dict[str, list[Array]] = {}
    for feeds in samples:
        values = {symbol.name: value for symbol, value in graph.walk(feeds)} | feeds
        for name, value in values.items():
            seen.setdefault(name, []).append(value)
    found = {}
    for name, arrays in seen.items():
        values = np.stack(arrays)
        channels: tuple[tuple[float, float], ...] = ()
        if axes.get(name, 0) > 0:
            split = np.moveaxis(values, axes[name] + 1, 0).reshape(values.shape[axes[name] + 1], -1)
            channels = tuple(zip(split.min(axis=1).tolist(), split.max(axis=1).tolist(), strict=True))
        found[name] = Range(float(values.min()), float(values.max()), channels)
    return found


def like_channels(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges as if every channel had the range of its tensor."""
    axes, found = channel_axes(graph), {}
    for name, whole in ranges.items():
        count = graph.by_name[name].shape[axes[name]] if axes.get(name, 0) > 0 else 0
        found[name] = replace(whole, channels=((whole.lo, whole.hi),) * count)
    return found


_PROVEN: WeakKeyDictionary[Graph, dict[str, Interval]] = WeakKeyDictionary()


def proven_bounds(integer: IntegerGraph) -> dict[str, Interval]:
    """The bounds of every tensor by name, derived once for each graph."""
    if integer.graph not in _PROVEN:
        intervals = {s.name: Interval.of(t.lo, t.hi, s.shape) for s, t in integer.inputs}
        _PROVEN[integer.graph] = analyse_bounds(integer.graph, intervals)
    return _PROVEN[integer.graph]


def quantize_and_run(
    graph: Graph,
    samples: Sequence[dict[str, Array]],
    config: QuantizationConfig | None = None,
    observed: Mapping[str, Range] | None = None,
) -> Outcome:
    """Quantizes `graph`, runs both forms on `samples`, and checks that bounds are sound.

    observed: the ranges, by default those of the samples.
    """
    ranges = observe(graph, samples) if observed is None else observed
    planned = plan_graph(graph, ranges, config or QuantizationConfig())
    integer = expand_planned(planned, {})
    bounds = proven_bounds(integer)
    real, approximate = [], []
    for feeds in samples:
        integers = {
            s.name: np.clip(np.rint(feeds[s.name] / np.float32(t.scale)) + t.zero_point, t.lo, t.hi).astype(s.dtype)
            for s, t in integer.inputs
        }
        values = {}
        for symbol, value in integer.graph.walk(integers):
            interval = bounds[symbol.name]
            assert (value >= interval.lo).all() and (value <= interval.hi).all(), f"{symbol.name} leaves {interval}"
            assert value.dtype.kind in "iu"
            if symbol in integer.graph.outputs:
                values[symbol] = value
        outputs = [values[symbol] for symbol in integer.graph.outputs]
        real.append(graph.evaluate(feeds))
        approximate.append(
            [q.scale * (y.astype(np.float64) - q.zero_point) for q, y in zip(integer.outputs, outputs, strict=True)]
        )
    return Outcome(integer, real, approximate, planned.plan)


def random_samples(graph: Graph, count: int = 4, seed: int = 0, scale: float = 1.0) -> list[dict[str, Array]]:
    """Normally distributed feeds."""
    rng = np.random.default_rng(seed)
    return [
        {s.name: (scale * rng.standard_normal(s.shape)).astype(np.float32) for s in graph.inputs} for _ in range(count)
    ]
