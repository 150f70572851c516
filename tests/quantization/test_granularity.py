"""Scales of channel groups: integer multiples of one another that cover what calibration saw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.calibration import CalibrationConfig, Needs, Range, calibrate
from mrt.quantization.expand import expand_graph
from mrt.quantization.granularity import (
    ENOUGH,
    FACTOR_BITS,
    channel_ranges_with_margin,
    gain_db,
    group_ranges,
    grouped_target,
    integer_factors,
)
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import make_plan
from mrt.quantization.quantizer import affine_target, symmetric_target
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, Operator, TensorType
from mrt.symbol.channels import channel_axes
from mrt.symbol.operators.activation import Relu, Tanh
from mrt.symbol.operators.arrangement import DepthToSpace, UpSampling
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.functions import Abs
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Flatten, Reshape
from tests.quantization.networks import chain, observe, quantize_and_run, random_samples

EVERY_TWO = QuantizationConfig.model_validate({"activation": {"granularity": {"channel": 2}}})


@given(exponents=st.lists(st.floats(-12, 12), min_size=1, max_size=8), bits=st.sampled_from([4, 8]))
def test_factors_cover_what_is_wanted_and_cost_a_quarter_step_at_most(exponents: list[float], bits: int) -> None:
    wanted = np.exp2(exponents)
    common, factors = integer_factors(wanted, bits)
    scales = common * factors
    assert factors.dtype == np.int64 and factors.min() >= 1 and factors.max() <= 2**bits
    assert (scales >= wanted * (1 - 1e-8)).all()
    assert scales.max() == pytest.approx(wanted.max(), rel=1e-12)
    resolved = wanted >= wanted.max() / 2 ** (bits - 2)
    assert (scales <= np.where(resolved, 1.25 * wanted, wanted + common) * (1 + 1e-8)).all()


def test_equal_scales_have_the_factor_one() -> None:
    common, factors = integer_factors(np.full(3, 0.7), FACTOR_BITS)
    assert common == 0.7 and factors.tolist() == [1, 1, 1]


def test_the_finest_group_of_badly_spread_channels_is_at_a_256th() -> None:
    target = grouped_target([(-1.0, 0.5), (-(2.0**-12), 0.0), (0.0, 2.0**-20)], 1, 1, 8, "symmetric", True)
    assert target.groups is not None and target.groups.factors == (256, 1, 1)
    assert 256 * target.scale == pytest.approx(1 / 127)


def test_the_last_group_is_the_remainder() -> None:
    channels = [(-1.0, 0.0), (0.0, 2.0), (-3.0, 1.0), (0.0, 0.5), (-0.1, 0.0)]
    assert group_ranges(channels, 2) == [(-1.0, 2.0), (-3.0, 1.0), (-0.1, 0.0)]
    target = grouped_target(channels, 1, 2, 8, "symmetric", True)
    assert target.scales((1, 5, 3)).shape == (1, 5, 1)
    found = target.scales((1, 5, 3)).reshape(-1) * 127
    assert found[0] == found[1] >= 2.0 and found[2] == found[3] == pytest.approx(3.0) and 0.1 <= found[4] <= 0.125


@pytest.mark.parametrize("dead", [0.0, 1e-40, 1e-31])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_a_group_without_values_takes_the_coarsest_scale_of_the_others(dead: float, quantizer: str) -> None:
    channels = [(-1.0, 1.0), (-dead, dead), (-0.25, 0.25)]
    target = grouped_target(channels, 1, 1, 8, quantizer, True)
    one = affine_target(-1.0, 1.0, 8, True) if quantizer == "affine" else symmetric_target(1.0, 8, True)
    scales = target.scales((1, 3)).reshape(-1)
    assert scales[0] == scales[1] == pytest.approx(one.scale) and scales[2] == pytest.approx(one.scale / 4)


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_a_tensor_without_values_has_scale_one(quantizer: str) -> None:
    target = grouped_target([(0.0, 0.0)] * 3, 1, 2, 8, quantizer, False)
    assert target.scale == 1.0 and target.groups is not None and target.groups.factors == (1, 1)


@given(
    ends=st.lists(st.tuples(st.floats(-8, 8), st.floats(0.01, 8)), min_size=1, max_size=6),
    step=st.integers(1, 4),
    signed=st.booleans(),
    bits=st.sampled_from([4, 8, 12]),
)
def test_affine_groups_hold_their_channels_and_zero(
    ends: list[tuple[float, float]], step: int, signed: bool, bits: int
) -> None:
    """Every channel's ends lie within the integers to a step, and zero is one of these."""
    channels = [(lo, lo + width) for lo, width in ends]
    target = grouped_target(channels, 1, step, bits, "affine", signed)
    shape = (1, len(channels))
    scales, zero_points = target.scales(shape).reshape(-1), target.zero_points(shape).reshape(-1)
    for (lo, hi), scale, zero_point in zip(channels, scales, zero_points, strict=True):
        assert target.lo <= zero_point <= target.hi
        assert lo / scale + zero_point >= target.lo - 1 and hi / scale + zero_point <= target.hi + 1


