"""What is proven to fit 16 bits is computed in int16, and gives the same integers."""

from __future__ import annotations

from itertools import product
from math import floor

import numpy as np
import pytest
from blocks import Blocks
from compiled import Bundle, assert_same_values, op
from layers import runnable

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.operators.int16 import MultiplyHighInt16, RequantizeInt16, RightShiftInt16
from mrt.backend.rewrites.narrow_to_int16 import NarrowToInt16
from mrt.backend.rewrites.rewrite import Facts
from mrt.backend.te.rounding import Rounding, choose_rounding
from mrt.symbol import Array, Graph, GraphBuilder, Interval, TensorType

VNNI = Facts(Machine.of({"mcpu": "cascadelake"}))
"""Of a machine that requantizes vectors of int16."""
ALL = np.arange(-(2**15), 2**15, dtype=np.int16)
"""Every int16."""


@pytest.mark.parametrize("factor", [1, -1, 3, 12345, -12345, 2**15 - 1, -(2**15)])
def test_the_upper_half_and_the_rest_of_the_shift_are_the_whole_one(factor: int) -> None:
    """For every int16 and shift; the oracle rounds the whole product, in integers of 64 bits."""
    upper = MultiplyHighInt16().evaluate(ALL, np.array([factor], np.int16))
    bounds = MultiplyHighInt16().bounds(
        Interval.of(-(2**15), 2**15 - 1, ALL.shape), Interval.constant(np.array([factor]))
    )
    assert (bounds.min, bounds.max) == (upper.min(), upper.max())
    assert upper.tolist() == [floor(int(x) * factor / 2**16) for x in ALL]
    for shift in range(17, 32):
        found = RightShiftInt16().evaluate(upper, np.array([shift - 16], np.int8))
        expected = (ALL.astype(np.int64) * factor + 2 ** (shift - 1)) >> shift
        np.testing.assert_array_equal(found, expected)


def test_the_form_of_rounding_follows_the_dtype_it_is_computed_in() -> None:
    for highest, form in ((2**15 - 9, Rounding.ADDED), (2**15 - 8, Rounding.TWO_SHIFTS)):
        assert choose_rounding(Interval.of(-1, highest, (5,)), np.array([4], np.int8), "int16") is form
    assert choose_rounding(Interval.of(0, 2**15 - 1, (5,)), np.array([15], np.int8), "int16") is Rounding.UNSIGNED


def requantized_sum(
    highest: int, factor: int, shift: int | Array, relu: bool = True, shape: tuple[int, ...] = (1,)
) -> Graph:
    """The sum of two tensors of int16 in [-highest, highest], requantized to bytes."""
    builder = GraphBuilder()
    terms = []
    for name in ("x", "y"):
        given = builder.input(name, TensorType((2**16,), "int16"))
        held = builder.apply(op("clip", a_min=-highest, a_max=highest), [given])
        terms.append(builder.apply(op("Cast", dtype="int16"), [held]))
    total = builder.apply(op("elemwise_add"), terms)
    total = builder.apply(op("relu"), [total]) if relu else total
    scaled = builder.apply(op("broadcast_mul"), [total, builder.parameter("f", np.full(shape, factor, np.int16))])
    shifted = builder.apply(op("right_shift"), [scaled, builder.parameter("s", np.full(shape, shift, np.int8))])
    held = builder.apply(op("clip", a_min=0 if relu else -127, a_max=255 if relu else 127), [shifted])
    return builder.graph([builder.apply(op("Cast", dtype="uint8" if relu else "int8"), [held])])


