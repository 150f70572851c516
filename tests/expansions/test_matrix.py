"""Every operator, quantizer, granularity and width: integers within the analytic bound of float, and within 32 bits.

Corner cases that stand elsewhere: right shifts by 0, 1, 2 and 31 of negative odd numbers and of the extremes in
tests/symbol/test_integer_operators.py; the choice of multipliers at its ends in tests/quantization/test_requantize.py;
roundings of +-0.5 in parameters in tests/quantization/test_quantizer.py; pruned channels, awkward constants and weights
of every magnitude in test_expansions.py; functions at infinity and outside of their domain in test_function_tables.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mrt
from mrt.model import assemble
from mrt.quantization.expand import expand_graph
from mrt.quantization.expansion import expanded_operators
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.activation import Relu, Tanh
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.functions import Log
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Concat, Flatten
from tests.error_rules import RULES
from tests.matrix import (
    DRAWS,
    PAIRS,
    QUANTIZERS,
    STEPS,
    Case,
    Data,
    Weights,
    assert_proven_at_extremes,
    assert_within_bounds,
    extreme_feeds,
)
from tests.matrix_cases import CASES, GROUPED_CASES
from tests.quantization.networks import chain, like_channels, observe, quantize_and_run, random_samples

USEFUL = 0.3
"""A bound says something where it is at most this share of the largest output."""
T = TypeVar("T")
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


def test_every_operator_with_an_integer_form_has_a_case_and_a_bound() -> None:
    covered = {symbol.op for case in CASES for symbol in case.graph.operators}
    # What the network rounds itself is held to its own definition: see test_trained_quantization.py.
    # Functions that have a value near 0 or above 1 only are held to theirs in test_function_tables.py.
    elsewhere = {"FakeQuantize", "quantize", "dequantize", "tan", "arcsin", "arccos", "arccosh", "arctanh"}
    elsewhere |= {"isnan", "isinf"}  # which are 0 of every integer
    # Casts move integers, quotients have no bound near a divisor of 0, what is assigned is an output and an input,
    # not every format exports elements in their order: see test_cast.py, test_division.py, test_states.py and
    # test_ordering.py.
    elsewhere |= {"Cast", "broadcast_div", "assign", "topk"}
    assert expanded_operators() - elsewhere == set(RULES) == covered


def in_turn(case: Case) -> list[QuantizationConfig]:
    """Half of the case's quantizers and granularities, of which any two still meet; the other half of its neighbour."""
    turn = (GROUPED_CASES.index(case) // len(STEPS) if case.step else CASES.index(case)) % 2
    return [config for place, config in enumerate(case.configs()) if place.bit_count() % 2 == turn]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES + GROUPED_CASES, ids=str)
def test_eight_bits(case: Case, tmp_path: Path) -> None:
    """Ordinary data; the model of one scale is verified from its files.

    Operators without a weight have every quantizer; others, and channel groups, have them in turn.
    """
    samples = [case.draw(seed) for seed in (1, 2)]
    ranges = observe(case.graph, samples)
    for config in in_turn(case) if case.has_weight or case.step else case.configs():
        useful = np.inf if case.is_loose or case.step is not None else USEFUL
        integer = assert_within_bounds(case.graph, samples, config, useful, ranges)
        assert_proven_at_extremes(integer)
    if case.step is None:
        assemble(integer, None, {}).save(tmp_path)
        assert mrt.verify(tmp_path).max_bits <= 32


