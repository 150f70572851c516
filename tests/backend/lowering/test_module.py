"""Graphs as modules: regions, sharing of functions, odd graphs, long chains, errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from compiled import Bundle, op
from tvm import tirx

from mrt.backend import TvmRunner, build_module
from mrt.backend.build import compile_executable
from mrt.backend.fusion.join_branches import join_branches
from mrt.backend.fusion.regions import MAX_SYMBOLS, find_regions
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.te.registry import compute, has_compute
from mrt.errors import CompilationError, DataError
from mrt.runtime import virtual_machine
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operator import registered_operators


def functions(graph: Graph) -> int:
    return sum(isinstance(function, tirx.PrimFunc) for function in build_module(graph).functions.values())


def chain(length: int, reshape: bool) -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 8), "int32"))
    one = builder.parameter("one", np.ones((2, 8), np.int32))
    for i in range(length):
        if reshape:
            x = builder.apply(op("Reshape", shape=((4, 4), (2, 8))[i % 2]), [x])
        else:
            x = (
                builder.apply(op("clip", a_min=-5, a_max=i % 3), [x])
                if i % 2
                else builder.apply(op("elemwise_add"), [x, one])
            )
    return builder.graph([x])


def test_an_anchor_takes_the_elementwise_operators_that_alone_read_it() -> None:
    """But nothing joins what reads one tensor twice."""
    bundle = Bundle()
    x = bundle.input(bundle.integers((1, 4, 5, 5)))
    weight = bundle.parameter(bundle.integers((8, 4, 1, 1)))
    first = bundle.hidden("Convolution", x, weight, kernel=(1, 1), num_filter=8, no_bias=True)
    second = bundle.hidden("Convolution", x, weight, kernel=(1, 1), num_filter=8, no_bias=True)
    both = bundle.hidden("elemwise_add", bundle.hidden("relu", first), bundle.hidden("clip", second, a_min=0, a_max=9))
    twice = bundle.hidden("elemwise_add", both, both)
    bundle.add("relu", twice)
    regions = find_regions(bundle.graph())
    assert sorted([s.op for s in region.symbols] for region in regions) == [
        ["Convolution", "clip"],
        ["Convolution", "relu", "elemwise_add"],
        ["elemwise_add"],
        ["relu"],
    ]
    bundle.check()


def test_an_output_is_never_fused_away() -> None:
    bundle = Bundle()
    x = bundle.input(bundle.integers((3, 4)))
    bundle.add("relu", bundle.add("clip", bundle.add("elemwise_add", x, x), a_min=-3, a_max=3))
    assert len(find_regions(bundle.graph())) == 3
    bundle.check()


def test_what_is_elementwise_in_an_output_is_made_where_that_is() -> None:
    """All of a chain, outputs within it included, but nothing that reads another tensor or changes the shape."""
    bundle = Bundle()
    x = bundle.input(bundle.floats(2, 3, 5, 7))
    layer = {"kernel": (3, 3), "num_filter": 5, "no_bias": True}
    product = bundle.add("Convolution", x, bundle.parameter(bundle.floats(5, 3, 3, 3)), **layer)
    clipped = bundle.add("clip", bundle.hidden("relu", product), a_min=0.25, a_max=2.0)
    shifted = bundle.hidden("broadcast_add", clipped, bundle.parameter(bundle.floats(1, 5, 1, 1)))
    pooled = bundle.hidden("max", shifted, axis=(2, 3), keepdims=True)
    bundle.add("broadcast_mul", product, pooled)
    bundle.add("elemwise_add", shifted, product)
    regions = join_branches(bundle.graph(), find_regions(bundle.graph()))
    assert sorted([s.op for s in region.symbols] for region in regions) == [
        ["Convolution", "relu", "clip", "broadcast_add", "elemwise_add"],
        ["broadcast_mul"],
        ["max"],
    ]
    bundle.check(tolerance=1e-5)


def test_regions_of_the_same_structure_share_a_function() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8, 6, 6), "int8"))
    random = np.random.default_rng(0)
    for _ in range(4):
        weight = builder.parameter("weight", random.integers(-9, 9, (8, 8, 1, 1)).astype(np.int8))
        x = builder.apply(op("Convolution", kernel=(1, 1), num_filter=8, no_bias=True), [x, weight])
        x = builder.apply(op("Cast", dtype="int8"), [builder.apply(op("clip", a_min=-9, a_max=9), [x])])
    graph = builder.graph([x])
    # One for the layers between, and one for the last, whose output no convolution reads; and copies at both ends.
    assert functions(graph) == 4
    feeds = {"x": random.integers(-9, 9, (1, 8, 6, 6)).astype(np.int8)}
    np.testing.assert_array_equal(TvmRunner().prepare(graph)(feeds)[0], graph.evaluate(feeds)[0])


def test_a_shared_parameter_is_packed_for_each_reader() -> None:
    """The same weight with 1 and 2 groups has two layouts of one shape."""
    bundle = Bundle()
    weight = bundle.parameter(bundle.integers((32, 4, 1, 1)))
    for channels, groups in ((4, 1), (8, 2)):
        x = bundle.input(bundle.integers((1, channels, 3, 3)))
        bundle.add("Convolution", x, weight, kernel=(1, 1), num_filter=32, num_group=groups, no_bias=True)
    bundle.add("Flatten", weight)
    bundle.check()


def test_outputs_may_be_inputs_parameters_and_repeated() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3)))
    unread = builder.input("unread", TensorType((1,)))
    one = builder.parameter("one", np.ones((2, 3), np.float32))
    y = builder.apply(op("elemwise_add"), [x, one])
    graph = builder.graph([y, x, one, y])
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), unread.name: np.zeros(1, np.float32)}
    for a, b in zip(TvmRunner().prepare(graph)(feeds), graph.evaluate(feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_one_run_gave_outlives_the_next() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3)))
    y = builder.apply(op("relu"), [x], "y")
    p = builder.parameter("p", np.ones((2, 2), np.float32))
    run = TvmRunner().prepare(builder.graph([y, builder.apply(op("Reshape", shape=(3, 2)), [y], "z"), x, p]))
    given = [np.full((2, 3), value, np.float32) for value in (1.0, 2.0, 3.0)]
    found = [run({"x": value}) for value in given]
    for outputs, value in zip(found, given, strict=True):
        for output, wanted in zip(outputs, (value, value.reshape(3, 2), value, np.ones((2, 2))), strict=True):
            np.testing.assert_array_equal(output, wanted)


def test_tensors_without_axes_compile() -> None:
    bundle = Bundle()
    x = bundle.add("squeeze", bundle.input(bundle.integers((1, 1))))
    bundle.add("relu", bundle.add("elemwise_add", x, x))
    bundle.add("broadcast_mul", x, bundle.input(bundle.integers((2, 3))))
    bundle.check()


@pytest.mark.parametrize("reshape", [False, True])
def test_chains_compile_without_recursion(reshape: bool) -> None:
    graph = chain(2000, reshape)
    assert functions(graph) <= 4  # whole regions repeat; the last one is shorter
    assert len(find_regions(graph)) == (2000 if reshape else -(-2000 // MAX_SYMBOLS))
    feeds = {"x": np.arange(-8, 8, dtype=np.int32).reshape(2, 8)}
    np.testing.assert_array_equal(TvmRunner().prepare(graph)(feeds)[0], graph.evaluate(feeds)[0])


@pytest.mark.exhaustive
@pytest.mark.slow
def test_ten_thousand_operators_compile() -> None:
    graph = chain(10_000, reshape=True)
    feeds = {"x": np.arange(16, dtype=np.int32).reshape(2, 8)}
    np.testing.assert_array_equal(TvmRunner().prepare(graph)(feeds)[0], graph.evaluate(feeds)[0])


def test_every_operator_has_a_compute() -> None:
    own = [record for record in registered_operators() if record.__module__.startswith("mrt.")]
    assert [record.op for record in own if not has_compute(record)] == ["null"]


def test_operators_without_a_compute_are_all_named_at_once() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2,)))
    graph = builder.graph([builder.apply(Unknown(), [builder.apply(Stranger(), [x])])])
    with pytest.raises(CompilationError, match="test_stranger, test_unknown"):
        build_module(graph)


def test_a_failing_compute_names_the_symbol(capfd: pytest.CaptureFixture[str]) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2,)))
    graph = builder.graph([builder.apply(Broken(), [x], "culprit")])
    with pytest.raises(CompilationError, match="culprit") as raised:
        TvmRunner().prepare(graph)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("wrong", [np.ones((2, 9), np.int32), np.ones((2, 8), np.float32), np.ones(16, np.int32)])
def test_a_function_refuses_tensors_of_another_type(wrong: np.ndarray) -> None:
    """Though the kernels check nothing."""
    machine = Machine.of()
    module_builder = ModuleBuilder(machine)
    module_builder.add(chain(1, reshape=False), "main")
    main = virtual_machine(compile_executable(module_builder.module(), machine))["main"]
    assert main(tvm.runtime.tensor(np.ones((2, 8), np.int32)))[0].shape == (2, 8)
    with pytest.raises((RuntimeError, ValueError), match="input0"):
        main(tvm.runtime.tensor(wrong))


def test_feeds_that_do_not_fit_are_named() -> None:
    run = TvmRunner().prepare(chain(1, False))
    with pytest.raises(DataError, match="x"):
        run({"x": np.zeros((2, 7), np.int32)})
    with pytest.raises(DataError, match="y"):
        run({"x": np.zeros((2, 8), np.int32), "y": np.zeros(1)})


@dataclass(frozen=True)
class Elementwise(Operator):
    """The input itself. Registered nowhere, so that other tests do not meet it."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x


@dataclass(frozen=True)
class Unknown(Elementwise):
    op = "test_unknown"


@dataclass(frozen=True)
class Stranger(Elementwise):
    op = "test_stranger"


@dataclass(frozen=True)
class Broken(Elementwise):
    op = "test_broken"


@compute(Broken)
def broken(symbol, data):
    """Reads an axis that is not there."""
    return data(0, 0, 0)