def test_the_gain_of_groups_is_that_of_their_mean_noise() -> None:
    channels = [(-1.0, 1.0)] * 2 + [(-0.1, 0.1)] * 2
    assert gain_db(channels, 2, "symmetric") == pytest.approx(-10 * np.log10((1 + 0.01) / 2))
    assert gain_db(channels, 1, "symmetric") == gain_db(channels, 2, "symmetric")
    assert gain_db(channels, 3, "symmetric") == pytest.approx(-10 * np.log10((3 + 0.01) / 4))
    assert gain_db(channels, 4, "symmetric") == 0.0 == gain_db([(0.0, 0.0)] * 4, 1, "affine")
    assert gain_db([(-1.0, 0.0), (0.0, 1.0)], 1, "symmetric") == 0.0
    assert gain_db([(-1.0, 0.0), (0.0, 1.0)], 1, "affine") == pytest.approx(10 * np.log10(4))


def conv(channels: int = 4, filters: int = 3) -> tuple[Operator, list[np.ndarray]]:
    return Convolution((1, 1), filters, no_bias=True), [normal(filters, channels, 1, 1)]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


SPREAD = (BroadcastMul(), [np.array([1.0, 0.1, 0.02, 4.0]).reshape(1, 4, 1, 1)])


def test_a_batch_that_is_baked_in_leaves_one_scale_and_a_note_says_so() -> None:
    """Two samples are four rows of the layer: of its input calibration sees no channels."""
    steps = [SPREAD, (Reshape((4, 2, 9)), []), (Convolution((1,), 3, no_bias=True), [normal(3, 2, 1)])]
    graph = chain((2, 4, 3, 3), *steps)
    samples = random_samples(graph)
    tensors = [symbol.name for symbol in (*graph.inputs, *graph.operators)]
    batches = [{"x": feeds["x"]} for feeds in samples]
    ranges = calibrate(graph, batches, Needs(tensors), CalibrationConfig(), NumpyRunner()).ranges
    assert ranges["s0"].channels and not ranges["s1"].channels
    override = {"s1": {"activation": {"granularity": {"channel": 1}}}}
    config = QuantizationConfig.model_validate({"overrides": override})
    integer = expand_graph(graph, ranges, config)
    assert integer.notes == ("one scale where calibration saw no channels, since axis 0 counts no samples: s1",)
    assert str(integer.graph) == str(expand_graph(graph, ranges, QuantizationConfig()).graph)


def test_operators_that_need_one_scale_say_why() -> None:
    graph = chain((1, 4, 3, 3), SPREAD, (Softmax(axis=1), []), SPREAD, conv())
    notes = expand_graph(graph, observe(graph, random_samples(graph)), EVERY_TWO).notes
    assert notes == ("one scale for what softmax reads, which compares elements and adds up their powers: s0",)
    graph = chain((1, 4, 3, 3), SPREAD, (DepthToSpace(2), []), (Abs(), []))
    notes = expand_graph(graph, observe(graph, random_samples(graph)), EVERY_TWO).notes
    assert notes == ("one scale for what depth_to_space reads, which does not keep their channels apart: s0",)


