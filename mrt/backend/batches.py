"""How a batch runs: how many samples go through the network at once, and how many such calls run side by side.

Of many samples at once weights are read once; of few, what a kernel writes is still in the second cache when the next
one reads it. Cores that take whole samples wait for each other once a call; those that share a kernel, at each of them.
"""

from __future__ import annotations

import re
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
CALL_BYTES = 1 << 19
"""What goes through the third cache in the time that a call takes by itself."""
CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2")
"""What Linux tells of a cache that is the second, mostly; those before it hold instructions and data."""


@dataclass(frozen=True)
class BatchPlan:
    """samples: that go through the network at once. workers: how many calls run side by side. target: of their code."""

    samples: int
    workers: int
    target: TargetConfig


def plan_batch(graph: Graph, target: Target) -> BatchPlan:
    """How the batch of `graph` runs on `target`: by calls of equal size, of which every core has equally many.

    Of the sizes that divide the batch, the one is taken by which least goes through the third cache for each sample:
    the weights once a call, if the second cache does not hold them, and what regions read and write, if that of all
    samples of a call is more than it holds. Cores share kernels where the second cache holds all that they take, since
    to hand samples over takes time too, and where the batch does not divide among them.
    """
    config, threads, batch = parse_target(target), Machine.of(target).threads, batch_of(graph)
    workers = threads if batch % threads == 0 else 1
    samples = _samples(graph, batch // workers, _second_cache(target) * (threads // workers))
    if samples == batch // workers or not _serves(graph, samples):
        return BatchPlan(batch, 1, config)
    return BatchPlan(samples, workers, config if workers == 1 else config.model_copy(update={"threads": 1}))


def _samples(graph: Graph, most: int, near: int) -> int:
    """The divisor of `most` by which least goes beyond a cache of `near` bytes."""
    if most == 1:
        return 1
    batch, varying = batch_of(graph), graph.dependents(graph.inputs)
    weights = sum(_bytes(symbol) for symbol in graph.symbols if graph.value(symbol) is not None)
    exchanged = [
        sum(_bytes(symbol) for symbol in (*region.inputs, *region.outputs) if symbol in varying) // batch
        for region in join_branches(graph, find_regions(graph))
    ]

    def far(samples: int) -> float:
        by_call = CALL_BYTES + (weights if weights > near else 0)
        return by_call / samples + sum(count for count in exchanged if count * samples > near)

    return min(reversed(divisors(most)), key=far)


def _serves(graph: Graph, samples: int) -> bool:
    """Whether the graph can be one for so many samples: it may bake its batch in."""
    try:
        Rebatch(samples)(graph)
    except GraphError:
        return False
    return True


def _bytes(symbol: Symbol) -> int:
    return symbol.type.size * np.dtype(symbol.dtype).itemsize


def _second_cache(target: Target) -> int:
    """The bytes of a core's second cache, where code is made for this machine and Linux tells."""
    if not parse_target(target).is_native:
        return CACHE_BYTES
    try:
        facts = [(CACHE / name).read_text().strip() for name in ("level", "size")]
    except OSError:
        return CACHE_BYTES
    found = re.fullmatch(r"2 (\d+)K", " ".join(facts))
    return int(found[1]) << 10 if found else CACHE_BYTES
