"""A batch in stretches: the same integers as sample by sample, on memory that does not grow with what is not alive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from compiled import op
from layers import TARGETS
from stand_ins import standing_in

from mrt.backend import batches, compile_model, job
from mrt.backend.batches import Traffic, stretches
from mrt.backend.explain import explain
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.module_record import record_text
from mrt.runtime import MAIN, Module
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.quantized_tensor import TensorQuantization

BATCH = 4
NEAR = 6 << 10


def network(batch: int) -> Graph:
    """Large maps first and large weights last; a residual sum, a Concat, and two outputs of different stretches."""
    builder, random = GraphBuilder(), np.random.default_rng(0)
    x = builder.input("x", TensorType((batch, 4, 12, 12), "int8"))

    def convolution(data, filters, stride, name, size=3):
        weight = random.integers(-9, 9, (filters, data.shape[1], size, size)).astype(np.int8)
        record = op(
            "Convolution",
            kernel=(size, size),
            num_filter=filters,
            pad=(size // 2,) * 2,
            stride=(stride,) * 2,
            no_bias=True,
        )
        made = builder.apply(record, [data, builder.parameter(f"{name}_weight", weight)], name)
        shifted = builder.apply(
            op("right_shift"), [made, builder.parameter(f"{name}_by", np.full((1,) * 4, 6, np.int32))]
        )
        return builder.apply(op("Cast", dtype="int8"), [builder.apply(op("clip", a_min=-99, a_max=99), [shifted])])

    wide = convolution(x, 16, 1, "first")
    left, right = convolution(wide, 16, 2, "left"), convolution(wide, 16, 2, "right", size=1)
    total = builder.apply(op("elemwise_add"), [left, right], "total")
    small = builder.apply(op("Cast", dtype="int8"), [builder.apply(op("clip", a_min=-99, a_max=99), [total])])
    joined = builder.apply(op("Concat", dim=1), [convolution(small, 16, 1, "a"), convolution(small, 16, 1, "b")])
    flat = builder.apply(op("Flatten"), [joined])
    weight = builder.parameter("last_weight", random.integers(-9, 9, (48, 1152)).astype(np.int8))
    last = builder.apply(op("FullyConnected", num_hidden=48, no_bias=True), [flat, weight], "last")
    return builder.graph([last, total])


def facts(symbols: Sequence) -> list[TensorQuantization]:
    limits = [np.iinfo(symbol.dtype) for symbol in symbols]
    return [
        TensorQuantization(symbol.name, symbol.shape, symbol.dtype, 1.0, 0, limit.min, limit.max)
        for symbol, limit in zip(symbols, limits, strict=True)
    ]


def compiled(batch: int) -> Module:
    graph = network(batch)
    return compile_model(graph, facts(graph.inputs), facts(graph.outputs), None, "0" * 64, {"threads": 1})


def samples(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, (count, 4, 12, 12)).astype(np.int8)


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if data of a small network were far."""
    monkeypatch.setattr(job, "second_cache", lambda _: NEAR)
    monkeypatch.setattr(batches, "KERNEL_BYTES", 0)
    monkeypatch.setattr(batches, "STRETCH_BYTES", 0)


@pytest.mark.usefixtures("small_caches")
def test_integers_are_those_of_evaluate() -> None:
    """For all samples, and fewer than go through at once; in integers and in real values."""
    builder = ModuleBuilder(Machine.of({"threads": 1}))
    builder.add_batch(network(BATCH), MAIN, {}, NEAR)
    assert len(builder.programs[MAIN].calls) > 7  # some functions are called several times
    module = compiled(BATCH)
    stretches = module.record.made_from.stretches
    assert len(stretches) > 1
    assert f"by {stretches[-1][0]}" in record_text(module.record)
    for count in (BATCH, 3, 9):
        x = samples(count)
        wanted = network(count).evaluate({"x": x})
        assert all(map(np.array_equal, module.run_integer(x), wanted))
        assert all(map(np.array_equal, module(x.astype(np.float32)), wanted))


