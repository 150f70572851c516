"""Operators that arrange and choose, and deconvolutions, in integers: near float, within bounds, compiled alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mrt.errors import QuantizationError
from mrt.preparation import prepare
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.arrangement import DepthToSpace, Repeat, SliceLike, SpaceToDepth, SwapAxis, Tile, UpSampling
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import BatchNorm
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.selection import (
    ArgMax,
    ArgMin,
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    Embedding,
    MaximumScalar,
    Min,
    MinimumScalar,
    Where,
)
from mrt.symbol.operators.transform import Concat, Take
from tests.compiled_integers import assert_compiled_alike
from tests.expansions.quantizers import EIGHT_BITS, quantizers
from tests.matrix import PAIRS
from tests.quantization.networks import Outcome, chain, quantize_and_run, random_samples

RNG = np.random.default_rng(5)
QUANTIZERS = pytest.mark.parametrize("quantizer", ["symmetric", "affine"])


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


OF_ONE_INPUT = [
    SwapAxis(1, 3),
    Tile((1, 2, 1, 2)),
    Repeat(2, 1),
    Repeat(3),
    UpSampling(2),
    DepthToSpace(2),
    SpaceToDepth(2),
    Min((1, 2)),
    Min(),
    MaximumScalar(0.5),
    MaximumScalar(-9.0),
    MaximumScalar(9.0),
    MinimumScalar(0.5),
    MinimumScalar(-1.25),
]


@pytest.mark.parametrize("operator", OF_ONE_INPUT, ids=str)
@QUANTIZERS
@pytest.mark.parametrize("offset", [0.0, 2.0, -1.0])
def test_operators_of_one_input(operator: Operator, quantizer: str, offset: float) -> None:
    """Integers of one quantizer are compiled, which is another for every other operator."""
    graph = chain((1, 8, 4, 6), (operator, []))
    samples = [{"x": feeds["x"] + np.float32(offset)} for feeds in random_samples(graph)]
    outcome = quantize_and_run(graph, samples, quantizers(quantizer))
    assert outcome.relative_error < EIGHT_BITS
    if offset == 2.0 and (quantizer == "affine") == OF_ONE_INPUT.index(operator) % 2:
        assert_compiled_alike(outcome.integer)


def of_inputs(operator: Operator, *shapes: tuple[int, ...]) -> Graph:
    builder = GraphBuilder()
    inputs = [builder.input(name, TensorType(shape)) for name, shape in zip("abc", shapes, strict=False)]
    return builder.graph([builder.apply(operator, inputs, "y")])


@pytest.mark.parametrize(
    "operator",
    [ElemwiseMaximum(), ElemwiseMinimum(), BroadcastMaximum(), BroadcastMinimum()],
    ids=lambda operator: operator.op,
)
@pytest.mark.parametrize("spread", [1.0, 30.0, 0.0])
@QUANTIZERS
def test_two_tensors_of_different_scale(operator: Operator, spread: float, quantizer: str) -> None:
    shape = (1, 3, 4, 4) if "broadcast" not in operator.op else (3, 1, 4)
    graph = of_inputs(operator, (1, 3, 4, 4), shape)
    samples = random_samples(graph)
    for feeds in samples:
        feeds["a"] = feeds["a"] + np.float32(1.5)
        feeds["b"] = feeds["b"] * np.float32(spread)
    outcome = quantize_and_run(graph, samples, quantizers(quantizer))
    assert outcome.relative_error < EIGHT_BITS
    if spread == 30.0:
        assert_compiled_alike(outcome.integer)


@pytest.mark.parametrize("operator", [ElemwiseMaximum(), ElemwiseMinimum()], ids=lambda operator: operator.op)
def test_a_tensor_with_itself(operator: Operator) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 4, 4)))
    graph = builder.graph([builder.apply(operator, [x, x], "y")])
    assert quantize_and_run(graph, random_samples(graph)).relative_error < EIGHT_BITS


@pytest.mark.parametrize("operator", [BroadcastMaximum(), BroadcastMinimum()], ids=lambda operator: operator.op)
@pytest.mark.parametrize("shape", [(1,), (3, 1, 1), (1, 3, 4, 4), ()])
@QUANTIZERS
def test_constants_of_every_shape(operator: Operator, shape: tuple[int, ...], quantizer: str) -> None:
    graph = chain((1, 3, 4, 4), (operator, [RNG.standard_normal(shape) * 2]))
    assert quantize_and_run(graph, random_samples(graph), quantizers(quantizer)).relative_error < EIGHT_BITS


@QUANTIZERS
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_where_by_a_computed_condition(quantizer: str, spread: float) -> None:
    graph = of_inputs(Where(), (1, 3, 4, 4), (1, 3, 4, 4), (3, 1, 1))
    samples = random_samples(graph)
    for feeds in samples:
        feeds["a"] = RNG.integers(0, 2, (1, 3, 4, 4)).astype(np.float32)
        feeds["b"] = feeds["b"] * np.float32(spread) - np.float32(1.0)
    outcome = quantize_and_run(graph, samples, quantizers(quantizer))
    assert outcome.relative_error < EIGHT_BITS
    assert_compiled_alike(outcome.integer)


@QUANTIZERS
@pytest.mark.parametrize("shape", [(1, 3, 4, 4), (4,), (1, 3, 1, 1)])
def test_where_by_a_constant_condition(quantizer: str, shape: tuple[int, ...]) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((4, 3, 4, 4)))
    condition = builder.parameter("mask", RNG.integers(0, 2, shape).astype(bool))
    other = builder.parameter("other", normal(3, 1, 1) * 5)
    graph = builder.graph([builder.apply(Where(), [condition, x, other], "y")])
    outcome = quantize_and_run(graph, random_samples(graph), quantizers(quantizer))
    assert outcome.relative_error < EIGHT_BITS
    assert_compiled_alike(outcome.integer)


@QUANTIZERS
@pytest.mark.parametrize("axes", [(), (1, 3)])
def test_slice_like_reads_the_shape_only(quantizer: str, axes: tuple[int, ...]) -> None:
    graph = of_inputs(SliceLike(axes), (1, 5, 4, 6), (1, 3, 4, 2))
    outcome = quantize_and_run(graph, random_samples(graph), quantizers(quantizer))
    assert outcome.relative_error < EIGHT_BITS
    assert [symbol.op for symbol in outcome.integer.graph.operators] == ["slice"]


@pytest.mark.parametrize("operator", [ArgMax(1), ArgMin(-1, keepdims=True), ArgMax()], ids=str)
@QUANTIZERS
def test_places_are_those_of_the_integers(operator: Operator, quantizer: str) -> None:
    graph = chain((1, 5, 4, 6), (operator, []))
    samples = [{"x": RNG.permutation(120).reshape(1, 5, 4, 6).astype(np.float32)} for _ in range(3)]
    outcome = quantize_and_run(graph, samples, quantizers(quantizer))
    assert outcome.worst_steps == 0 and outcome.integer.outputs[0].step == 1
    assert_compiled_alike(outcome.integer)


def test_places_behind_channels_of_their_own_scale() -> None:
    """Channels whose weights differ a thousandfold are compared at one scale, finer than the tensor's."""
    weight = normal(6, 3, 1, 1) * np.array([1, 1000, 1, 1000, 1000, 30], np.float32).reshape(-1, 1, 1, 1)
    graph = chain((1, 3, 9, 9), (Convolution((1, 1), 6, no_bias=True), [weight]), (ArgMax(1), []))
    outcome = quantize_and_run(graph, random_samples(graph))
    real, found = (np.stack([sample[0] for sample in run]) for run in (outcome.real, outcome.approximate))
    assert (real == found).mean() > 0.98