@pytest.mark.parametrize("count", [2, 10, 100, 1000])
def test_a_range_seen_rarely_has_the_margin_that_an_exponential_tail_needs(count: int) -> None:
    """The mean of the largest of `count` draws, widened, is that of the largest of ENOUGH draws."""
    rng = np.random.default_rng(count)
    seen = rng.exponential(2.0, (4000, count)).max(axis=1).mean()
    enough = np.mean([rng.exponential(2.0, ENOUGH).max() for _ in range(400)])
    ((lo, hi),) = channel_ranges_with_margin(Range(-1e9, 1e9, ((-seen / 2, seen),), count))
    assert hi == pytest.approx(enough, rel=0.03) and lo == pytest.approx(-hi / 2)


def test_the_margin_ends_at_the_range_of_the_tensor_and_with_enough_observations() -> None:
    channels = ((-1.0, 2.0), (0.0, 0.0), (0.5, 4.0), (-3.0, -1.0))
    whole = Range(-3.0, 4.0, channels, 1)
    assert channel_ranges_with_margin(whole) == ((-3.0, 4.0), (0.0, 0.0), (0.5, 4.0), (-3.0, -1.0))
    for count in (0, ENOUGH, 10**9):
        assert channel_ranges_with_margin(replace(whole, observations=count)) == channels
    widths = [channel_ranges_with_margin(replace(whole, observations=count))[0][1] for count in (10, 100, 1000, 10**5)]
    assert widths == sorted(widths, reverse=True) and widths[-1] == 2.0 < widths[-2]


def test_pooled_channels_of_new_samples_saturate_no_more_often_than_the_margin_says() -> None:
    """Sums of 9 squares for each channel: 60 samples calibrate, of 20,000 new ones one in 10,000 may exceed."""
    rng = np.random.default_rng(0)
    draw = lambda count: np.square(rng.standard_normal((count, 16, 9))).sum(axis=2) * np.linspace(0.1, 1, 16)  # noqa: E731
    seen, new = draw(60), draw(20_000)
    ends = tuple((float(c.min()), float(c.max())) for c in seen.T)
    found = Range(float(seen.min()), float(seen.max()), ends, 60)
    bare, wide = (np.array(t)[:, 1] for t in (ends, channel_ranges_with_margin(found)))
    inner = slice(0, 8)  # the widest channels end where the tensor does
    assert (new > bare)[:, inner].mean() > 1 / 61 / 3 and (new > wide)[:, inner].mean() < 1 / ENOUGH


