"""All calls of a network as one function: odd graphs, memory that is used anew, and arrays of any kind as inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled import op

from mrt.backend import ONE_THREAD, TvmRunner, compile_model
from mrt.backend.link.one_function import join_calls
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.runtime import CALLS, Module
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.quantized_tensor import TensorQuantization

BATCH = 2


def odd_graph(batch: int) -> Graph:
    """Outputs that are a tensor, an input, a constant, the tensor again, and a tensor that others read."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((batch, 4, 6, 6), "int8"))
    random = np.random.default_rng(0)
    weight = builder.parameter("weight", random.integers(-9, 9, (16, 4, 3, 3)).astype(np.int8))
    one = builder.parameter("one", np.arange(3, dtype=np.int32))
    parts = []
    for name in ("a", "b"):
        y = builder.apply(op("Convolution", kernel=(3, 3), num_filter=16, pad=(1, 1), no_bias=True), [x, weight])
        clipped = builder.apply(op("clip", a_min=-(7 + len(parts)), a_max=99), [y])
        parts.append(builder.apply(op("Cast", dtype="int8"), [clipped], name))
    joined = builder.apply(op("Concat", dim=1), parts, "joined")
    last = builder.parameter("last", random.integers(-9, 9, (8, 32, 1, 1)).astype(np.int8))
    z = builder.apply(op("Convolution", kernel=(1, 1), num_filter=8, no_bias=True), [joined, last], "z")
    return builder.graph([z, x, one, z, builder.apply(op("relu"), [z], "relu")])


def facts(graph: Graph, symbols: tuple) -> list[TensorQuantization]:
    limits = [np.iinfo(symbol.dtype) for symbol in symbols]
    return [
        TensorQuantization(f"{symbol.name}{i}", symbol.shape, symbol.dtype, 1.0, 0, limit.min, limit.max)
        for i, (symbol, limit) in enumerate(zip(symbols, limits, strict=True))
    ]


@pytest.fixture(scope="module")
def module() -> Module:
    graph = odd_graph(BATCH)
    return compile_model(graph, facts(graph, graph.inputs), facts(graph, graph.outputs), None, "0" * 64)


def samples(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, (count, 4, 6, 6)).astype(np.int8)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_odd_outputs_of_any_number_of_samples(module: Module, count: int) -> None:
    x = samples(count)
    for found, wanted in zip(module.run_integer(x), odd_graph(count).evaluate({"x": x}), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_runner_gives_the_same() -> None:
    x = samples(BATCH)
    graph = odd_graph(BATCH)
    for found, wanted in zip(TvmRunner().prepare(graph)({"x": x}), graph.evaluate({"x": x}), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_a_call_gave_is_the_callers_own(module: Module) -> None:
    """Neither the next call nor the input changes it, and writing to it changes nothing."""
    x = samples(BATCH)
    first = module.run_integer(x)
    kept = [output.copy() for output in first]
    module.run_integer(samples(BATCH, seed=1))
    x[:] = 0
    for found, wanted in zip(first, kept, strict=True):
        np.testing.assert_array_equal(found, wanted)
        found[...] = 55
    for found, wanted in zip(module.run_integer(samples(BATCH)), kept, strict=True):
        np.testing.assert_array_equal(found, wanted)


def unaligned(x: np.ndarray) -> np.ndarray:
    memory = np.zeros(x.nbytes + 65, np.uint8)
    start = (1 - memory.ctypes.data) % 64
    held = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    held[...] = x
    return held


def read_only(x: np.ndarray) -> np.ndarray:
    held = x.copy()
    held.flags.writeable = False
    return held


@pytest.mark.parametrize(
    "arranged",
    [unaligned, read_only, np.asfortranarray, lambda x: np.repeat(x, 2, axis=3)[..., ::2], lambda x: x[::-1][::-1]],
)
def test_arrays_may_lie_in_any_way(module: Module, arranged: Callable[[np.ndarray], np.ndarray]) -> None:
    x = samples(BATCH)
    for found, wanted in zip(module.run_integer(arranged(x)), odd_graph(BATCH).evaluate({"x": x}), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_real_values_may_lie_in_any_way_and_be_of_any_dtype(module: Module) -> None:
    x = samples(BATCH)
    wanted = odd_graph(BATCH).evaluate({"x": x})
    for given in (x.astype(np.float32), x.astype(">f4"), x.astype(np.float64), read_only(x.astype(np.float32))):
        for found, integers in zip(module(given), wanted, strict=True):
            np.testing.assert_array_equal(found, integers.astype(np.float32))


def test_a_module_without_calculation_gives_its_input() -> None:
    builder = GraphBuilder()
    graph = builder.graph([builder.input("x", TensorType((1, 3), "int8"))])
    module = compile_model(graph, facts(graph, graph.inputs), facts(graph, graph.outputs), None, "0" * 64)
    x = np.array([[1, -2, 3]], np.int8)
    np.testing.assert_array_equal(module.run_integer(x), x)


def test_however_many_inputs_a_runner_has_its_function_takes_them_as_one() -> None:
    builder = GraphBuilder()
    given = [builder.input(f"x{i}", TensorType((1 + i % 3, 2), "int32")) for i in range(40)]
    total = builder.apply(op("relu"), [given[0]])
    outputs = [builder.apply(op("negative"), [each]) for each in given[1:]]
    graph = builder.graph([total, *outputs])
    module_builder = ModuleBuilder(Machine.of(ONE_THREAD))
    module_builder.add(graph, "main")
    joined = join_calls(module_builder.module(), by_bytes=("main",), shelf=module_builder.shelf)
    assert [each.name for each in joined.calls["main" + CALLS].parameters] == [
        "inputs", "constants", "workspace", "outputs"
    ]  # fmt: skip
    feeds = {x.name: np.arange(x.type.size, dtype=np.int32).reshape(x.shape) - i for i, x in enumerate(given)}
    for found, wanted in zip(TvmRunner().prepare(graph)(feeds), graph.evaluate(feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)