@pytest.mark.parametrize(
    ("graph", "narrow"),
    [
        (requantized_sum(16383, 32102, 22), {"add_int16", "multiply_high_int16", "right_shift_int16"}),
        (requantized_sum(16383, 32102, 22, relu=False), {"add_int16", "multiply_high_int16", "right_shift_int16"}),
        (requantized_sum(16383, -32768, 17, relu=False), {"add_int16", "multiply_high_int16", "right_shift_int16"}),
        (requantized_sum(16384, 32102, 22), set()),
        (requantized_sum(16383, 500, 16), {"add_int16"}),
        (requantized_sum(16383, 500, 17, shape=(2**16,)), {"add_int16"}),
    ],
    ids=["by a relu", "with a sign", "the largest product", "a sum of 17 bits", "a shift of 16", "several shifts"],
)
def test_what_fits_is_computed_in_int16(graph: Graph, narrow: set[str]) -> None:
    found = NarrowToInt16()(graph)
    assert {symbol.op for symbol in found.operators} & {
        "add_int16",
        "multiply_high_int16",
        "right_shift_int16",
    } == narrow
    feeds = {"x": ALL, "y": np.random.default_rng(0).permutation(ALL)}
    assert_same_values(found, found.evaluate(feeds), graph.evaluate(feeds))
    assert_same_values(graph, TvmRunner().prepare(graph)(feeds), graph.evaluate(feeds))


def test_each_channel_may_have_a_shift_where_vectors_of_int16_do() -> None:
    graph = requantized_sum(16383, 32102, np.arange(2**16) % 5 + 17, shape=(2**16,))
    found = NarrowToInt16(VNNI)(graph)
    assert {"add_int16", "multiply_high_int16", "right_shift_int16"} <= {symbol.op for symbol in found.operators}
    feeds = {"x": ALL, "y": np.random.default_rng(0).permutation(ALL)}
    assert_same_values(found, found.evaluate(feeds), graph.evaluate(feeds))
    assert_same_values(graph, TvmRunner().prepare(graph)(feeds), graph.evaluate(feeds))


@pytest.mark.parametrize("reader", ["Concat", "an output", "a convolution"])
def test_the_dtype_of_what_others_read_stays(reader: str) -> None:
    """Such as that of a Concat, whose inputs have one."""
    blocks = Blocks()
    data = blocks.stem()
    total = blocks.hidden("elemwise_add", data, data)
    if reader == "Concat":
        blocks.add("Concat", total, blocks.input(blocks.integers((3, 8, 9, 7), "int32", -9, 9)), dim=1)
    elif reader == "an output":
        blocks.outputs.append(total)
    else:
        blocks.add(
            "Convolution",
            total,
            blocks.parameter_of((8, 32, 1, 1), "int8", -9, 9),
            kernel=(1, 1),
            num_filter=8,
            no_bias=True,
        )
    graph = blocks.graph()
    found = NarrowToInt16()(graph)
    assert found.by_name[total.name].dtype == "int32"
    blocks.check()


def test_a_cast_of_what_is_clipped_is_a_clip_of_what_saturates() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2**16,), "int32"))
    held = builder.apply(op("clip", a_min=-390, a_max=391), [x])
    graph = builder.graph([builder.apply(op("Cast", dtype="int16"), [held], "word")])
    found = NarrowToInt16()(graph)
    assert [(s.op, s.dtype) for s in found.operators] == [("clip", "int32"), ("Cast", "int16"), ("clip", "int16")]
    feeds = {"x": np.append(ALL[1:].astype(np.int32) * 2**16, 391)}
    assert_same_values(found, found.evaluate(feeds), graph.evaluate(feeds))
    assert_same_values(graph, TvmRunner().prepare(graph)(feeds), graph.evaluate(feeds))


@pytest.mark.parametrize("cpu", ["sapphirerapids", "cascadelake", "x86-64-v3"])
def test_vectors_of_int16_are_multiplied_by_one_instruction(cpu: str) -> None:
    """512 bits at once where there are so many; with a multiplier of either sign."""
    blocks = Blocks()
    data = blocks.stem()
    for factor in (32102, -20000):
        blocks.finish(blocks.convolution(blocks.byte(blocks.block(data, blocks.byte(data)), factor), 16, (1, 1)))
        signed = blocks.hidden("elemwise_add", blocks.word(blocks.convolution(blocks.byte(data), 32, (1, 1))), data)
        blocks.finish(blocks.convolution(blocks.byte(signed, factor), 16, (1, 1)))
    graph, machine = blocks.graph(), Machine.of({"mcpu": cpu})
    module_builder = ModuleBuilder(machine)
    module_builder.add(graph, "main")
    parts = compile_executable(module_builder.module(), machine).kernels
    code = "".join(part.inspect_source("asm") for part in parts if part.kind == "llvm")
    register = "%zmm" if machine.vector_bits == 512 else "%ymm"
    for instruction in ("vpmulhuw", "vpmulhw"):
        assert any(instruction in line and register in line for line in code.splitlines()), instruction
    if cpu in runnable():
        assert_same_values(graph, TvmRunner({"mcpu": cpu}).prepare(graph)(blocks.feeds), graph.evaluate(blocks.feeds))


