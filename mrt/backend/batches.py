"""How a batch runs: how many samples go through the network at once, or through each stretch of it, and on which cores.

Of many samples at once weights are read once; of few, what a kernel writes is still in the second cache when the next
one reads it. Mostly tensors become smaller and weights larger on the way through a network, so that its first functions
run sample by sample and its last ones for many. Cores that take whole samples wait for each other once a call; those
that share a kernel, at each of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mrt.backend.fusion.join_branches import join_branches
from mrt.backend.fusion.regions import find_regions
from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import divisors
from mrt.compilation import Target, TargetConfig, parse_target
from mrt.errors import GraphError
from mrt.symbol import Graph, Symbol
from mrt.symbol.rebatch import Rebatch, batch_of

CACHE_BYTES = 1 << 20
"""Of the second cache of a core, where it is not known."""
CALL_BYTES, KERNEL_BYTES = 1 << 19, 1 << 13
"""What goes through the third cache in the time that a call, or one of its kernels, takes by itself."""
STRETCH_BYTES = 1 << 17
"""What another stretch must save of each sample, since its functions are planned and compiled once more."""
FURTHER = 4
"""How many times the second cache holds what stays in the third one beside weights; what is beyond takes twice as
long. On Zen 4 residual sums of 256 x 56 x 56 take 1.6 times as long for 4 samples at once as for one."""
MOST_TOGETHER = 16
"""Samples of one call that runs in stretches: of more, weights are read hardly less often."""
CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2")
"""What Linux tells of a cache that is the second, mostly; those before it hold instructions and data."""


@dataclass(frozen=True)
class BatchPlan:
    """samples: that go through the network at once, of a network that runs in one stretch. workers: how many calls run
    side by side. target: of their code. together: samples of one call, which may run in stretches."""

    samples: int
    workers: int
    target: TargetConfig
    together: int


@dataclass(frozen=True)
class Traffic:
    """Of a function: the bytes of its weights, and those that it reads and writes for each sample."""

    weights: int
    exchanged: int


def plan_batch(graph: Graph, target: Target, given: int | None = None) -> BatchPlan:
    """How a batch runs on `target`: by calls of equal size, of which every core has equally many.

    given: the samples of the batch, where they are more than those of `graph`, which bakes its own in: each call takes
    these, then. By default the batch is that of `graph`.

    Of the sizes that divide the batch, the one is taken by which least goes through the third cache for each sample:
    the weights once a call, if the second cache does not hold them, and what regions read and write, if that of all
    samples of a call is more than it holds. Cores share kernels where the second cache holds all that they take, since
    to hand samples over takes time too, and where the batch does not divide among them.
    """
    config, threads, batch = parse_target(target), Machine.of(target).threads, batch_of(graph)
    if given is not None and given > batch:
        workers = threads if -(-given // batch) % threads == 0 else 1
        return BatchPlan(batch, workers, _of_one_core(config) if workers > 1 else config, batch)
    workers = threads if batch % threads == 0 else 1
    near, regions = second_cache(target) * (threads // workers), _traffic(graph)
    most = batch // workers
    samples = _samples(regions, most, near)
    is_near = samples == most and (threads == 1 or _is_near(regions, most, near))
    if (is_near and (threads > 1 or most == 1)) or not _serves(graph, samples):
        return BatchPlan(batch, 1, config, batch)
    alone = _of_one_core(config) if workers > 1 else config
    is_serial = Machine.of(alone).is_serial
    together = max(each for each in divisors(most) if each <= MOST_TOGETHER) if is_serial else samples
    return BatchPlan(samples, workers, alone, together if _serves(graph, together) else samples)


def _of_one_core(config: TargetConfig) -> TargetConfig:
    return config.model_copy(update={"threads": 1})


def stretches(calls: Sequence[Traffic], batch: int, near: int) -> list[int]:
    """For how many samples each function runs at once, of a network whose functions are called in this order.

    Each number divides the next one, and the last one the batch: a function runs once all samples that it takes have
    gone through those before it. Of all such ways the one is taken by which least goes beyond a cache of `near` bytes.
    """
    all_near = sum(each.weights for each in calls) <= near
    sizes = sorted(divisors(batch))
    best: dict[int, tuple[float, list[int]]] = {size: (0.0, []) for size in sizes}
    for call in calls:
        step = {}
        for size in sizes:
            ways = ((best[least], STRETCH_BYTES * (least != size)) for least in sizes if size % least == 0)
            before, way = min(((cost + more, way) for (cost, way), more in ways), key=lambda each: each[0])
            by_call = KERNEL_BYTES + (0 if all_near else call.weights)
            step[size] = before + by_call / size + _beyond(call.exchanged, size, near), [*way, size]
        best = step
    return min(best.values(), key=lambda each: each[0])[1]


def _beyond(exchanged: int, samples: int, near: int) -> int:
    """What of the bytes of a sample goes beyond a cache of `near` bytes, twice what goes far beyond."""
    return exchanged * ((exchanged * samples > near) + (exchanged * samples > FURTHER * near))


def _traffic(graph: Graph) -> list[Traffic]:
    """That of the regions of a graph."""
    batch, varying = batch_of(graph), graph.dependents(graph.inputs)
    found = []
    for region in join_branches(graph, find_regions(graph)):
        exchanged = sum(_bytes(symbol) for symbol in (*region.inputs, *region.outputs) if symbol in varying) // batch
        weights = sum(_bytes(symbol) for symbol in region.inputs if graph.value(symbol) is not None)
        found.append(Traffic(weights, exchanged))
    return found


def _samples(regions: Sequence[Traffic], most: int, near: int) -> int:
    """The divisor of `most` by which least goes beyond a cache of `near` bytes, of a network in one stretch."""
    if most == 1:
        return 1
    weights = sum(each.weights for each in regions)

    def far(samples: int) -> float:
        by_call = CALL_BYTES + (weights if weights > near else 0)
        return by_call / samples + sum(_beyond(each.exchanged, samples, near) for each in regions)

    return min(reversed(divisors(most)), key=far)


def _is_near(regions: Sequence[Traffic], samples: int, near: int) -> bool:
    """Whether a cache of `near` bytes holds the weights, and what each region reads and writes of all samples."""
    return sum(each.weights for each in regions) <= near and not any(
        _beyond(each.exchanged, samples, near) for each in regions
    )


def _serves(graph: Graph, samples: int) -> bool:
    """Whether the graph can be one for so many samples: it may bake its batch in."""
    try:
        Rebatch(samples)(graph)
    except GraphError:
        return False
    return True


def _bytes(symbol: Symbol) -> int:
    return symbol.type.size * np.dtype(symbol.dtype).itemsize


def second_cache(target: Target) -> int:
    """The bytes of a core's second cache, where code is made for this machine and Linux tells."""
    if not parse_target(target).is_native:
        return CACHE_BYTES
    try:
        facts = [(CACHE / name).read_text().strip() for name in ("level", "size")]
    except OSError:
        return CACHE_BYTES
    found = re.fullmatch(r"2 (\d+)K", " ".join(facts))
    return int(found[1]) << 10 if found else CACHE_BYTES
