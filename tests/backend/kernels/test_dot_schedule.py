"""Accumulators: as many as there are registers for, none of them elsewhere, and weights that are fetched ahead."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import Bundle
from hypothesis import given
from hypothesis import strategies as st
from layers import Layers, assembly, runnable
from tvm import tirx

from mrt.backend import TvmRunner
from mrt.backend.link.kernel_pipeline import KERNELS, STACK_BYTES
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.lowering.plan_calls import plan_calls
from mrt.backend.lowering.region import Copy
from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import EPILOGUE, FEW_DOTS, FEW_REGISTERS, WINDOW, WORKING, register_tile
from mrt.backend.schedule.tilings import Scheduled, VectorTiling, by_rule, schedule_by_rule
from mrt.symbol import Graph, Symbol

pytestmark = pytest.mark.usefixtures("direct_sums")

VNNI = {"mcpu": "cascadelake", "threads": 1}
AVX2 = {"mcpu": "x86-64-v3", "threads": 1}
MACHINES = {cpu: Machine.of({"mcpu": cpu}) for cpu in ("x86-64", "x86-64-v3", "cascadelake")}


def convolution(
    dtype: str, filters: int = 128, kernel: int = 3, size: int = 14, channels: int = 64
) -> tuple[Graph, dict[str, Any]]:
    """A convolution on a square, with a relu; the weights of the one by default are walked once."""
    bundle, is_float = Bundle(), dtype == "float32"
    shape, weights = (1, channels, size, size), (filters, channels, kernel, kernel)
    data = bundle.input(bundle.floats(*shape) if is_float else bundle.integers(shape, dtype))
    weight = bundle.parameter(bundle.floats(*weights) if is_float else bundle.integers(weights, "int8", -127, 127))
    attributes = {"kernel": (kernel, kernel), "pad": (kernel // 2,) * 2, "num_filter": filters, "no_bias": True}
    bundle.add("relu", bundle.hidden("Convolution", data, weight, **attributes))
    return bundle.graph(), bundle.feeds


def rule_of(graph: Graph) -> VectorTiling:
    """The tiling that the rule chooses for the only sums of dots of a graph."""
    offered = []

    def scheduler(_: Any, scheduled: Scheduled) -> Any:
        def choose(tilings: Iterable[Any]) -> Any:
            offered.append(by_rule(tilings))
            return offered[-1]

        return scheduled(choose)

    ModuleBuilder(Machine.of(VNNI), scheduler).add(graph, "main")
    (found,) = offered
    assert isinstance(found, VectorTiling)
    return found


@cache
def code_of(mcpu: str, *form: Any, **more: Any) -> str:
    """The code of a `convolution` for one core of a CPU, which several tests look at."""
    return assembly(convolution(*form, **more)[0], {"mcpu": mcpu, "threads": 1})


@pytest.mark.parametrize(("dtype", "multiply_add"), [("uint8", "vpdpbusd"), ("float32", "vfmadd")])
def test_accumulators_fill_the_registers_and_stay_in_them(dtype: str, multiply_add: str) -> None:
    code = code_of(VNNI["mcpu"], dtype)
    lines = [line.split("#")[0].strip() for line in code.splitlines() if line.strip().startswith(multiply_add)]
    sums = {line.rpartition("%")[2] for line in lines}
    assert len(sums) == 28, sums
    assert not [line for line in lines if "(%rsp" in line or "(%rbp" in line]
    assert "Workspace" not in code


def summing_loops(code: str, multiply_add: str) -> list[str]:
    """The innermost loops that form products, each up to the last of these."""
    parts = [part for part in re.split(r"\n\.LBB\w+:", code) if multiply_add in part]
    return [part[: part.rindex(multiply_add)] for part in parts]


def keeps_vectors_in_memory(loop: str) -> bool:
    return re.search(r"%ymm\d+, -?\d*\(%rsp", loop) is not None


@pytest.mark.parametrize(
    ("size", "filters", "channels"), [(14, 576, 96), (56, 96, 32), (7, 320, 960), (7, 960, 160), (14, 256, 64)]
)
def test_sixteen_registers_hold_sums_factors_and_a_product(size: int, filters: int, channels: int) -> None:
    """Tiles of two positions and six blocks, of more positions than blocks, and jammed ones."""
    code = code_of(AVX2["mcpu"], "uint8", filters, 1, size, channels)
    loops = summing_loops(code, "vpmaddwd")
    assert loops and not list(filter(keeps_vectors_in_memory, loops))


@pytest.mark.usefixtures("uncrossed")
@pytest.mark.parametrize(("channels", "steps"), [(64, 2), (70, 1)])
def test_a_turn_of_few_sums_makes_two_steps(channels: int, steps: int) -> None:
    """So much as an even number of steps allows."""
    code = assembly(convolution("uint8", 128, 1, 12, channels)[0], AVX2)
    assert sum(loop.count("vpmaddwd") + 1 for loop in summing_loops(code, "vpmaddwd")) == 12 * steps


@pytest.mark.usefixtures("uncrossed")
def test_tiles_that_are_jammed_make_two_steps_together() -> None:
    """Of seven rows of seven positions the sums of ten and then of eight vectors, in a loop each."""
    code = assembly(convolution("uint8", 160, 1, 7, 64)[0], AVX2)
    dots = [loop.count("vpmaddwd") + 1 for loop in summing_loops(code, "vpmaddwd")]
    assert sum(dots) == 2 * (10 + 8)
    assert len([count for count in dots if count > 8]) == 2


@pytest.mark.parametrize(("size", "sums", "steps"), [(22, 11, 1), (27, 9, 2)])
def test_a_turn_makes_two_steps_of_a_single_block_where_registers_are_left(size: int, sums: int, steps: int) -> None:
    loops = summing_loops(code_of(AVX2["mcpu"], "float32", 128, 3, size), "vfmadd")
    assert sum(loop.count("vfmadd") + 1 for loop in loops) == sums * steps


@pytest.mark.parametrize(
    ("size", "kernel", "filters", "threads"),
    [(17, 3, 64, 1), (17, 5, 80, 2), (9, 3, 96, 1), (11, 5, 128, 2), (34, 3, 48, 2)],
)
def test_odd_rows_of_floats_are_jammed(size: int, kernel: int, filters: int, threads: int) -> None:
    """Few registers hold no tile of such a row that loads less than it multiplies; what is fetched is so once."""
    graph, feeds = convolution("float32", filters, kernel, size)
    loops = summing_loops(assembly(graph, AVX2), "vfmadd")
    fetched, loads = ([re.findall(what, loop) for loop in loops] for what in ("prefetch.*", r"\bv.*\(%.*ymm"))
    assert all(len(lines) == len(set(lines)) for lines in fetched)
    assert sum(map(len, loads)) < 0.9 * sum(loop.count("vfmadd") + 1 for loop in loops)
    assert not list(filter(keeps_vectors_in_memory, loops))
    if "x86-64-v3" not in runnable():
        pytest.skip("this machine does not run code for x86-64-v3")
    (expected,) = graph.evaluate(feeds)
    (found,) = TvmRunner({**AVX2, "threads": threads}).prepare(graph)(feeds)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def tokens(rows: int, outputs: int = 192, channels: int = 96) -> Bundle:
    """A product of rows of floats, with a relu."""
    bundle = Bundle()
    data, weight = bundle.input(bundle.floats(1, rows, channels)), bundle.parameter(bundle.floats(outputs, channels))
    attributes = {"num_hidden": outputs, "flatten": False, "no_bias": True}
    bundle.add("relu", bundle.hidden("FullyConnected", data, weight, **attributes))
    return bundle


def attention(rows: int, channels: int = 64) -> Bundle:
    """A product of two matrices of floats for each of two heads, the rows of the second one turned."""
    bundle = Bundle()
    first, second = (bundle.input(bundle.floats(2, rows, channels)) for _ in range(2))
    bundle.add("batch_dot", first, second, transpose_b=True)
    return bundle


def check_floats(bundle: Bundle, target: Mapping[str, Any]) -> None:
    graph = bundle.graph()
    (expected,) = graph.evaluate(bundle.feeds)
    (found,) = TvmRunner(dict(target)).prepare(graph)(bundle.feeds)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("rows", [197, 49, 67])
def test_a_step_of_few_sums_of_floats_does_little_else(rows: int) -> None:
    """It neither asks whether the tile is the last one, nor fetches what the next steps read anyway.

    A core whose other thread is busy begins half as many instructions in a cycle.
    """
    bundle = tokens(rows)
    loops = summing_loops(assembly(bundle.graph(), AVX2), "vfmadd")
    # Of the tiles and of what is left of them.
    assert len(loops) == 2
    for loop in loops:
        instructions = re.findall(r"^\t[a-z]\w*", loop, re.MULTILINE)
        assert len(instructions) + 1 < 2.1 * (loop.count("vfmadd") + 1)
        assert "prefetch" not in loop
    if "x86-64-v3" in runnable():
        check_floats(bundle, AVX2)


@pytest.mark.parametrize(("rows", "threads"), [(67, 1), (197, 2), (31, 2)])
def test_products_of_two_matrices_of_a_prime_number_of_rows_are_jammed(rows: int, threads: int) -> None:
    """In few registers and in many; else each weight would be loaded for one row."""
    bundle = attention(rows)
    tiling = rule_of(bundle.graph())
    assert tiling.positions * tiling.blocks * tiling.jammed >= 16
    loops = summing_loops(assembly(bundle.graph(), AVX2), "vfmadd")
    assert max(loop.count("vfmadd") + 1 for loop in loops) >= 8
    check_floats(bundle, {"threads": threads})
    if "x86-64-v3" in runnable():
        check_floats(bundle, {**AVX2, "threads": threads})


@pytest.mark.parametrize(("size", "kernel", "channels"), [(13, 1, 64), (13, 3, 64), (27, 3, 32)])
def test_sixteen_registers_hold_the_sums_of_floats(size: int, kernel: int, channels: int) -> None:
    """Where LLVM unrolls loops, two steps at once would take more."""
    target = {"mcpu": "znver4", "features": ["-avx512f"], "threads": 1}
    loops = summing_loops(assembly(convolution("float32", 256, kernel, size, channels)[0], target), "vfmadd")
    assert loops and not list(filter(keeps_vectors_in_memory, loops))


@pytest.mark.parametrize(("positions", "blocks", "tile"), [(8, 4, (8, 2)), (14, 8, (7, 2)), (32, 1, (8, 1))])
def test_slices_of_channels_are_summed_for_pairs_of_blocks(positions: int, blocks: int, tile: tuple[int, int]) -> None:
    """Beside totals, sums of one block are too few for an element that is loaded to count for more than one of them."""
    assert register_tile(positions, blocks, 144, MACHINES["cascadelake"], copies=2) == tile


def test_sums_of_slices_stay_in_registers() -> None:
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((1, 64, 8, 8), "int16", -200, 200)))
    layers.finish(layers.requantized(layers.sliced(data, (16, 16, 16, 16), 64, (3, 3), pad=(1, 1))))
    dots = [line.strip() for line in assembly(layers.graph(), VNNI).splitlines() if line.strip().startswith("vpdpbusd")]
    assert len({line.split("#")[0].rpartition("%")[2] for line in dots}) == 16
    assert not [line for line in dots if "(%rsp" in line or "(%rbp" in line]


def test_weights_of_the_next_channels_are_fetched_where_there_are_some() -> None:
    assert "prefetcht1" in code_of(VNNI["mcpu"], "uint8")
    assert "prefetcht1" not in code_of(VNNI["mcpu"], "uint8", filters=32)


@pytest.mark.parametrize(("dtype", "size"), [("uint8", 14), ("float32", 14), ("uint8", 4)])
def test_few_sums_have_them_fetched_before_their_steps(dtype: str, size: int) -> None:
    """Each of 49 tiles of four positions a share; or of four, whose data is walked once, all of them for each block."""
    code = code_of(AVX2["mcpu"], dtype, 256, 1, size, channels=256 if size == 4 else 512)
    assert "prefetcht1" in code
    loops = summing_loops(code, "vpmaddwd" if dtype == "uint8" else "vfmadd")
    assert loops and not [loop for loop in loops if "prefetch" in loop]


def test_weights_of_floats_come_from_the_first_cache() -> None:
    assert "prefetcht0" in code_of(VNNI["mcpu"], "float32")
    assert "prefetcht0" not in code_of(VNNI["mcpu"], "float32", kernel=1), "they stay there"


def test_memory_that_sums_are_written_to_is_fetched_but_for_long_ones_of_one_tap() -> None:
    assert "prefetchw" in code_of(VNNI["mcpu"], "float32")
    assert "prefetchw" in code_of(VNNI["mcpu"], "float32", kernel=1)
    assert "prefetchw" not in code_of(VNNI["mcpu"], "float32", 32, 1, channels=1024)


def test_all_that_a_tile_is_written_to_is_fetched_before_sums_of_few_dots() -> None:
    assembled = code_of(VNNI["mcpu"], "uint8")
    sums = assembled.index("vpdpbusd")
    assert "prefetchw" in assembled[:sums] and "prefetchw" not in assembled[sums : assembled.rindex("vpdpbusd")]
    assert "prefetchw" not in code_of(VNNI["mcpu"], "uint8", channels=256), "memory is as fast as these"


def test_data_that_the_second_cache_does_not_hold_is_walked_once() -> None:
    assert not rule_of(convolution("float32", kernel=1, size=56)[0]).weights_outermost
    assert not rule_of(convolution("float32", kernel=1, size=56, channels=128)[0]).weights_outermost
    assert rule_of(convolution("uint8", kernel=1, size=28, channels=512)[0]).weights_outermost
    assert rule_of(convolution("float32", 256, 1, channels=1024)[0]).weights_outermost


@pytest.mark.parametrize("channels", [3, 24])
@pytest.mark.parametrize("target", [VNNI, {"mcpu": "sapphirerapids", "threads": 1}], ids=lambda target: target["mcpu"])
def test_channels_that_pad_others_are_not_multiplied_in_floats(channels: int, target: dict[str, Any]) -> None:
    graph, _ = convolution("float32", channels=channels)
    calls = plan_calls(graph, Machine.of(target), lambda _, name, make: make(schedule_by_rule) and name, {}, {}).calls
    read = [each.value.shape for call in calls for each in call.arguments if not isinstance(each, (Symbol, Copy))]
    assert 128 * channels * 9 in [math.prod(shape) for shape in read]


@pytest.mark.parametrize(("kernel", "size"), [(1, 7), (3, 7), (3, 5), (3, 17)])
def test_the_last_tile_of_a_short_row_may_be_shorter(kernel: int, size: int) -> None:
    graph, feeds = convolution("float32", 32, kernel, size)
    (expected,) = graph.evaluate(feeds)
    (found,) = TvmRunner({"threads": 1}).prepare(graph)(feeds)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("rows", [67, 197])
def test_a_prime_number_of_rows_is_cut_into_large_tiles(rows: int) -> None:
    """As the tokens of a vision transformer are: a tile of one row would load every weight for each of them."""
    bundle = tokens(rows, 48, 8)
    assert rule_of(bundle.graph()).positions > 4
    check_floats(bundle, {"threads": 1})


@pytest.mark.parametrize(("kernel", "threads"), [(1, 2), (3, 1)])
def test_pairs_of_an_odd_number_of_lines_fill_the_registers(kernel: int, threads: int) -> None:
    graph, feeds = convolution("int8", 64, kernel, size=7)
    tiling = rule_of(graph)
    assert (tiling.positions, tiling.blocks, tiling.jammed) == (7, 2, 2)
    (expected,) = graph.evaluate(feeds)
    (found,) = TvmRunner({"features": ["-amx-int8"], "threads": threads}).prepare(graph)(feeds)
    np.testing.assert_array_equal(found, expected)


def check_large_tiles(bundle: Bundle, threads: int) -> None:
    """The only layer is cut into tiles that fill the registers, and exact."""
    graph = bundle.graph()
    tiling = rule_of(graph)
    assert tiling.positions * tiling.blocks * tiling.jammed >= 20
    (expected,) = graph.evaluate(bundle.feeds)
    (found,) = TvmRunner({"features": ["-amx-int8"], "threads": threads}).prepare(graph)(bundle.feeds)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("dtype", "rows", "threads"),
    [("uint8", 197, 1), ("int8", 197, 2), ("int8", 50, 1), ("uint8", 51, 1), ("int8", 51, 1), ("uint8", 31, 2)],
)
def test_rows_of_tokens_are_cut_into_tiles_that_fill_the_registers(dtype: str, rows: int, threads: int) -> None:
    """As many as vision transformers have, of which 197 is prime, and others."""
    bundle = Bundle()
    data = bundle.input(bundle.integers((1, rows, 256), dtype))
    weight = bundle.parameter(bundle.integers((192, 256), "int8", -127, 127))
    attributes = {"num_hidden": 192, "flatten": False, "no_bias": True}
    bundle.add("relu", bundle.hidden("FullyConnected", data, weight, **attributes))
    check_large_tiles(bundle, threads)


@pytest.mark.parametrize(("length", "threads"), [(199, 1), (199, 2), (31, 1)])
def test_rows_of_sound_are_cut_so_though_the_data_is_walked_once(length: int, threads: int) -> None:
    """A row of one position loads every weight for it, whichever of both is walked more often."""
    bundle = Bundle()
    data = bundle.input(bundle.integers((1, 64, 2 * length + 1), "int8"))
    weight = bundle.parameter(bundle.integers((256, 64, 3), "int8", -127, 127))
    attributes = {"kernel": (3,), "stride": (2,), "num_filter": 256, "no_bias": True}
    bundle.add("relu", bundle.hidden("Convolution", data, weight, **attributes))
    check_large_tiles(bundle, threads)


@pytest.mark.parametrize(("dtype", "threads"), [("uint8", 1), ("int8", 2), ("float32", 1), ("float32", 2)])
def test_results_are_those_of_the_graph(dtype: str, threads: int) -> None:
    graph, feeds = convolution(dtype)
    (expected,) = graph.evaluate(feeds)
    (found,) = TvmRunner({"features": ["-amx-int8"], "threads": threads}).prepare(graph)(feeds)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 if dtype == "float32" else 0)


@given(
    st.sampled_from(sorted(MACHINES)),
    st.integers(1, 64),
    st.integers(1, 24),
    st.integers(1, 600),
    st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1)]),
    st.booleans(),
    st.integers(0, 3),
)
def test_a_tile_fits_the_registers(
    cpu: str, positions: int, blocks: int, steps: int, forms: tuple[int, int], may_rest: bool, rows: int
) -> None:
    (parts, copies), machine = forms, MACHINES[cpu]
    found = register_tile(positions, blocks * parts, steps, machine, parts, copies, may_rest=may_rest, rows=rows)
    tile, together = found
    assert tile <= (positions if rows < 2 else 2 * positions)
    assert may_rest or rows or positions % tile == 0
    assert tile <= positions or tile == 2 * positions
    assert (blocks * parts) % together == 0
    assert together % parts == 0
    assert tile * together < machine.registers
    assert copies * tile * together <= machine.registers
    if machine.registers == FEW_REGISTERS and copies == 1 and steps > FEW_DOTS:
        assert tile * together + min(tile, together) + 2 <= machine.registers


@pytest.mark.parametrize(("steps", "is_short"), [(4, True), (9, True), (144, False)])
def test_tiles_of_short_sums_leave_room_for_the_next_one(steps: int, is_short: bool) -> None:
    """Two tiles of short sums, their results included, are among what a core works on; long ones fill the registers."""
    machine = MACHINES["cascadelake"]
    tile, blocks = register_tile(112, 1, steps, machine)
    assert (2 * tile * blocks * (steps + EPILOGUE) <= WINDOW * 1.1) is is_short
    assert is_short or tile == max(n for n in (28, 16, 14, 8) if n <= machine.registers - WORKING)


def test_thirteen_positions_fill_sixteen_registers() -> None:
    """Cut into less, their number being prime, each weight would be loaded for one position alone."""
    assert MACHINES["x86-64-v3"].registers == 16
    assert register_tile(13, 24, 128, MACHINES["x86-64-v3"]) == (13, 1)


@pytest.mark.parametrize(("count", "kept"), [(STACK_BYTES // 4, True), (STACK_BYTES // 4 + 1, False)])
def test_small_local_memory_is_on_the_stack(count: int, kept: bool) -> None:
    memory, local = tirx.decl_buffer((1,), "int32", "memory"), tirx.decl_buffer((count,), "int32", "local")
    i, zero = tirx.Var("i", "int32"), tirx.const(0, "int32")
    length = tirx.const(count, "int32")
    written = tirx.For(i, zero, length, tirx.ForKind.SERIAL, tirx.BufferStore(local, i, [i]))
    read = tirx.BufferStore(memory, tirx.BufferLoad(local, [tirx.BufferLoad(memory, [zero])]), [zero])
    function = tirx.PrimFunc([memory], tirx.SeqStmt([tirx.AllocBuffer(local), written, read]))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, tvm.target.Target({"kind": "llvm"}), tir_pipeline=KERNELS)
    assert ("Workspace" not in compiled.mod.inspect_source("ll")) == kept
    found = tvm.runtime.tensor(np.array([count - 1], np.int32))
    compiled["main"](found)
    assert found.numpy()[0] == count - 1