def scaled(
    factor: int, shift: int, highest: int = 2**18, limits: tuple[int, int] = (0, 255), moved: Array | None = None
) -> Graph:
    """x · factor / 2^shift, and what it is moved by, held to limits of a byte, of an x in [-2^18, highest]."""
    builder = GraphBuilder()
    given = builder.input("x", TensorType((2**18 + 2**17,), "int32"))
    held = builder.apply(op("clip", a_min=-(2**18), a_max=highest), [given])
    multiplied = builder.apply(op("broadcast_mul"), [held, builder.parameter("f", np.array([factor], np.int16))])
    shifted = builder.apply(op("right_shift"), [multiplied, builder.parameter("s", np.array([shift], np.int8))])
    if moved is not None:
        shifted = builder.apply(op("broadcast_add"), [shifted, builder.parameter("z", moved)])
    clipped = builder.apply(op("clip", a_min=limits[0], a_max=limits[1]), [shifted])
    return builder.graph([builder.apply(op("Cast", dtype="uint8" if limits[0] == 0 else "int8"), [clipped])])


def rounded(x: Array, factor: int, shift: int) -> Array:
    """x · factor / 2^shift in integers of 64 bits."""
    return (x.astype(np.int64) * factor + 2 ** (shift - 1)) >> shift


@pytest.mark.parametrize(
    ("factor", "shift", "highest", "early", "late"),
    [
        (4073, 20, 2**18, True, True),
        (4072, 20, 2**18, False, True),
        (8191, 21, 2**18, True, True),
        (5, 17, 2**16 - 1, True, True),
        (5, 17, 2**16, False, True),
        (255, 16, 2**18, False, False),
        (8191, 25, 2**18, False, True),
    ],
    ids=[
        "255 at 65520",
        "255 at 65536",
        "all bits",
        "no x above",
        "an x above",
        "a shift of 16",
        "less than 255 at all",
    ],
)
def test_sums_are_requantized_in_int16_where_they_hold_what_counts(
    factor: int, shift: int, highest: int, early: bool, late: bool
) -> None:
    """Of 4072 / 2^20 the least x that gives 255 is one too large for 16 bits, but not the upper half of the product."""
    graph, feeds = scaled(factor, shift, highest), {"x": np.arange(-(2**17), 2**18, dtype=np.int32)}
    exact = rounded(np.minimum(feeds["x"], highest), factor, shift)
    expected = [np.clip(exact, 0, 255).astype(np.uint8)]
    for facts, is_narrow in ((Facts(), early), (VNNI, late)):
        found = NarrowToInt16(facts)(graph)
        assert ("requantize_int16" in {symbol.op for symbol in found.operators}) is is_narrow
        assert_same_values(found, found.evaluate(feeds), expected)
    assert_same_values(graph, TvmRunner().prepare(graph)(feeds), expected)


@pytest.mark.parametrize(("factor", "shift", "is_narrow"), [(8190, 24, True), (5, 17, True), (500, 16, False)])
def test_sums_of_either_sign_are_requantized_in_int16(factor: int, shift: int, is_narrow: bool) -> None:
    graph = scaled(factor, shift, limits=(-127, 127))
    feeds = {"x": np.arange(-(2**17), 2**18, dtype=np.int32)}
    found = NarrowToInt16(VNNI)(graph)
    assert ({"multiply_high_int16", "right_shift_int16"} <= {symbol.op for symbol in found.operators}) is is_narrow
    expected = [np.clip(rounded(feeds["x"], factor, shift), -127, 127).astype(np.int8)]
    assert_same_values(found, found.evaluate(feeds), expected)
    assert_same_values(graph, TvmRunner().prepare(graph)(feeds), expected)


