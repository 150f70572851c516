"""How a batch runs: by calls of how many samples, and on which cores."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import op

from mrt.backend import batches
from mrt.backend.batches import plan_batch
from mrt.symbol import Graph, GraphBuilder, TensorType


def network(batch: int, baked: bool = False, channels: int = 8) -> Graph:
    """Eight convolutions, each with 64 KiB of data for a sample before and after it."""
    builder = GraphBuilder()
    data = builder.input("x", TensorType((batch, channels, 128, 64), "int8"))
    for _ in range(8):
        weight = builder.parameter("weight", np.ones((channels, channels, 1, 1), np.int8))
        made = builder.apply(op("Convolution", kernel=(1, 1), num_filter=channels, no_bias=True), [data, weight])
        data = builder.apply(op("Cast", dtype="int8"), [builder.apply(op("clip", a_min=-9, a_max=9), [made])])
    return builder.graph([builder.apply(op("Reshape", shape=(batch, -1)), [data])] if baked else [data])


@pytest.mark.parametrize(
    ("near", "threads", "samples", "workers"),
    [
        (128 << 10, 1, 1, 1),  # what a region reads and writes of one sample
        (512 << 10, 1, 4, 1),
        (511 << 10, 1, 2, 1),
        (4 << 20, 1, 16, 1),
        (512 << 10, 2, 4, 2),
        (1 << 20, 2, 16, 1),  # each core has 8 samples near: they share kernels
        (512 << 10, 3, 8, 1),  # 16 samples do not divide among three cores, which share their caches
    ],
)
def test_as_many_samples_as_the_cache_holds(
    monkeypatch: pytest.MonkeyPatch, near: int, threads: int, samples: int, workers: int
) -> None:
    monkeypatch.setattr(batches, "second_cache", lambda _: near)
    plan = plan_batch(network(16), {"threads": threads})
    assert (plan.samples, plan.workers) == (samples, workers)
    assert plan.target.threads == (1 if workers > 1 else threads)


def test_weights_that_are_far_are_read_for_several_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample is 5 KiB, so that two are too many, and the weight 1 MiB."""
    monkeypatch.setattr(batches, "second_cache", lambda _: 8 << 10)
    builder = GraphBuilder()
    data = builder.input("x", TensorType((2, 4096), "int8"))
    weight = builder.parameter("weight", np.ones((256, 4096), np.int8))
    graph = builder.graph([builder.apply(op("FullyConnected", num_hidden=256, no_bias=True), [data, weight])])
    assert plan_batch(graph, {"threads": 1}).samples == 2


def test_a_batch_that_is_baked_in_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "second_cache", lambda _: 128 << 10)
    plan = plan_batch(network(16, baked=True), {"threads": 2})
    assert (plan.samples, plan.workers, plan.target.threads) == (16, 1, 2)


@pytest.mark.parametrize(("given", "workers"), [(16, 2), (17, 1)])
def test_cores_take_calls_of_a_batch_that_is_baked_in(given: int, workers: int) -> None:
    plan = plan_batch(network(1, baked=True), {"threads": 2}, given)
    assert (plan.samples, plan.together, plan.workers) == (1, 1, workers)
    assert plan.target.threads == (1 if workers > 1 else 2)