def test_an_embedding_of_given_integers() -> None:
    builder = GraphBuilder()
    tokens = builder.input("tokens", TensorType((1, 6)))
    table = normal(50, 8)
    table[40:] *= 4
    rows = builder.apply(Embedding(50, 8), [tokens, builder.parameter("table", table)], "rows")
    position = builder.apply(BroadcastAdd(), [rows, builder.parameter("position", normal(1, 6, 8))], "placed")
    dense = builder.apply(
        FullyConnected(4, no_bias=True, flatten=False), [position, builder.parameter("w", normal(4, 8))], "y"
    )
    graph = builder.graph([dense, rows])
    samples = [{"tokens": RNG.integers(0, 40, (1, 6)).astype(np.float32)} for _ in range(4)]
    config = QuantizationConfig.model_validate({"inputs": {"tokens": {"dtype": "int16", "range": [0, 49]}}})
    outcome = quantize_and_run(graph, samples, config)
    assert outcome.relative_error < EIGHT_BITS
    assert outcome.integer.graph.by_name["tokens"].dtype == "int16"
    assert "Embedding" in [symbol.op for symbol in outcome.integer.graph.operators]
    assert_compiled_alike(outcome.integer)
    # A row that calibration never met is in the table as it is.
    stored = next(v for n, v in outcome.integer.graph.parameters.items() if n.startswith("table"))
    step = outcome.integer.scales["rows"].item()
    np.testing.assert_allclose(stored * step, table, atol=0.51 * step)