def test_readers_of_a_part_of_the_range_leave_the_others_the_whole() -> None:
    """A tanh of +-100 tells values within +-3 apart; the convolution beside it needs all of them."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 5, 5)))
    t = builder.apply(conv(4, 4)[0], [x, builder.parameter("w", conv(4, 4)[1][0])], "t")
    layer = builder.apply(conv()[0], [t, builder.parameter("v", normal(3, 4, 1, 1))], "layer")
    graph = builder.graph([builder.apply(Tanh(), [t], "tanh"), layer])
    samples = random_samples(graph, scale=50.0)
    for granularity in ("layer", {"channel": 1}):
        config = QuantizationConfig.model_validate({"activation": {"granularity": granularity}})
        outcome = quantize_and_run(graph, samples, config)
        for real, found in zip(outcome.real, outcome.approximate, strict=True):
            assert np.abs(real[1] - found[1]).max() < 0.05 * np.abs(real[1]).max()


def test_a_tensor_of_one_channel_is_split_along_the_axis_that_its_flattening_keeps() -> None:
    """(1, 1, 6, 2) becomes 12 columns, two for each of six rows of very different range."""
    spread = np.exp2(-np.arange(6.0)).reshape(1, 1, 6, 1)
    weight = normal(3, 12) / np.repeat(spread.reshape(-1), 2)
    dense = (FullyConnected(3, no_bias=True), [weight])
    graph = chain((1, 1, 6, 2), (BroadcastMul(), [spread]), (Flatten(), []), dense)
    assert channel_axes(graph)["s0"] == 2
    outcomes = []
    for granularity in ("layer", {"channel": 1}):
        sections = {"activation": {"granularity": granularity}, "weight": {"bits": 12}}
        config = QuantizationConfig.model_validate(sections)
        outcomes.append(quantize_and_run(graph, random_samples(graph), config))
    assert outcomes[1].relative_error < outcomes[0].relative_error / 4
    slices = [symbol for symbol in outcomes[1].integer.graph.operators if symbol.op == "slice_axis"]
    assert [symbol.operator.begin for symbol in slices] == [0, 2, 4, 6, 8, 10]


def test_only_tensors_that_are_read_in_groups_have_groups() -> None:
    """Not inputs, which come as integers of one scale, and not what only elementwise operators read."""
    graph = chain((1, 4, 3, 3), SPREAD, (Relu(), []), conv(), (Relu(), []))
    plan = make_plan(graph, observe(graph, random_samples(graph)), EVERY_TWO)
    assert {name for name, tensor in plan.tensors.items() if tensor.grouped} == {"s1"}


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("last", [4, 6])
def test_readers_along_different_axes_each_get_what_they_take(quantizer: str, last: int) -> None:
    """A layer over axis 1 and one over the last axis read one tensor, whose groups lie along one of these only."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 5, last)))
    t = builder.apply(BroadcastMul(), [x, builder.parameter("c", SPREAD[1][0].astype(np.float32))], "t")
    dense = FullyConnected(3, no_bias=True, flatten=False)
    outputs = [
        builder.apply(dense, [t, builder.parameter("w", normal(3, last))], "last"),
        builder.apply(conv()[0], [t, builder.parameter("v", conv()[1][0])], "first"),
        builder.apply(Flatten(), [t], "flat"),
    ]
    check(builder.graph(outputs), quantizer)


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_maxima_in_groups_are_brought_to_the_groups_of_another_axis(quantizer: str) -> None:
    """They come in groups along axis 1, as a layer over that reads their source; behind them one sums over the last."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 5, 4)))
    t = builder.apply(BroadcastMul(), [x, builder.parameter("c", SPREAD[1][0].astype(np.float32))], "t")
    first = builder.apply(conv()[0], [t, builder.parameter("v", conv()[1][0])], "first")
    maxima = builder.apply(Pooling((1, 1)), [t], "maxima")
    dense = FullyConnected(3, no_bias=True, flatten=False)
    last = builder.apply(dense, [maxima, builder.parameter("w", normal(3, 4))], "last")
    check(builder.graph([first, last]), quantizer)


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize(
    "operator",
    [
        Pooling((2, 2)),
        Pooling((2, 2), pool_type="sum"),
        UpSampling(2),
        Pad((0, 0, 0, 0, 1, 1, 2, 2), constant_value=1.0),
    ],
    ids=lambda operator: operator.op,
)
def test_operators_that_mix_the_axis_of_the_groups_take_one_scale(operator: Operator, quantizer: str) -> None:
    """The layer behind them sums over their last axis, the groups' own."""
    graph = chain((1, 4, 5, 6), SPREAD, (operator, []))
    length = graph.outputs[0].shape[-1]
    dense = (FullyConnected(3, no_bias=True, flatten=False), [normal(3, length)])
    check(chain((1, 4, 5, 6), SPREAD, (operator, []), dense), quantizer)


@pytest.mark.parametrize("units", [4, 7])
def test_a_layer_meets_groups_along_another_axis_than_its_outputs(units: int) -> None:
    dense = (FullyConnected(units, no_bias=True, flatten=False), [normal(units, 6)])
    check(chain((1, 4, 5, 6), dense, conv()), "symmetric")


def test_a_layer_meets_groups_of_a_tensor_of_another_rank() -> None:
    """The output (3, 6) is broadcast to (2, 3, 6), of which 3 are the channels."""
    dense = (FullyConnected(6, no_bias=True), [normal(6, 5)])
    along = (Convolution((1,), 2, no_bias=True), [normal(2, 3, 1)])
    check(chain((3, 5), dense, (BroadcastMul(), [np.array([[[1.0]], [[3.0]]])]), along), "symmetric")


def check(graph: Graph, quantizer: str) -> None:
    """Groups leave accuracy what it is where they do not help."""
    samples = random_samples(graph)
    errors = []
    for granularity in ("layer", {"channel": 2}):
        activation = {"quantizer": quantizer, "granularity": granularity}
        config = QuantizationConfig.model_validate({"activation": activation})
        errors.append(quantize_and_run(graph, samples, config).relative_error)
    assert errors[0] < 0.05 and errors[1] <= 1.5 * errors[0]
