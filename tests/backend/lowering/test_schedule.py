"""Schedules and kernel passes: which one is taken, what is lowered, and why something is left alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from compiled import Bundle
from layers import Layers, kernel_texts
from networks import IntegerNetwork
from tvm import tirx

from mrt.backend import TvmRunner, compiled_text, explain
from mrt.backend.kernels import KERNEL_PASSES
from mrt.backend.kernels.generic.lower_blocks import KernelPass, marks_of, without_marks
from mrt.backend.lowering.plan_calls import plan_calls
from mrt.backend.machine import Machine
from mrt.backend.tir.statements import plain_block, serial, with_root
from mrt.errors import GraphError
from mrt.symbol import Graph
from mrt.symbol.passes import BaseResult, Property, run_in_order

CPUS = ("sapphirerapids", "cascadelake", "haswell", "x86-64")


def convolution(shape: tuple[int, ...], filters: int, byte_results: bool = True) -> Graph:
    """A 1 x 1 convolution of uint8 data that is clipped at 0, and scaled to bytes or left as it is."""
    bundle = Bundle()
    data = bundle.hidden("clip", bundle.input(bundle.integers(shape, "uint8")), a_min=0.0, a_max=255.0)
    weight = bundle.parameter(bundle.integers((filters, shape[1], 1, 1), lo=-127))
    attributes: dict[str, Any] = {"kernel": (1, 1), "num_filter": filters, "no_bias": True}
    if not byte_results:
        bundle.add("Convolution", data, weight, **attributes)
        return bundle.graph()
    made = bundle.hidden("Convolution", data, weight, **attributes)
    scaled = bundle.hidden("broadcast_mul", made, bundle.parameter(bundle.integers((1, filters, 1, 1), lo=1)))
    shifted = bundle.hidden("right_shift", scaled, bundle.parameter(bundle.integers((1, filters, 1, 1), lo=17, hi=18)))
    bundle.add("Cast", bundle.hidden("clip", shifted, a_min=0.0, a_max=255.0), dtype="uint8")
    return bundle.graph()


def refusals(graph: Graph, cpu: str, threads: int = 1) -> dict[str, str]:
    """Of the kernel of the only convolution, by what it does without."""
    machine = Machine.of({"mcpu": cpu, "threads": threads})
    plan = plan_calls(graph, machine, lambda key, name, make: name, {}, {})
    (lowered,) = [
        call.lowered
        for call in plan.calls
        if call.lowered is not None and any(symbol.op == "Convolution" for symbol in call.lowered.region.symbols)
    ]
    return {each.symbol: each.reason for each in lowered.refusals(machine)}


def test_tiles_are_refused_where_vectors_are_faster() -> None:
    found = refusals(convolution((1, 64, 1, 2), 64), "sapphirerapids")
    assert found["amx_tiles"] == "fewer than 4 positions or dots are in a row"
    assert "amx_tiles" not in refusals(convolution((1, 64, 14, 14), 64), "sapphirerapids")
    assert "amx_tiles" not in refusals(convolution((1, 64, 1, 2), 64), "cascadelake")


def test_results_that_are_no_bytes_are_not_stored_packed() -> None:
    wide = refusals(convolution((1, 64, 14, 14), 64, byte_results=False), "cascadelake")
    assert wide["packed_store"] == "results are no bytes that were requantized by int16"


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((1, 512, 28, 28), "rows of 784 positions can be cut into equal tiles"),
        ((1, 16, 7, 7), "the data is walked once, so that its loads are what counts"),
    ],
)
def test_tiles_are_jammed_only_where_that_saves_loads(shape: tuple[int, ...], reason: str) -> None:
    assert refusals(convolution(shape, 128), "cascadelake")["unroll_and_jam"] == reason


def test_inspect_tells_what_kernels_do_without() -> None:
    graph = convolution((1, 64, 14, 14), 64, byte_results=False)
    text = compiled_text(explain(graph, [], {"mcpu": "cascadelake"}))
    assert "    without packed_store: results are no bytes that were requantized by int16" in text.splitlines()


@pytest.mark.parametrize("cpu", CPUS)
def test_no_mark_of_a_pass_is_left(cpu: str) -> None:
    """Nothing that a schedule asks for is forgotten, in any kernel of a network."""
    lowered = {mark for each in KERNEL_PASSES if isinstance(each, KernelPass) for mark in each.marks}
    left: list[str] = []

    def add(key: Any, name: str, make: Any) -> str:
        function = make(lambda function, scheduled: scheduled(lambda tilings: next(iter(tilings))))
        left.extend(mark for mark in marks_of(function) if mark in lowered)
        return name

    plan_calls(IntegerNetwork(1).graph, Machine.of({"mcpu": cpu, "threads": 1}), add, {}, {})
    assert left == []


@dataclass(frozen=True)
class Renamed(KernelPass):
    """A pass that keeps the mark that it says it lowers."""

    marks: ClassVar[tuple[str, ...]] = ("kept",)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks("kept"),)

    def lower(self, function: Any) -> Any:
        return function


def test_passes_on_functions_are_held_to_what_they_ensure() -> None:
    """By the runner that serves passes on graphs, too."""
    empty = tirx.PrimFunc([], tirx.Evaluate(tirx.const(0, "int32")))
    root = tirx.PrimFunc([], plain_block("root", empty.body, []))
    loop = serial(tirx.Var("i", "int32"), 2, empty.body, "kept")
    assert run_in_order(root, (Renamed(),)) == BaseResult(root)
    with pytest.raises(GraphError, match="pass renamed: no kept left does not hold: kept"):
        run_in_order(with_root(root, loop), (Renamed(),))


def joined(shapes: Sequence[tuple[int, ...]], dim: int, reads: bool) -> Layers:
    """A Concat of parts that are copied, and where it is read by a convolution, one whose channels are innermost."""
    layers = Layers()
    parts = [layers.input(layers.integers(shape, "int8")) for shape in shapes]
    if not reads:
        layers.add("Concat", *parts, dim=dim)
        return layers
    halves = [layers.requantized(layers.convolution(part, part.shape[1], (1, 1)), "int8") for part in parts]
    whole = layers.hidden("Concat", *halves, dim=dim)
    layers.finish(layers.convolution(whole, 8, (1, 1)))
    for half in halves:
        layers.add("relu", half)
    return layers


def test_rows_that_are_joined_are_walked_in_pieces_of_one_part() -> None:
    layers = joined([(1, 3, 1600), (1, 3, 400), (1, 3, 100)], 2, reads=False)
    layers.check()
    (text,) = kernel_texts(layers.graph())
    assert "T.grid(1, 3, 21, 100)" in text


def test_channels_that_are_joined_are_pieces_of_one_part() -> None:
    layers = joined([(1, 24, 6, 6), (1, 24, 6, 6), (1, 40, 6, 6)], 1, reads=True)
    layers.check()
    (text,) = [each for each in kernel_texts(layers.graph()) if "if_then_else" in each]
    assert re.findall(r"in range\(([0-9, ]+)\)", text) == ["24", "24, 48", "48, 88", "88, 96"]


def test_what_is_cut_out_is_walked_without_divisions() -> None:
    layers = Layers()
    layers.add("slice", layers.input(layers.integers((1, 3, 8, 10), "int8")), begin=(0, 0, 1, 0), end=(1, 3, 7, 9))
    layers.check()
    (text,) = kernel_texts(layers.graph())
    assert "T.grid(1, 3, 6, 9)" in text


@pytest.mark.parametrize("is_output", [False, True], ids=["alone", "beside the sums"])
@pytest.mark.parametrize(("function", "loops"), [("relu", "T.unroll(14)"), ("sigmoid", "T.grid(14, 2)")])
def test_what_is_long_is_not_written_out_for_each_sum_of_a_tile(function: str, loops: str, is_output: bool) -> None:
    layers = Layers()
    data, weight = layers.input(layers.floats(1, 16, 14, 14)), layers.parameter(layers.floats(32, 16, 1, 1))
    add = layers.add if is_output else layers.hidden
    layers.add(function, add("Convolution", data, weight, kernel=(1, 1), num_filter=32, no_bias=True))
    layers.check(tolerance=1e-5)
    (text,) = [each for each in kernel_texts(layers.graph()) if "dots_update" in each]
    behind_sums = text[text.rindex("dots[v_i0, v_i1, v_i2] +") :]
    assert loops in behind_sums
    assert ("T.unroll" in behind_sums) == ("T.unroll" in loops)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("widths", "rows"),
    [((1, 1, 1, 1), ["1, 14"]), ((2, 1, 3, 0), ["3, 16"]), ((0, 0, 0, 2), ["range(13)"]), ((3, 3, 0, 0), [])],
    ids=["all round", "left", "right", "above and below"],
)
def test_the_border_of_an_image_is_walked_apart(widths: tuple[int, ...], rows: list[str], threads: int) -> None:
    """Of so few channels, each in a plane of its own: without conditions LLVM makes vectors of what lies within."""
    layers = Layers()
    x = layers.input(layers.integers((2, 3, 11, 13), "int8"))
    padded = layers.padded(x, *widths, value=-7)
    layers.add("relu", padded)
    layers.finish(layers.convolution(padded, 16, (3, 3)))
    layers.check(runner=TvmRunner({"mcpu": "native", "threads": threads}))
    (text,) = [each for each in kernel_texts(layers.graph()) if "T.unroll(4)" in each and "conv" not in each]
    for each in rows:
        assert each in text
    assert ("_partition" in text) == bool(rows)


def test_the_border_is_not_walked_apart_where_variables_are_bound() -> None:
    """TVM would bind them twice."""
    layers = Layers()
    padded = layers.padded(layers.input(layers.floats(1, 3, 11, 13)), 1, 1, 1, 1)
    layers.add("sigmoid", padded)
    weight = layers.parameter(layers.floats(16, 3, 3, 3))
    layers.add("Convolution", layers.hidden("sigmoid", padded), weight, kernel=(3, 3), num_filter=16, no_bias=True)
    layers.check(tolerance=1e-5)
    assert not any("_partition" in text for text in kernel_texts(layers.graph()))


def test_the_border_is_not_walked_apart_where_several_are_made_at_once() -> None:
    layers = Layers()
    x, weight = layers.input(layers.floats(1, 3, 11, 13)), layers.parameter(layers.floats(3, 3, 1, 1))
    product = layers.add("Convolution", x, weight, kernel=(1, 1), num_filter=3, no_bias=True)
    clipped = layers.add("clip", product, a_min=-0.5, a_max=0.5)
    padded = layers.add("Pad", clipped, pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
    layers.add("relu", padded)
    weight = layers.parameter(layers.floats(16, 3, 3, 3))
    layers.add("Convolution", padded, weight, kernel=(3, 3), num_filter=16, no_bias=True)
    layers.check(tolerance=1e-5)
