"""Masked scores: what is forbidden has no share, and what is allowed keeps its resolution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.calibration import Range
from mrt.errors import DataError
from mrt.preparation import PreparationConfig, prepare
from mrt.quantization.plan.attention_masks import VANISHES, masked_range
from mrt.symbol import Array, Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.operators.normalization import LogSoftmax, Softmax
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.selection import Where
from tests.quantization.networks import Outcome, quantize_and_run

LENGTH = 8
CAUSAL = np.tril(np.ones((1, LENGTH, LENGTH), np.float32))
SAMPLES = [
    {"x": np.random.default_rng(seed).normal(0, 3, (1, LENGTH, LENGTH)).astype(np.float32)} for seed in range(16)
]
Masked = Callable[[GraphBuilder, Symbol, float], Symbol]


def added(builder: GraphBuilder, scores: Symbol, forbidden: float) -> Symbol:
    mask = builder.parameter("mask", np.where(CAUSAL, 0, forbidden).astype(np.float32))
    return builder.apply(BroadcastAdd(), [mask, scores], "masked")


def chosen(builder: GraphBuilder, scores: Symbol, forbidden: float) -> Symbol:
    keep = builder.parameter("keep", CAUSAL)
    fill = builder.parameter("fill", np.full((1, 1, 1), forbidden, np.float32))
    return builder.apply(Where(), [keep, scores, fill], "masked")


def computed(builder: GraphBuilder, scores: Symbol, forbidden: float) -> Symbol:
    """The mask is an input, of which no row forbids all."""
    mask = builder.input("m", TensorType((1, 1, LENGTH)))
    return builder.apply(BroadcastAdd(), [scores, builder.apply(MulScalar(scalar=forbidden), [mask])], "masked")


def computed_by_choice(builder: GraphBuilder, scores: Symbol, forbidden: float) -> Symbol:
    mask, zero = (
        builder.input("m", TensorType((1, 1, LENGTH))),
        builder.parameter("zero", np.zeros((1, 1, 1), np.float32)),
    )
    fill = builder.parameter("fill", np.full((1, 1, 1), forbidden, np.float32))
    return builder.apply(BroadcastAdd(), [scores, builder.apply(Where(), [mask, fill, zero], "choice")], "masked")


BIAS = np.random.default_rng(5).normal(0, 2, (1, LENGTH, LENGTH)).astype(np.float32)


def biased(builder: GraphBuilder, scores: Symbol, forbidden: float) -> Symbol:
    return builder.apply(BroadcastAdd(), [scores, builder.parameter("bias", BIAS)], "biased")


def added_to_bias(builder: GraphBuilder, scores: Symbol, forbidden: float) -> Symbol:
    """A position bias and the mask are one sum, as transformers' T5 had it."""
    mask = builder.apply(MulScalar(scalar=forbidden), [builder.input("m", TensorType((1, 1, LENGTH)))], "lowered")
    total = builder.apply(BroadcastAdd(), [mask, builder.parameter("bias", BIAS)], "total")
    return builder.apply(BroadcastAdd(), [scores, total], "masked")


def chosen_for_bias(builder: GraphBuilder, scores: Symbol, forbidden: float) -> Symbol:
    """The mask chooses the lowest float instead of the position bias, as transformers' T5 has it."""
    mask, bias = builder.input("m", TensorType((1, 1, LENGTH))), builder.parameter("bias", BIAS)
    fill = builder.parameter("fill", np.full((), forbidden, np.float32))
    total = builder.apply(Where(), [mask, fill, bias], "total")
    return builder.apply(BroadcastAdd(), [total, scores], "masked")


def unmasked(builder: GraphBuilder, scores: Symbol, forbidden: float) -> Symbol:
    return scores