@pytest.mark.sampled(2)
@EVERY_CASE
def test_kinds_of_data(case: Case) -> None:
    """Zero points at both ends of the range and outside, ties, constants, extremes; quantizers, and groups, in turn.

    Every third case has every third kind.
    """
    place, forms = CASES.index(case), [case, replace(case, step=1), case, replace(case, step=3)]
    for turn, kind in enumerate(list(DRAWS)[place % 3 :: 3]):
        form = forms[(turn + place // 3) % 4]
        configs = list(form.configs())
        config = configs[(turn + place // 6) % len(configs)]
        assert_within_bounds(form.graph, [form.draw(3 + turn, kind)], config)


def rotated(values: list[T], turns: int) -> list[T]:
    return values[turns % len(values) :] + values[: turns % len(values)]


@pytest.mark.sampled(4)
@EVERY_CASE
@settings(max_examples=1 if settings().derandomize else 2)
@given(data=st.data())
def test_drawn_data_and_widths(case: Case, data: st.DataObject) -> None:
    """The first values of all lists are drawn before any others: they are others for each case."""
    place = CASES.index(case)
    case = replace(case, step=data.draw(st.sampled_from(rotated([None, *STEPS], place)), "step"))
    bits = data.draw(st.sampled_from(rotated([4, 16], place // 3)), "bits")
    config = data.draw(st.sampled_from(rotated(list(case.configs(bits)), place // 2)), "config")
    kind = data.draw(st.sampled_from(rotated(list(DRAWS), place)), "kind")
    seed = data.draw(st.integers(0, 2**16), "seed")
    integer = assert_within_bounds(case.graph, [case.draw(seed, kind), case.draw(seed + 1, kind)], config)
    assert_proven_at_extremes(integer)


def without_groups(config: QuantizationConfig) -> QuantizationConfig:
    """The same with one scale per tensor."""
    layer = {"granularity": "layer"}
    update = {
        "activation": config.activation.model_copy(update=layer),
        "weight": config.weight.model_copy(update=layer),
    }
    return config.model_copy(update=update)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", GROUPED_CASES, ids=str)
def test_groups_of_one_range_give_the_integers_of_one_scale(case: Case) -> None:
    """Bit for bit, where calibration saw every channel reach what its tensor does; quantizers serve in turn."""
    samples = [case.draw(seed) for seed in (1, 2)]
    ranges = like_channels(case.graph, observe(case.graph, samples))
    # Of a weight with groups the own ranges differ; test_granularity.py has weights whose ranges do not.
    configs = [config for config in case.configs() if config.weight.granularity == "layer"]
    config = configs[GROUPED_CASES.index(case) // len(STEPS) % len(configs)]
    split = expand_graph(case.graph, ranges, config)
    whole = expand_graph(case.graph, ranges, without_groups(config))
    for feeds in extreme_feeds(whole):
        for found, expected in zip(split.graph.evaluate(feeds), whole.graph.evaluate(feeds), strict=True):
            np.testing.assert_array_equal(found, expected)


LONGEST = (2**31 - 1) // (255 * 127)
"""The most products of 8 bits, of which one factor is never negative, that 32 bits hold: 66,310."""


@pytest.mark.parametrize(
    "length", [2**k + d for k in (7, 8, 15, 16) for d in (-1, 0, 1)] + [LONGEST + d for d in (-1, 0, 1)]
)
def test_sums_of_extremes_are_those_of_python_integers(length: int) -> None:
    """Data and weights at their largest integers; where the sum would leave 32 bits a note says how it is shifted."""
    graph = chain((1, length), (FullyConnected(1, no_bias=True), [np.ones((1, length))]))
    integer = assert_within_bounds(graph, [{"x": np.ones((1, length), np.float32)}], QuantizationConfig())
    slices = [value.reshape(-1) for name, value in integer.graph.parameters.items() if name.startswith("p0_0")]
    (weight,) = set(np.concatenate(slices).tolist())
    accumulator = integer.graph.with_outputs([integer.graph.by_name["s0"]])
    (value,) = accumulator.evaluate({"x": np.full((1, length), 255, np.uint8)})
    exact = length * 255 * weight
    assert weight > 120
    if length <= LONGEST:
        assert int(value.item()) == exact <= 2**31 - 1
        return
    (note,) = integer.notes
    parts, shift = (int(number) for number in re.findall(r": (\d+) partial sums, shifted right by (\d+)", note)[0])
    assert abs(int(value.item()) * 2**shift - exact) <= parts * 2 ** (shift - 1)


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_extremes_of_every_sign_cancel_exactly(signs: tuple[int, int], pair: tuple[str, str]) -> None:
    """Half of the products are the largest, half the smallest."""
    x = np.where(np.arange(512) % 2, signs[0], -signs[0]).astype(np.float32)[None]
    weight = np.full((2, 512), signs[1], np.float32)
    weight[1, ::2] *= -1
    config = QuantizationConfig.model_validate({"activation": {"quantizer": pair[0]}, "weight": {"quantizer": pair[1]}})
    graph = chain(x.shape, (FullyConnected(2, no_bias=True), [weight]))
    assert_within_bounds(graph, [{"x": x}], config)


def cases_of(*ops: str) -> list[Case]:
    return [case for case in CASES if case.operator.op in ops]


@pytest.mark.parametrize("case", cases_of("L2Normalization", "InstanceNorm", "LayerNorm"), ids=str)
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_lengths_of_few_steps(case: Case, quantizer: str) -> None:
    """Squares of 1 are not lost where those of many elements are added up axis by axis."""
    config = case.config(quantizer, bits=2)
    for seed, kind in enumerate(DRAWS):
        assert_within_bounds(case.graph, [case.draw(seed, kind)], config)


@pytest.mark.parametrize("case", cases_of("square", "elemwise_mul", "broadcast_mul", "batch_dot", "dot"), ids=str)
@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("kind", ["not negative", "far below zero"])
def test_products_of_sixteen_bits_of_one_sign(case: Case, quantizer: str, kind: str) -> None:
    """Integers of one sign have one bit more, which two factors of 16 bits do not have room for."""
    integer = assert_within_bounds(case.graph, [case.draw(7, kind)], case.config(quantizer, bits=16), USEFUL)
    assert_proven_at_extremes(integer)


def test_tables_keep_the_ends_of_a_range_whose_zero_point_is_rounded() -> None:
    """The largest value lies beyond the largest integer of the affine quantizer, not beyond that of a finer table."""
    graph = chain((1, 4), (Log(), []))
    samples = [{"x": np.full((1, 4), value, np.float32)} for value in (0.25, 1.25)]
    integer = assert_within_bounds(graph, samples, CASES[0].config("affine"), 0.01)
    assert integer.outputs[0].step < 1e-4


SINGLE_TAPS = [
    Case(Convolution((1, 1), 8, num_group=8, no_bias=True), (Data((1, 8, 9, 9)), Weights((8, 1, 1, 1)))),
    Case(Deconvolution((2, 2), 8, stride=(2, 2), num_group=8), (Data((1, 8, 5, 5)), Weights((8, 1, 2, 2)))),
    Case(FullyConnected(40, no_bias=True), (Data((16, 1)), Weights((40, 1)))),
]


@pytest.mark.parametrize("case", SINGLE_TAPS, ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("scales", ["output_channel", "layer"])
def test_weights_of_four_bits_are_off_by_half_a_step(case: Case, pair: tuple[str, str], scales: str) -> None:
    """Where products are not added up no error makes up for another, and beside 16 bits only the weight's counts."""
    base = case.config(*pair, scales, bits=16)
    config = base.model_copy(update={"weight": base.weight.model_copy(update={"bits": 4})})
    assert_within_bounds(case.graph, [case.draw(seed) for seed in (8, 9)], config, USEFUL)


def is_homogeneous(case: Case) -> bool:
    """Whether the case scales with its inputs, all of which are real, so that its range may be anything."""
    ops = {"relu", "abs", "negative", "max", "min", "sum", "Pooling", "Convolution", "Deconvolution", "FullyConnected"}
    moves = {"Flatten", "Reshape", "transpose", "slice", "squeeze", "tile", "repeat", "UpSampling", "depth_to_space"}
    sums = {"elemwise_add", "elemwise_sub", "add_n", "_maximum", "_minimum", "Concat"}
    only_data = len(case.inputs) == len(case.operands) or case.has_weight
    return {symbol.op for symbol in case.graph.operators} <= ops | moves | sums and only_data


MAGNITUDES = [1e-25, 1e-12, 1e12, 1e30]


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("case", [case for case in CASES if is_homogeneous(case)], ids=str)
def test_ranges_of_every_magnitude(case: Case, magnitude: float) -> None:
    """Quantizers serve in turn, each at two magnitudes of a case."""
    samples = [{name: value * np.float32(magnitude) for name, value in case.draw(5).items()}]
    useful = np.inf if case.is_loose else USEFUL
    quantizer = QUANTIZERS[(CASES.index(case) + MAGNITUDES.index(magnitude)) % 2]
    assert_within_bounds(case.graph, samples, case.config(quantizer), useful)


@pytest.mark.parametrize("case", [c for c in CASES if all(d.is_real for d in c.inputs.values())], ids=str)
def test_zeros_and_denormals_have_an_answer(case: Case) -> None:
    """A tensor too small for a scale counts as zero."""
    zeros = {name: np.zeros(data.shape, np.float32) for name, data in case.inputs.items()}
    expected = case.graph.evaluate(zeros)[0]
    for value in (0.0, 1e-42):
        samples = [{name: zero + np.float32(value) for name, zero in zeros.items()}]
        outcome = quantize_and_run(case.graph, samples, case.config("affine", "affine"))
        tolerance = 0.02 * np.abs(expected).max() + 1e-28
        np.testing.assert_allclose(outcome.approximate[0][0], expected, rtol=0, atol=tolerance)


def a_diamond(builder: GraphBuilder) -> list[Symbol]:
    """Two branches of different scale are added, and their sum is an output beside one of them."""
    x = builder.input("x", TensorType((1, 4, 5, 5)))
    weight = builder.parameter("w", 3 * normal(4, 4, 1, 1))
    left = builder.apply(Convolution((1, 1), 4, no_bias=True), [x, weight], "left")
    right = builder.apply(Relu(), [x], "right")
    return [builder.apply(ElemwiseAdd(), [left, right], "total"), right]


def shared_weights(builder: GraphBuilder) -> list[Symbol]:
    """One weight for two layers whose inputs differ in scale tenfold, and an output itself."""
    x = builder.input("x", TensorType((2, 4)))
    weight = builder.parameter("w", 10 * normal(4, 4))
    first = builder.apply(FullyConnected(4, no_bias=True), [x, weight], "first")
    second = builder.apply(FullyConnected(4, no_bias=True), [first, weight], "second")
    return [builder.apply(ElemwiseSub(), [first, second], "difference"), weight, second]


def an_output_that_is_an_input(builder: GraphBuilder) -> list[Symbol]:
    """The same input twice, and what is made of it; another input is given as it is."""
    x, y = builder.input("x", TensorType((1, 6))), builder.input("y", TensorType((3,)))
    return [x, builder.apply(ElemwiseMul(), [x, x], "square"), x, y]


def consumers_of_every_form(builder: GraphBuilder) -> list[Symbol]:
    """A sum read by a table, a concatenation, a pooling and a bias, each of which wants another form of it."""
    x, y = (builder.input(name, TensorType((1, 2, 4, 4))) for name in "xy")
    total = builder.apply(ElemwiseAdd(), [x, y], "total")
    pooled = builder.apply(Pooling((2, 2), pool_type="sum"), [total], "pooled")
    bias = builder.parameter("b", np.full((1, 2, 1, 1), 7.7, np.float32))
    return [
        builder.apply(Tanh(), [total], "table"),
        builder.apply(Concat(), [total, x], "joined"),
        builder.apply(Flatten(), [pooled], "flat"),
        builder.apply(BroadcastAdd(), [total, bias], "biased"),
        total,
    ]


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


Network = Callable[[GraphBuilder], list[Symbol]]
NETWORKS: list[Network] = [a_diamond, shared_weights, an_output_that_is_an_input, consumers_of_every_form]


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("bits", [4, 8, 12])
def test_networks(
    make: Callable[[GraphBuilder], list[Symbol]], pair: tuple[str, str], bits: int, tmp_path: Path
) -> None:
    """Bounds follow through graphs with several outputs and consumers."""
    builder = GraphBuilder()
    graph = builder.graph(make(builder))
    config = QuantizationConfig.model_validate(
        {
            "activation": {"bits": bits, "quantizer": pair[0]},
            "weight": {"bits": bits, "quantizer": pair[1]},
            "output": {"bits": 16},
        }
    )
    integer = assert_within_bounds(graph, random_samples(graph), config)
    assert_proven_at_extremes(integer)
    assemble(integer, None, {}).save(tmp_path)
    assert mrt.verify(tmp_path).max_bits <= 32