def test_indices_that_are_calibrated_floats() -> None:
    graph = chain((1, 5), (Embedding(40, 8), [normal(40, 8)]))
    samples = [{"x": RNG.integers(0, 40, (1, 5)).astype(np.float32)} for _ in range(8)]
    samples[0]["x"][:] = 39
    assert quantize_and_run(graph, samples).relative_error < EIGHT_BITS


def test_indices_that_a_quantizer_does_not_tell_apart_are_refused() -> None:
    graph = chain((1, 5), (Embedding(5000, 2), [normal(5000, 2)]))
    with pytest.raises(QuantizationError, match=r"s0 \(Embedding\): the indices x have steps of .*quantize.inputs.x"):
        quantize_and_run(graph, [{"x": np.full((1, 5), 4999, np.float32)}])


@QUANTIZERS
def test_taking_at_constant_and_computed_places(quantizer: str) -> None:
    graph = chain((1, 5, 4), (Take(axis=1), [np.array([4.0, 0.0, 2.0])]))
    outcome = quantize_and_run(graph, random_samples(graph), quantizers(quantizer))
    assert outcome.relative_error < EIGHT_BITS
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 7)))
    place = builder.apply(ArgMax(1), [x], "place")
    table = builder.parameter("table", normal(7, 3))
    graph = builder.graph([builder.apply(Take(), [table, place], "y")])
    samples = [{"x": RNG.permutation(7).reshape(1, 7).astype(np.float32)} for _ in range(5)]
    outcome = quantize_and_run(graph, samples, quantizers(quantizer))
    assert outcome.relative_error < EIGHT_BITS
    assert_compiled_alike(outcome.integer)