def network(mask: Masked, forbidden: float) -> Graph:
    """Shares of scores, and the values that they add up: both are outputs."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, LENGTH, LENGTH)))
    shares = builder.apply(Softmax(axis=-1), [mask(builder, x, forbidden)], "shares")
    values = builder.parameter("values", np.random.default_rng(7).normal(size=(1, LENGTH, 4)).astype(np.float32))
    return builder.graph([builder.apply(BatchDot(), [shares, values], "y"), shares])


def quantized(graph: Graph) -> Outcome:
    return quantize_and_run(prepare(graph).graph, SAMPLES)


@pytest.mark.parametrize("mask", [added, chosen])
@pytest.mark.parametrize("forbidden", [-np.inf, -1e30, -1e4, -40.0])
def test_masks_cost_no_accuracy(mask: Masked, forbidden: float) -> None:
    outcome, free = quantized(network(mask, forbidden)), quantized(network(unmasked, 0.0))
    for _, shares in outcome.approximate:
        assert not shares[np.broadcast_to(CAUSAL == 0, shares.shape)].any()
    assert outcome.relative_error < 1.5 * free.relative_error < 0.06


@pytest.mark.parametrize(
    ("mask", "forbidden"),
    [(computed, -1e4), (computed, -1e9), (computed, -1e37), (computed_by_choice, -1e9), (computed_by_choice, -np.inf)],
)
def test_computed_masks_cost_no_accuracy(mask: Masked, forbidden: float) -> None:
    assert forbids_and_resolves(mask, forbidden, unmasked)


@pytest.mark.parametrize(
    ("mask", "forbidden"),
    [(added_to_bias, -1e4), (added_to_bias, -3e38), (chosen_for_bias, -3e38), (chosen_for_bias, -np.inf)],
)
def test_masks_in_one_sum_with_a_bias_cost_no_accuracy(mask: Masked, forbidden: float) -> None:
    assert forbids_and_resolves(mask, forbidden, biased)


@pytest.mark.parametrize("mask", [added_to_bias, chosen_for_bias])
def test_a_sum_of_bias_and_mask_stays_what_it_is_in_float(mask: Masked) -> None:
    graph = network(mask, -1e9)
    prepared = prepare(graph).graph
    for feeds in SAMPLES:
        feeds = {**feeds, "m": np.arange(LENGTH).reshape(1, 1, LENGTH).astype(np.float32) % 2}
        for wanted, found in zip(graph.evaluate(feeds), prepared.evaluate(feeds), strict=True):
            assert np.allclose(wanted, found, rtol=1e-5, atol=1e-6)


def test_a_sum_that_a_split_names_stays() -> None:
    graph = network(added_to_bias, -1e9)
    kept = prepare(graph, PreparationConfig(split=("masked",)))
    assert kept.postprocess is not None and "masked_biased" not in kept.postprocess.by_name


def forbids_and_resolves(mask: Masked, forbidden: float, free: Masked) -> bool:
    """Whether what a mask forbids has no share, and the rest the accuracy that it has without a mask."""
    draw = np.random.default_rng(11).integers(0, 2, (len(SAMPLES), 1, 1, LENGTH - 1))
    masks = np.concatenate([draw, np.zeros((len(SAMPLES), 1, 1, 1))], axis=-1).astype(np.float32)
    samples = [{**feeds, "m": mask} for feeds, mask in zip(SAMPLES, masks, strict=True)]
    outcome = quantize_and_run(prepare(network(mask, forbidden)).graph, samples)
    for (_, shares), forbids in zip(outcome.approximate, masks, strict=True):
        assert not shares[np.broadcast_to(forbids != 0, shares.shape)].any()
    return outcome.relative_error < 1.5 * quantized(network(free, 0.0)).relative_error


@pytest.mark.parametrize("mask", [added, chosen])
def test_any_large_mask_is_the_same(mask: Masked) -> None:
    first, *others = (quantized(network(mask, forbidden)) for forbidden in (-np.inf, -1e30, -1e4))
    for other in others:
        for one, two in zip(first.approximate, other.approximate, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_finite_masks_are_the_same_in_float() -> None:
    for mask in (added, chosen):
        graph = network(mask, -np.inf)
        prepared = prepare(graph).graph
        for feeds in SAMPLES:
            for wanted, found in zip(graph.evaluate(feeds), prepared.evaluate(feeds), strict=True):
                assert np.array_equal(wanted, found)


def test_infinity_elsewhere_is_refused() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, LENGTH, LENGTH)))
    graph = builder.graph([builder.apply(LogSoftmax(axis=-1), [added(builder, x, -np.inf)])])
    with pytest.raises(DataError, match="mask holds -inf"):
        prepare(graph)


@given(
    st.lists(st.lists(st.floats(-60, 60, width=32), min_size=5, max_size=5), min_size=1, max_size=4),
    st.floats(0.1, 20),
)
def test_what_lies_below_the_range_has_no_share(constants: list[list[float]], reach: float) -> None:
    """Scores from the ends of their range, and in between, against those that saturate where the range ends."""
    bias = np.array(constants, np.float32)
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, *bias.shape)))
    masked = builder.apply(BroadcastAdd(), [x, builder.parameter("bias", bias)], "masked")
    graph = builder.graph([builder.apply(Softmax(axis=-1), [masked])])
    ends = Range(float(bias.min()) - reach, float(bias.max()) + reach)
    found = masked_range(graph, masked, {"x": Range(-reach, reach), "masked": ends})
    assert found is not None and found.hi == ends.hi
    draws = np.random.default_rng(3).choice([-reach, 0.3 * reach, reach], (64, *bias.shape))
    sums = draws + bias.astype(np.float64)
    assert np.abs(shares(sums) - shares(np.maximum(sums, found.lo))).max() < bias.size * np.exp(-VANISHES)


def shares(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