@pytest.mark.parametrize(
    ("shift", "moved", "dtype", "is_narrow"),
    [(24, 117, "uint8", True), (17, -(2**15), "int16", False), (17, 2**14 - 1, "int16", True), (24, 9, "int32", False)],
    ids=["by a zero point", "beyond 16 bits", "as far as 16 bits go", "of 32 bits"],
)
@pytest.mark.parametrize("limits", [(0, 255), (-128, 127)], ids=str)
def test_sums_that_are_moved_are_requantized_in_int16(
    shift: int, moved: int, dtype: str, is_narrow: bool, limits: tuple[int, int]
) -> None:
    """As those of a zero point are, whose result may be anywhere."""
    graph = scaled(8190, shift, limits=limits, moved=np.array([moved], dtype))
    feeds = {"x": np.arange(-(2**17), 2**18, dtype=np.int32)}
    found = NarrowToInt16(VNNI)(graph)
    steps = {"multiply_high_int16", "right_shift_int16", "add_int16"}
    assert (steps <= {symbol.op for symbol in found.operators}) is is_narrow
    exact = rounded(feeds["x"], 8190, shift) + moved
    expected = [np.clip(exact, *limits).astype("uint8" if limits[0] == 0 else "int8")]
    assert_same_values(found, found.evaluate(feeds), expected)
    assert_same_values(graph, TvmRunner().prepare(graph)(feeds), expected)


def test_sums_that_each_channel_moves_stay_in_int32() -> None:
    graph = scaled(8190, 24, limits=(-127, 127), moved=np.zeros(2**18 + 2**17, np.int8))
    assert "add_int16" not in {symbol.op for symbol in NarrowToInt16(VNNI)(graph).operators}


@pytest.mark.parametrize("early", [True, False])
def test_the_bounds_of_a_requantization_are_reached(early: bool) -> None:
    given, scale = (np.array([-5, 70000]), np.array([3, 32767]), np.array([18, 20])), RequantizeInt16(early)
    bounds = scale.bounds(*(Interval.of(each.min(), each.max(), (1,)) for each in given))
    ends = [scale.evaluate(*(np.array([n]) for n in at)) for at in product(*given)]
    assert (bounds.min, bounds.max) == (min(ends), max(ends))


@pytest.mark.parametrize("cpu", runnable())
def test_sums_of_convolutions_are_requantized_in_int16(cpu: str) -> None:
    """Pairs of blocks of 16 channels, an odd number of them, and channels that fill none."""
    bundle = Bundle()
    for channels in (64, 48, 144, 20):
        data = bundle.hidden("clip", bundle.input(bundle.integers((1, 24, 5, 8), "uint8")), a_min=0, a_max=255)
        weight = bundle.parameter(bundle.integers((channels, 24, 1, 1), "int8", -127, 127))
        layer = bundle.hidden("Convolution", data, weight, kernel=(1, 1), num_filter=channels, no_bias=True)
        per_channel = (1, channels, 1, 1)
        biased = bundle.hidden("broadcast_add", layer, bundle.parameter(bundle.integers(per_channel, "int16")))
        factor = bundle.parameter(bundle.integers(per_channel, "int16", 2**10, 2**11 - 1))
        scaled = bundle.hidden("broadcast_mul", biased, factor)
        shifted = bundle.hidden("right_shift", scaled, bundle.parameter(bundle.integers(per_channel, "int8", 17, 18)))
        clipped = bundle.hidden("clip", shifted, a_min=0, a_max=255)
        bundle.add("Cast", clipped, dtype="uint8")
    graph = bundle.graph()
    found = NarrowToInt16()(graph)
    assert sum(symbol.op == "requantize_int16" for symbol in found.operators) == 4
    bundle.check(runner=TvmRunner({"kind": "llvm", "mcpu": cpu}))