DECONVOLUTIONS = [
    (Deconvolution((3, 3), 6, stride=(2, 2), pad=(1, 1), adj=(1, 1)), (4, 6, 3, 3)),
    (Deconvolution((4, 4), 6, stride=(2, 2), pad=(1, 1), num_group=2), (4, 3, 4, 4)),
    (Deconvolution((2, 2), 3, stride=(2, 2)), (4, 3, 2, 2)),
    (Deconvolution((3, 2), 4, stride=(3, 1), dilate=(1, 2), num_group=4), (4, 1, 3, 2)),
    (Deconvolution((4, 4), 4, stride=(3, 2), target_shape=(16, 13)), (4, 4, 4, 4)),
]
OFFSETS = [0.0, 3.0, -8.0]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("operator", "weight"), DECONVOLUTIONS, ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("offset", OFFSETS)
def test_deconvolutions_with_bias_and_relu(
    operator: Deconvolution, weight: tuple[int, ...], pair: tuple[str, str], offset: float
) -> None:
    """Scales of the weight serve in turn."""
    place = [each for each, _ in DECONVOLUTIONS].index(operator)
    scales = ("output_channel", "layer")[(place + PAIRS.index(pair) + OFFSETS.index(offset)) % 2]
    bias = normal(1, operator.num_filter, 1, 1)
    graph = chain((1, 4, 6, 7), (operator, [normal(*weight)]), (BroadcastAdd(), [bias]), (Relu(), []))
    samples = [{"x": feeds["x"] + np.float32(offset)} for feeds in random_samples(graph)]
    outcome = quantize_and_run(graph, samples, quantizers(*pair, scales=scales))
    assert outcome.relative_error < EIGHT_BITS * (1 if offset == 0 else 2)
    # Of every operator what either quantizer of the activation gives, beside one of the weight's, which alternate.
    if scales == "output_channel" and offset == 3.0:
        assert_compiled_alike(outcome.integer)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_each_output_channel_of_a_deconvolution_has_its_scale(groups: int) -> None:
    """A channel a thousand times smaller than the others is as exact as they are, whatever the groups."""
    sizes = np.array([1.0, 1e-3, 10.0, 1e-2, 1.0, 100.0, 1e-3, 1.0])
    operator = Deconvolution((3, 3), 8, stride=(2, 2), num_group=groups)
    rows = normal(8, 4 // groups, 3, 3) * sizes.reshape(-1, 1, 1, 1)
    graph = chain((1, 4, 5, 5), (operator, [operator.from_rows(rows)]))
    outcome = quantize_and_run(
        graph, random_samples(graph), QuantizationConfig.model_validate({"output": {"bits": 16}})
    )
    scale = next(s for n, s in outcome.integer.scales.items() if n == "s0")
    ratio = scale.reshape(-1) / (np.abs(rows).reshape(8, -1).max(axis=1))
    assert scale.shape == (1, 8, 1, 1)
    assert ratio.max() / ratio.min() < 2


def around_zero(shape: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    """Samples whose affine quantizer has a zero point inside its range."""
    return [{"x": RNG.uniform(-3.0, 9.0, shape).astype(np.float32)} for _ in range(3)]


def corrections(outcome: Outcome) -> list[tuple[int, ...]]:
    """The shapes of the constants that stand for zero points."""
    return [v.shape for name, v in outcome.integer.graph.parameters.items() if "correction" in name]


def test_a_border_that_no_tap_reaches_is_exactly_zero() -> None:
    shape = (1, 2, 4, 4)
    operator = Deconvolution((2, 2), 3, stride=(2, 2), adj=(2, 2))
    graph = chain(shape, (operator, [normal(2, 3, 2, 2)]))
    outcome = quantize_and_run(graph, around_zero(shape), quantizers("affine"))
    assert outcome.relative_error < EIGHT_BITS
    assert corrections(outcome) == [(1, 3, 10, 10)]
    for sample in outcome.approximate:
        assert not sample[0][:, :, 8:].any() and not sample[0][..., 8:].any()


def test_a_zero_point_is_one_constant_per_channel_where_every_position_meets_the_same_taps() -> None:
    shape = (1, 2, 4, 4)
    weight = np.broadcast_to(normal(2, 3, 1, 1), (2, 3, 2, 2))
    graph = chain(shape, (Deconvolution((2, 2), 3, stride=(2, 2)), [weight]))
    outcome = quantize_and_run(graph, around_zero(shape), quantizers("affine"))
    assert outcome.relative_error < EIGHT_BITS
    assert corrections(outcome) == [(1, 3, 1, 1)]


@pytest.mark.parametrize("operator", [Concat(), ElemwiseMaximum(), ElemwiseMinimum()], ids=lambda operator: operator.op)
@QUANTIZERS
def test_what_a_bias_makes_positive_is_not_cut_before(operator: Operator, quantizer: str) -> None:
    """The range behind the bias and the relu is not that of what the bias is added to."""
    builder = GraphBuilder()
    x, y = (builder.input(name, TensorType((1, 6))) for name in "xy")
    chosen = builder.apply(operator, [x, y], "chosen")
    moved = builder.apply(BroadcastAdd(), [chosen, builder.parameter("b", np.full(chosen.shape, 3, np.float32))])
    dense = FullyConnected(4, no_bias=True)
    weight = builder.parameter("w", normal(4, chosen.shape[1]))
    graph = builder.graph([builder.apply(dense, [builder.apply(Relu(), [moved]), weight])])
    assert quantize_and_run(graph, random_samples(graph), quantizers(quantizer)).relative_error < EIGHT_BITS


def test_a_reader_that_saturates_early_does_not_cut_for_others() -> None:
    builder = GraphBuilder()
    x, y = (builder.input(name, TensorType((1, 6))) for name in "xy")
    joined = builder.apply(Concat(), [x, y], "joined")
    clipped = builder.apply(Clip(a_min=0.0, a_max=0.25), [joined], "clipped")
    graph = builder.graph([clipped, builder.apply(Sum(axis=(1,)), [joined], "total")])
    assert quantize_and_run(graph, random_samples(graph)).relative_error < EIGHT_BITS


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_deconvolutions_of_every_geometry(data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.integers(low, high)), data.draw(st.integers(low, high))

    groups, outputs = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    operator = Deconvolution(
        kernel=pair(1, 4),
        num_filter=groups * outputs,
        stride=pair(1, 3),
        dilate=pair(1, 2),
        pad=pair(0, 2),
        adj=pair(0, 1),
        num_group=groups,
    )
    spatial = pair(2, 5)
    assume(min(operator.output_spatial(spatial)) >= 1)
    activation, weight = data.draw(st.sampled_from(PAIRS))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    graph = chain((1, 2 * groups, *spatial), (operator, [rng.standard_normal((2 * groups, outputs, *operator.kernel))]))
    lo, hi = data.draw(st.sampled_from([(-1, 1), (0, 3), (-5, -1), (2, 9)]))
    samples = [{"x": rng.uniform(lo, hi, (1, 2 * groups, *spatial)).astype(np.float32)} for _ in range(3)]
    outcome = quantize_and_run(graph, samples, quantizers(activation, weight))
    # Each product is off by half a step of either factor at most.
    step_x = max(abs(lo), abs(hi)) / 127
    real = np.abs(graph.parameters["p0_0"]).max()
    terms = 2 * np.prod(operator.kernel)
    error = terms * (step_x * real + (max(abs(lo), abs(hi)) + step_x) * real / 100)
    for got, wanted in zip(outcome.approximate, outcome.real, strict=True):
        assert np.abs(got[0] - wanted[0]).max() <= error + 2 * outcome.integer.outputs[0].step


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("groups", [1, 2])
def test_bias_and_batch_norm_of_a_deconvolution_are_prepared(pair: tuple[str, str], groups: int) -> None:
    operator = Deconvolution((3, 3), 4, stride=(2, 2), num_group=groups, no_bias=False)
    norm = [normal(4), normal(4), normal(4), np.abs(normal(4)) + 0.5]
    graph = chain(
        (1, 2, 5, 5), (operator, [normal(2, 4 // groups, 3, 3), normal(4)]), (BatchNorm(fix_gamma=False), norm)
    )
    prepared = prepare(graph).graph
    assert [symbol.op for symbol in prepared.operators] == ["Deconvolution", "broadcast_add"]
    samples = random_samples(graph)
    for feeds in samples:
        np.testing.assert_allclose(prepared.evaluate(feeds)[0], graph.evaluate(feeds)[0], rtol=1e-4, atol=1e-5)
    assert quantize_and_run(prepared, samples, quantizers(*pair)).relative_error < EIGHT_BITS


def test_preparation_drops_what_repeats_once() -> None:
    steps = [Tile((1, 1)), Repeat(1, 2), UpSampling(1), DepthToSpace(1), SpaceToDepth(1), SwapAxis(1, 1), Relu()]
    graph = chain((1, 2, 3, 3), *((operator, []) for operator in steps))
    assert [symbol.op for symbol in prepare(graph).graph.operators] == ["relu"]


def test_a_sum_behind_two_branches() -> None:
    """A diamond: up-sampled and deconvolved, added."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 4, 4)))
    up = builder.apply(UpSampling(2), [x], "up")
    weight = builder.parameter("w", normal(3, 3, 2, 2))
    deconvolved = builder.apply(Deconvolution((2, 2), 3, stride=(2, 2)), [x, weight], "deconvolved")
    graph = builder.graph([builder.apply(ElemwiseAdd(), [up, deconvolved], "y")])
    outcome = quantize_and_run(graph, random_samples(graph), quantizers("affine"))
    assert outcome.relative_error < EIGHT_BITS
    assert_compiled_alike(outcome.integer)
