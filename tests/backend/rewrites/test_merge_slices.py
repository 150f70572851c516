"""Sums over slices are compiled as one reduction where that is the same integers, and left as they are where not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from compiled import assert_same_values

from mrt.backend import TvmRunner
from mrt.backend.machine import Machine
from mrt.backend.rewrites.merge_slices import MergeSlices
from mrt.backend.rewrites.rewrite import Facts
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Operator, Symbol, TensorType
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import SliceAxis
from tests.matrix import PAIRS, extreme_feeds
from tests.quantization.networks import chain, quantize_and_run, random_samples

VECTORS = Machine.of({"kind": "llvm", "mcpu": "cascadelake"})
"""Multiplies bytes in vectors, and has no tiles."""
SHAPE = (1, 6, 5, 4)
REDUCTIONS: dict[str, tuple[tuple[int, ...], Operator, tuple[int, ...]]] = {
    "convolution": (SHAPE, Convolution((3, 2), 4, no_bias=True), (4, 6, 3, 2)),
    "convolution over time": ((1, 6, 9), Convolution((3,), 4, stride=(2,), no_bias=True), (4, 6, 3)),
    "deconvolution": (SHAPE, Deconvolution((3, 3), 4, stride=(2, 2)), (6, 4, 3, 3)),
    "dense": ((3, 6), FullyConnected(5, no_bias=True), (5, 6)),
    "dense, flattening": (SHAPE, FullyConnected(5, no_bias=True), (5, 120)),
    "dense, last axis": ((2, 3, 6), FullyConnected(5, no_bias=True, flatten=False), (5, 6)),
}


def normal(*shape: int) -> Array:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def count(graph: Graph, op: str) -> int:
    return sum(symbol.op == op for symbol in graph.operators)


@pytest.mark.parametrize(
    ("name", "pair"), [(name, pair) for place, name in enumerate(REDUCTIONS) for pair in PAIRS[place % 2 :: 2]]
)
def test_split_reductions_become_one_and_give_the_same_integers(name: str, pair: tuple[str, str]) -> None:
    """In groups of 4 of 6 channels for the data and of 2 for the weight: three slices become none."""
    shape, operator, weight_shape = REDUCTIONS[name]
    axis = operator.data_channel_axis(len(shape))
    constants = np.exp2(-np.arange(6.0)).reshape(tuple(-1 if i == axis else 1 for i in range(len(shape))))
    graph = chain(shape, (BroadcastMul(), [constants]), (operator, [normal(*weight_shape)]))
    sections = {
        "activation": {"quantizer": pair[0], "granularity": {"channel": 4}},
        "weight": {"quantizer": pair[1], "granularity": {"channel": 2}},
    }
    integer = quantize_and_run(graph, random_samples(graph), QuantizationConfig.model_validate(sections)).integer
    assert count(integer.graph, "slice_axis") == 3
    merged = MergeSlices()(integer.graph)
    assert count(merged, "slice_axis") == count(merged, "add_n") == 0 and count(merged, operator.op) == 1
    assert len(merged.operators) <= len(integer.graph.operators) - 8
    run = TvmRunner().prepare(integer.graph)
    for feeds in extreme_feeds(integer):
        expected = integer.graph.evaluate(feeds)
        assert_same_values(merged, merged.evaluate(feeds), expected)
        assert_same_values(integer.graph, run(feeds), expected)


def slices_of(
    ends: tuple[tuple[int, int], ...] = ((0, 2), (2, 5), (5, 6)),
    factors: tuple[Array | None, ...] = (None, np.array([3]), np.array([[[[1]], [[2]], [[7]]]])),
    dtype: str = "int8",
    largest: int = 127,
) -> Graph:
    """add_n of convolutions of slices of (1, 6, 3, 3) to three channels, each times a factor."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 6, 3, 3), dtype))
    terms: list[Symbol] = []
    kind = np.float32 if dtype == "float32" else np.int16
    for index, ((begin, end), factor) in enumerate(zip(ends, factors, strict=True)):
        part = builder.apply(SliceAxis(1, begin, end), [x])
        weight = np.full((3, end - begin, 1, 1), largest) - np.arange(3).reshape(3, 1, 1, 1)
        parameter = builder.parameter(f"w{index}", weight.astype(kind))
        term = builder.apply(Convolution((1, 1), 3, no_bias=True), [part, parameter])
        if factor is not None:
            term = builder.apply(BroadcastMul(), [term, builder.parameter(f"f{index}", factor.astype(kind))])
        terms.append(term)
    return builder.graph([builder.apply(AddN(), terms, "total")])