@pytest.mark.parametrize("cpu", runnable())
@pytest.mark.parametrize("count", [8, 16, 24, 64])
def test_every_shift_of_a_requantization(cpu: str, count: int) -> None:
    """17 to 31, each of another channel, of sums from far below 0 to the last that 16 bits hold."""
    bundle, at = Bundle(), (1, count, 1, 1)
    ends = np.array([-(2**16), -1, 0, 1, 2**15, 2**16 - 2, 2**16 - 1], np.int32)
    data = bundle.random.choice(ends, (1, count, 7, 8)).astype(np.int32)
    given = bundle.hidden("clip", bundle.input(data), a_min=-(2**16), a_max=2**16 - 1)
    shift = (np.arange(count) % 15 + 17).astype(np.int8).reshape(at)
    factor = np.minimum(2**15 - 1, 2 ** (shift.astype(np.int32) - 16)).astype(np.int16) - np.int16(1)
    scaled = bundle.hidden("broadcast_mul", given, bundle.parameter(factor))
    shifted = bundle.hidden("right_shift", scaled, bundle.parameter(shift))
    clipped = bundle.hidden("clip", shifted, a_min=0, a_max=2**15 - 1)
    bundle.add("Cast", clipped, dtype="uint8" if count <= 16 else "int16")
    bundle.check(runner=TvmRunner({"kind": "llvm", "mcpu": cpu}))


@pytest.mark.parametrize("cpu", runnable())
def test_sums_of_every_place_are_narrowed_together(cpu: str) -> None:
    """Vectors of sums by four, by less at the end of a tile, at two lines at once, and with limits of either sign."""
    bundle = Bundle()
    cases = [
        ((1, 48, 8, 14), {"kernel": (3, 3), "pad": (1, 1)}, 48),
        ((1, 48, 7, 7), {"kernel": (3, 3), "pad": (1, 1)}, 48),
        ((1, 16, 15, 11), {"kernel": (3, 3), "stride": (2, 2)}, 16),
        ((1, 24, 7, 7), {"kernel": (1, 1)}, 1),
        ((1, 3, 9, 9), {"kernel": (3, 3)}, 1),
    ]
    for shape, attributes, groups in cases:
        filters = groups if groups > 1 else 48
        per_channel = (1, filters, 1, 1)
        data = bundle.hidden("clip", bundle.input(bundle.integers(shape, "uint8")), a_min=0, a_max=255)
        window = (filters, shape[1] // groups, *attributes["kernel"])
        weight = bundle.parameter(bundle.integers(window, "int8", -127, 127))
        facts = {"num_filter": filters, "num_group": groups, "no_bias": True}
        layer = bundle.hidden("Convolution", data, weight, **attributes, **facts)
        for least, most, dtype in ((0, 255, "uint8"), (-127, 127, "int8")):
            factor = bundle.parameter(bundle.integers(per_channel, "int16", 2**9, 2**12 - 1))
            scaled = bundle.hidden("broadcast_mul", layer, factor)
            shift = bundle.parameter(bundle.integers(per_channel, "int8", 19, 20))
            clipped = bundle.hidden("clip", bundle.hidden("right_shift", scaled, shift), a_min=least, a_max=most)
            bundle.add("Cast", clipped, dtype=dtype)
    bundle.check(runner=TvmRunner({"kind": "llvm", "mcpu": cpu}))


@pytest.mark.parametrize(
    ("channels", "dtype", "is_narrow"), [(16, "int16", False), (17, "int16", True), (16, "uint8", True)]
)
def test_few_channels_of_int16_are_requantized_in_int32(channels: int, dtype: str, is_narrow: bool) -> None:
    """One vector of 32 bits holds them, and two of its rows are no vector of int16."""
    builder, highest = GraphBuilder(), {"int16": 4095.0, "uint8": 255.0}[dtype]
    given = builder.input("x", TensorType((1, channels, 3, 3), "int32"))
    held = builder.apply(op("clip", a_min=-(2**18), a_max=2**18), [given])
    multiplied = builder.apply(
        op("broadcast_mul"), [held, builder.parameter("f", np.full((1, 1, 1, 1), 8000, np.int16))]
    )
    shifted = builder.apply(op("right_shift"), [multiplied, builder.parameter("s", np.full((1, 1, 1, 1), 18, np.int8))])
    clipped = builder.apply(op("clip", a_min=0.0, a_max=highest), [shifted])
    graph = builder.graph([builder.apply(op("Cast", dtype=dtype), [clipped])])
    found = NarrowToInt16(VNNI)(graph)
    assert ("requantize_int16" in {symbol.op for symbol in found.operators}) is is_narrow
