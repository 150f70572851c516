"""Gathers what roundings need of their layers: the moments of what these read and give, over samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mrt.calibration import Calibration
from mrt.calibration.layer_moments import LayerMoments, Moments
from mrt.calibration.moments import ROWS, ROWS_FOR_EACH_INPUT, Reading, gather
from mrt.calibration.stream import places
from mrt.errors import ConfigError
from mrt.quantization.algorithms.algorithm import Rounding, Samples, find_algorithm, float_network
from mrt.quantization.expand import plan_graph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Symbol

MOST_INPUTS = 1152
"""A layer of more inputs an output is cut into runs of at most so many; twice as many where its outputs are fitted."""
MOST_RUNS = 4
"""Runs are at least this part of what they may be: short ones would tell little."""
MULTIPLICATIONS, FITTING = 2**32, 8
"""What the moments of one layer may take; so many times as many where they fit its outputs, which pays at few bits."""
LEAST_SHARE = 0.5
"""A layer is left alone that has fewer positions than this share of a run: they would say too little of it."""
MOST_BYTES, MOST_BYTES_TO_REFINE = 2**29, 2**26
"""What the moments of all layers may take, where some are to fit their outputs and where none is; the smallest come
first. What layers of 8 bits gain is little, and rounding takes a time that grows with their moments."""
Y_STEPS = 2**15
"""Outputs are rounded to steps of at least one part in so many of their largest magnitude: noise at -90 dB or less."""


def with_moments(
    graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples | None = None
) -> Calibration:
    """`observed` with the moments that the roundings of `config` need, of the float network; itself if none does.

    graph: prepared, float. observed: the ranges of all `observed_tensors`. samples: needed where a rounding reads
    moments; ConfigError where they are missing.
    """
    naming = reading_moments(config)
    if not naming:
        return observed
    if samples is None:
        raise ConfigError(f"quantize.weight.rounding is {naming[0]}: calibration data is needed to gather moments from")
    plan = plan_graph(graph, observed.ranges, config).plan
    readings, left_alone = readings_of(plan)
    layers = moments_of_float(graph, readings, samples) if readings else {}
    return replace(observed, moments=Moments(layers, left_alone))


def reading_moments(config: QuantizationConfig) -> tuple[str, ...]:
    """The roundings that `config` names and that need moments."""
    return tuple(name for name in config.roundings if find_algorithm(Rounding, name).reads_moments)


def readings_of(plan: Plan) -> tuple[list[Reading], dict[str, str]]:
    """How the layers whose rounding needs moments are observed; and by name why others are not.

    Left alone is what has no patches, what has too many inputs for MULTIPLICATIONS to give it LEAST_SHARE of them as
    positions, and what exceeds MOST_BYTES.
    """
    found: list[Reading] = []
    left_alone: dict[str, str] = {}
    for layer in plan.graph.operators:
        options = plan.config.weight_of(layer.name)
        rounding = find_algorithm(Rounding, options.rounding)
        if layer.channel_axis is None or not rounding.reads_moments or plan[layer.inputs[1]].constant is not None:
            continue
        if _has_patches(layer):
            found.append(_reading(plan, layer, rounding.crosses(options)))
        else:
            left_alone[layer.name] = "its outputs are sums of different numbers of products"
    room = most = MOST_BYTES if any(reading.crosses for reading in found) else MOST_BYTES_TO_REFINE
    kept = set()
    for reading in sorted(found, key=lambda each: each.bytes):
        inputs = reading.x_steps.shape[1]
        if reading.positions < LEAST_SHARE * inputs:
            left_alone[reading.layer.name] = (
                f"the moments of {reading.x_steps.size} inputs would take more than {MULTIPLICATIONS:.2g} "
                f"multiplications"
            )
        elif reading.bytes > room:
            left_alone[reading.layer.name] = f"the moments of all layers would exceed {most >> 20} MiB"
        else:
            room -= reading.bytes
            kept.add(reading.layer.name)
    return [reading for reading in found if reading.layer.name in kept], left_alone


def corrections_from_moments(moments: LayerMoments, rows: Array) -> Array:
    """What a layer's real output lacks in the mean, float64 (O,): E[y] - W E[x].

    rows: what the integer weights stand for, output channels first, (O, I, ...).
    """
    means = np.matmul(moments.x_mean[:, None], moments.by_part(rows.reshape(len(rows), -1)))
    mean: Array = moments.y_mean - moments.by_output(means).sum(axis=1)
    return mean


def _reading(plan: Plan, layer: Symbol, crosses: bool) -> Reading:
    data = layer.inputs[0]
    target = plan.edge(layer, 0) or plan[data].own
    grid = target.scales(data.shape), target.zero_points(data.shape), target.lo, target.hi
    magnitude = plan[layer].magnitude
    y_step = 2.0 ** math.ceil(math.log2(magnitude / Y_STEPS)) if magnitude > 0 else 1.0
    wide = Reading(layer, *grid, y_step, 1, crosses)
    splits = _splits(wide.x_steps.shape[1], (2 if crosses else 1) * MOST_INPUTS)
    wide = replace(wide, crosses=crosses and splits == 1, splits=splits)
    inputs = wide.x_steps.shape[1]
    affordable = (FITTING if crosses else 1) * MULTIPLICATIONS // (wide.bytes // 8)
    return replace(wide, positions=min(max(ROWS, ROWS_FOR_EACH_INPUT * inputs), affordable))


def _splits(inputs: int, most: int) -> int:
    """Into how few equal runs of at most so many inputs they can be cut; 1 where they are short or cannot."""
    runs = range(-(-inputs // most), MOST_RUNS * -(-inputs // most) + 1)
    return next((count for count in runs if inputs % count == 0), 1)


def _has_patches(layer: Symbol) -> bool:
    data = layer.inputs[0]
    return layer.operator.patches(np.zeros(data.shape, np.int8), np.zeros(0, np.int64)) is not None


def moments_of_float(graph: Graph, readings: Sequence[Reading], samples: Samples) -> dict[str, LayerMoments]:
    """The moments of layers in the float network, what they read rounded to its quantizer."""
    names = dict.fromkeys(name for each in readings for name in (each.layer.inputs[0].name, each.layer.name))
    given = float_network(graph, samples).values(
        [graph.by_name[name] for name in names if not graph.by_name[name].is_variable]
    )
    count, limit = samples.total or _counted(samples), samples.config.samples
    parts = places(samples.batches, graph.inputs, given.batch, limit)
    return gather(readings, parts, given, min(count, limit or count), samples.executor)


def _counted(samples: Samples) -> int:
    """How many samples there are."""
    count = 0
    for batch in (samples.batches,) if isinstance(samples.batches, (Mapping, np.ndarray)) else samples.batches:
        arrays = batch.values() if isinstance(batch, Mapping) else (batch,)
        count += len(next(iter(arrays)))
    return count