def is_merged(graph: Graph) -> bool:
    """Whether one convolution is left; what the graph means stays in either case."""
    merged = MergeSlices()(graph)
    rng = np.random.default_rng(0)
    values = rng.integers(-128, 127, (1, 6, 3, 3), endpoint=True).astype(graph.inputs[0].dtype)
    assert_same_values(merged, merged.evaluate({"x": values}), graph.evaluate({"x": values}))
    if count(merged, "add_n"):
        assert len(merged.operators) == len(graph.operators)
        return False
    return [symbol.op for symbol in merged.operators] == ["Convolution"]


def test_factors_of_one_or_of_every_output_channel_go_into_the_weight() -> None:
    assert is_merged(slices_of())


@pytest.mark.parametrize(
    "ends",
    [
        ((0, 2), (2, 4), (4, 5)),
        ((1, 2), (2, 5), (5, 6)),
        ((0, 2), (3, 5), (5, 6)),
        ((0, 3), (2, 5), (5, 6)),
        ((2, 5), (0, 2), (5, 6)),
        ((0, 6), (0, 6), (0, 6)),
    ],
)
def test_slices_that_do_not_cover_the_channels_once_and_in_order_are_left(ends: tuple[tuple[int, int], ...]) -> None:
    assert not is_merged(slices_of(ends))


@pytest.mark.parametrize("factor", [np.arange(3).reshape(1, 1, 1, 3), np.arange(9).reshape(3, 3)])
def test_a_factor_that_varies_with_the_position_is_left(factor: Array) -> None:
    """Also where there are as many positions as output channels."""
    assert not is_merged(slices_of(factors=(None, None, factor)))


def test_slices_in_floating_point_are_left() -> None:
    assert not is_merged(slices_of(factors=(None, np.array([0.25]), None), dtype="float32"))


@pytest.mark.parametrize(
    ("factor", "data", "fits"),
    [
        (169, (-128, 127), True),
        (170, (-128, 127), False),
        (170, (-127, 127), True),
        (340, (-64, 63), True),
        (341, (-64, 63), False),
    ],
)
def test_a_sum_that_might_exceed_32_bits_for_what_is_known_of_the_data_is_left(
    factor: int, data: tuple[int, int], fits: bool
) -> None:
    """Over slices of 2, 3 and 1 channels of up to m it is at most (2 + 3 f + 1) m (2^15 - 1): 2^31 at f = 169.7 for
    128, and at 340.3 for 64."""
    graph = slices_of(factors=(None, np.array([factor]), None), largest=2**15 - 1)
    (x,) = graph.inputs
    merged = MergeSlices(Facts(known={x.name: Interval.of(*data, x.shape)})).run(graph)
    assert (count(merged.graph, "add_n") == 0) == fits
    if not fits:
        (refusal,) = merged.refusals
        assert refusal.symbol == "total" and "32 bits" in refusal.reason