def formed_in_two_ways(batch: int) -> Graph:
    """320 channels of 7 x 7, whose transformed weights are far: by Winograd's algorithm for eight samples, by direct
    sums for one. Bytes have a sign here, and none in memory, as VNNI's direct sums ask for them."""
    builder, random = GraphBuilder(), np.random.default_rng(0)
    made = builder.input("x", TensorType((batch, 16, 28, 28), "int8"))
    for number, (inputs, stride) in enumerate([(16, 4), (320, 1)]):
        weight = builder.parameter(f"weight{number}", random.integers(-9, 9, (320, inputs, 3, 3)).astype(np.int8))
        record = op("Convolution", kernel=(3, 3), num_filter=320, pad=(1, 1), stride=(stride, stride), no_bias=True)
        by = builder.parameter(f"by{number}", np.full((1,) * 4, 8, np.int32))
        shifted = builder.apply(op("right_shift"), [builder.apply(record, [made, weight]), by])
        made = builder.apply(op("Cast", dtype="int8"), [builder.apply(op("clip", a_min=-99, a_max=99), [shifted])])
    return builder.graph([made])


@pytest.mark.usefixtures("small_caches")
def test_a_layer_may_be_formed_otherwise_for_several_samples() -> None:
    """Its function and weights are others, but all lies in memory as for one sample."""
    target = TARGETS["cascadelake"]
    told = [[call.products for call in explain(formed_in_two_ways(n), (), target).calls] for n in (1, 8)]
    assert ["(Winograd)" in str(products) for products in told] == [False, True]
    builder = ModuleBuilder(Machine.of({**target, "threads": 1}))
    builder.add_batch(formed_in_two_ways(8), MAIN, {}, NEAR)
    assert [samples for samples, _ in builder.stretches(MAIN)] == [1, 8]
    graph = formed_in_two_ways(8)
    given = facts(graph.inputs), facts(graph.outputs), None, "0" * 64, {**target, "threads": 1}
    x = np.random.default_rng(1).integers(-128, 128, (8, 16, 28, 28)).astype(np.int8)
    (wanted,) = graph.evaluate({"x": x})
    assert len(np.unique(wanted)) > 50
    with standing_in(Machine.of(target)):
        np.testing.assert_array_equal(compile_model(graph, *given).run_integer(x), wanted)


@pytest.mark.usefixtures("small_caches")
def test_memory_is_that_of_few_samples() -> None:
    """The map of 12 x 12, which is read sample by sample, is there once, whatever the batch."""
    sizes = []
    for batch in (4, 16):
        builder = ModuleBuilder(Machine.of({"threads": 1}))
        builder.add_batch(network(batch), MAIN, {}, NEAR)
        sizes.append(builder.programs[MAIN].workspace_bytes)
    maps = 12 * 12 * 16 + 14 * 14 * 16
    assert sizes[1] - sizes[0] < 12 * maps


def cost(calls: Sequence[Traffic], sizes: Sequence[int], near: int) -> float:
    """As the module's text says, of a network whose weights the cache does not hold."""
    found, last = 0.0, sizes[0]
    for call, size in zip(calls, sizes, strict=True):
        far = sum(call.exchanged * size > cache for cache in (near, batches.FURTHER * near))
        found += (batches.KERNEL_BYTES + call.weights) / size + far * call.exchanged
        found += batches.STRETCH_BYTES if size != last else 0
        last = size
    return found


def test_the_cheapest_of_all_ways_is_taken() -> None:
    random, near = np.random.default_rng(0), 1 << 18
    for _ in range(20):
        shrinking = sorted(random.integers(1 << 12, 1 << 20, 4).tolist(), reverse=True)
        calls = [Traffic(int(random.integers(1 << 12, 1 << 22)), exchanged) for exchanged in shrinking]
        ways = [
            (a, b, c, d)
            for a in (1, 2, 4)
            for b in (1, 2, 4)
            for c in (1, 2, 4)
            for d in (1, 2, 4)
            if b % a == c % b == d % c == 0
        ]
        found = stretches(calls, 4, near)
        assert tuple(found) in ways
        assert cost(calls, found, near) == pytest.approx(min(cost(calls, way, near) for way in ways))