def in_slices(lengths: Sequence[int], kernel: int, factor: int = 2, largest: int = 127) -> Graph:
    """add_n of convolutions of slices to two channels, each but the first times a factor."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, sum(lengths), 4, 4), "uint8"))
    terms: list[Symbol] = []
    for index, length in enumerate(lengths):
        begin = sum(lengths[:index])
        weight = np.arange(2 * length * kernel**2).reshape(2, length, kernel, kernel) % (2 * largest) - largest
        parameter = builder.parameter(f"w{index}", weight.astype(np.int16))
        part = builder.apply(SliceAxis(1, begin, begin + length), [x])
        term = builder.apply(Convolution((kernel,) * 2, 2, no_bias=True), [part, parameter])
        if index:
            term = builder.apply(BroadcastMul(), [term, builder.parameter(f"f{index}", np.array([factor], np.int16))])
        terms.append(term)
    return builder.graph([builder.apply(AddN(), terms, "total")])


@pytest.mark.parametrize(
    ("lengths", "kernel", "width"),
    [
        ((16, 16), 1, 16),
        ((16, 16, 3), 1, 16),
        ((4, 4, 4, 4), 3, 4),
        ((8, 8, 5), 2, 8),
        ((4, 4), 1, 0),
        ((3, 3), 3, 0),
        ((1, 1, 1), 3, 0),
        ((8, 4, 8), 3, 4),
        ((4, 8), 3, 4),
        ((48, 16), 3, 16),
        ((20, 20, 8), 3, 4),
        ((8, 16), 1, 0),
        ((8, 6, 8), 3, 0),
        ((20, 20, 8), 1, 0),
    ],
)
def test_slices_of_enough_whole_dots_stay_apart_within_one_operator(
    lengths: Sequence[int], kernel: int, width: int
) -> None:
    """Those of several lengths are cut; not those that are too short to pay then, or are not whole dots."""
    graph = in_slices(lengths, kernel)
    (merged,) = MergeSlices(Facts(VECTORS))(graph).operators
    assert getattr(merged.operator, "width", 0) == width
    assert merged.op == ("sliced_convolution" if width else "Convolution")
    values = np.random.default_rng(0).integers(0, 255, graph.inputs[0].shape, "uint8", endpoint=True)
    assert_same_values(graph, MergeSlices(Facts(VECTORS))(graph).evaluate({"x": values}), graph.evaluate({"x": values}))


def test_slices_are_multiplied_by_bytes_where_folded_weights_take_words() -> None:
    """Sums of so many channels fit 32 bits, but not those of both bytes of the weights: then a dot has half of the
    products."""
    (merged,) = MergeSlices(Facts(VECTORS))(in_slices((1024, 960), 1, 137)).operators
    assert getattr(merged.operator, "width", 0) == 64


@pytest.mark.parametrize("factor", [0, -2])
def test_factors_that_are_not_positive_go_into_the_weight(factor: int) -> None:
    """A slice's own sum would not be bounded by the total's."""
    (merged,) = MergeSlices(Facts(VECTORS))(in_slices((16, 16), 3, factor)).operators
    assert merged.op == "Convolution"


def test_wide_weights_are_not_multiplied_in_slices() -> None:
    (merged,) = MergeSlices(Facts(VECTORS))(in_slices((16, 16), 3, largest=200)).operators
    assert merged.op == "Convolution"


@pytest.mark.parametrize("cpu", ["x86-64-v4", "sapphirerapids"])
def test_machines_without_products_of_bytes_or_with_tiles_take_the_folded_weight(cpu: str) -> None:
    (merged,) = MergeSlices(Facts(Machine.of({"kind": "llvm", "mcpu": cpu})))(in_slices((16, 16), 3)).operators
    assert merged.op == "Convolution"


def test_different_operators_on_the_slices_are_left() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 6, 3, 3), "int8"))
    terms = []
    for begin, pad in ((0, 0), (3, 1)):
        part = builder.apply(SliceAxis(1, begin, begin + 3), [x])
        weight = builder.parameter(f"w{begin}", np.ones((3, 3, 1 + 2 * pad, 1 + 2 * pad), np.int8))
        operator = Convolution((1 + 2 * pad,) * 2, 3, pad=(pad, pad), no_bias=True)
        terms.append(builder.apply(operator, [part, weight]))
    assert not is_merged(builder.graph([builder.apply(AddN(), terms, "total")]))
