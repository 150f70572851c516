"""Constants that are added, from nothing to far above what they are added to: near float, or turned off as in float."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.quantization.options import QuantizationConfig
from mrt.symbol import GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pooling import Pooling
from tests.compiled_integers import assert_compiled_alike
from tests.expansions.quantizers import EIGHT_BITS, quantizers
from tests.matrix import PAIRS
from tests.quantization.networks import Outcome, chain, quantize_and_run, random_samples

RNG = np.random.default_rng(17)
CONV = Convolution(kernel=(3, 3), num_filter=4, no_bias=True)


def errors_by_channel(outcome: Outcome) -> np.ndarray:
    """The largest error of each channel over that channel's own largest magnitude."""
    real = np.stack([sample[0] for sample in outcome.real])
    found = np.stack([sample[0] for sample in outcome.approximate])
    axes = tuple(axis for axis in range(real.ndim) if axis != 2)
    return np.abs(found - real).max(axis=axes) / np.maximum(np.abs(real).max(axis=axes), 1e-30)


def biased_convolution(bias: list[float], *behind: tuple[Operator, list[np.ndarray]]) -> object:
    weight = RNG.standard_normal((4, 3, 3, 3))
    return chain((1, 3, 6, 6), (CONV, [weight]), (BroadcastAdd(), [np.reshape(bias, (1, 4, 1, 1))]), *behind)


@pytest.mark.parametrize("huge", [1e3, 1e6, 1e10, 1e20])
@pytest.mark.parametrize("scales", ["output_channel", "layer"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_one_huge_bias_of_many(huge: float, scales: str, pair: tuple[str, str]) -> None:
    """The output has one scale: the error is a share of the largest channel, as its quantizer says."""
    graph = biased_convolution([0.5, huge, -0.3, 0.0], (Relu(), []))
    outcome = quantize_and_run(graph, random_samples(graph), quantizers(*pair, scales=scales))
    assert outcome.relative_error < 2.0**-12


@pytest.mark.parametrize("huge", [-50.0, -1e3, -1e6, -1e10, -1e20])
@pytest.mark.parametrize("scales", ["output_channel", "layer"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("pooled", [False, True])
def test_a_channel_that_its_bias_turns_off(huge: float, scales: str, pair: tuple[str, str], pooled: bool) -> None:
    """It is 0 behind relu, and the others are as if it were not there, also where they share its scale."""
    behind = [(Relu(), [])] + ([(Pooling(kernel=(2, 2)), [])] if pooled else [])
    graph = biased_convolution([0.5, huge, -0.3, 0.0], *behind)
    outcome = quantize_and_run(graph, random_samples(graph), quantizers(*pair, scales=scales))
    errors = errors_by_channel(outcome)
    assert errors[1] == 0.0
    assert np.delete(errors, 1).max() < 2 * EIGHT_BITS


def test_a_channel_that_is_turned_off_stays_so_for_the_largest_data() -> None:
    """Beyond the calibrated range too: inputs at their ends, which no sample reaches all at once."""
    graph = biased_convolution([0.5, -1e10, -0.3, 0.0], (Relu(), []))
    outcome = quantize_and_run(graph, random_samples(graph), quantizers("symmetric"))
    ((symbol, target),) = outcome.integer.inputs
    for values in (target.lo, target.hi, RNG.choice([target.lo, target.hi], symbol.shape)):
        feeds = {"x": np.broadcast_to(values, symbol.shape).astype(symbol.dtype)}
        assert not outcome.integer.graph.evaluate(feeds)[0][:, 1].any()
    assert_compiled_alike(outcome.integer)


def test_a_bias_of_a_deconvolution_stays_one_value_a_channel() -> None:
    """The bounds of the sums vary with the position; the stored bias does not."""
    operator = Deconvolution(kernel=(3, 3), num_filter=4, stride=(2, 2))
    bias = np.reshape([0.5, -1e10, -0.3, 0.0], (1, 4, 1, 1))
    weight = RNG.standard_normal((3, 4, 3, 3))
    graph = chain((1, 3, 5, 5), (operator, [weight]), (BroadcastAdd(), [bias]), (Relu(), []))
    outcome = quantize_and_run(graph, random_samples(graph), quantizers("symmetric"))
    assert outcome.integer.graph.parameters["p1_0"].shape == (1, 4, 1, 1)
    assert np.delete(errors_by_channel(outcome), 1).max() < 2 * EIGHT_BITS


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_readers_of_different_range_all_see_what_is_turned_off(pair: tuple[str, str]) -> None:
    """relu is read by a layer at 8 bits and by a sum with a tensor that is a thousand times as large."""
    builder = GraphBuilder()
    x, large = builder.input("x", TensorType((1, 3, 6, 6))), builder.input("large", TensorType((1, 4, 4, 4)))
    weights = [RNG.standard_normal((4, 3, 3, 3)), RNG.standard_normal((2, 64))]
    w1, w2 = (builder.parameter(f"w{k}", w.astype(np.float32)) for k, w in enumerate(weights))
    bias = builder.parameter("b", np.array([0.5, -1e10, -0.3, 0.0], np.float32).reshape(1, 4, 1, 1))
    conv = builder.apply(CONV, [x, w1], "conv")
    relu = builder.apply(Relu(), [builder.apply(BroadcastAdd(), [conv, bias], "sum")], "relu")
    layer = builder.apply(FullyConnected(num_hidden=2, no_bias=True), [relu, w2], "layer")
    graph = builder.graph([layer, builder.apply(ElemwiseAdd(), [relu, large], "total")])
    samples = random_samples(graph)
    for feeds in samples:
        feeds["large"] = feeds["large"] * np.float32(1e3)
    assert quantize_and_run(graph, samples, quantizers(*pair)).relative_error < EIGHT_BITS


def test_a_huge_constant_that_shows_is_added_in_full() -> None:
    """The output is read where nothing saturates it."""
    graph = biased_convolution([0.5, -1e10, -0.3, 0.0])
    outcome = quantize_and_run(graph, random_samples(graph), quantizers("symmetric"))
    np.testing.assert_allclose([sample[0][:, 1] for sample in outcome.approximate], -1e10, rtol=1e-4)


@pytest.mark.parametrize("constant", [1e3, 1e5, 1e6])
@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_there_and_back(constant: float, layered: bool, quantizer: str) -> None:
    """x + c - c, which float32 tells to c / 2^23: what is left is off by no more, beside its own 8 bits."""
    layer = [(FullyConnected(num_hidden=8, no_bias=True), [RNG.standard_normal((8, 8))])] if layered else []
    steps = [(BroadcastAdd(), [np.full((1, 1), c)]) for c in (constant, -constant)]
    graph = chain((4, 8), *layer, steps[0], (Relu(), []), steps[1])
    outcome = quantize_and_run(graph, random_samples(graph), quantizers(quantizer))
    found = max(float(np.abs(r[0] - a[0]).max()) for r, a in zip(outcome.real, outcome.approximate, strict=True))
    largest = max(float(np.abs(r[0]).max()) for r in outcome.real)
    assert found < 2 * EIGHT_BITS * largest + constant * 2.0**-23


COMPILED = ((14, 3.0), (15, 3e3), (16, -2e3))
"""Each width and each bias once."""


@pytest.mark.parametrize("bits", [14, 15, 16])
@pytest.mark.parametrize("bias", [3.0, 3e3, -2e3])
def test_biases_beside_sums_that_fill_32_bits(bits: int, bias: float) -> None:
    """Every weight and every input at its largest: the weights give up bits for the bias, but do not vanish."""
    weight = np.full((4, 16, 3, 3), 14.0)
    graph = chain((1, 16, 3, 3), (CONV, [weight]), (BroadcastAdd(), [np.full((1, 4, 1, 1), bias)]))
    config = QuantizationConfig.model_validate({"activation": {"bits": bits}, "weight": {"bits": 16}})
    samples = [{"x": np.full((1, 16, 3, 3), value, np.float32)} for value in (1, -1)]
    outcome = quantize_and_run(graph, samples, config)
    assert outcome.relative_error < 0.005
    if (bits, bias) in COMPILED:
        assert_compiled_alike(outcome.integer)


def test_a_huge_constant_behind_a_factor_of_each_channel() -> None:
    """No layer stands before the sum whose scale could rise: the common scale does."""
    factor = np.reshape([1, 1e-6, 1, 2.0], (1, 4, 1, 1))
    steps = [(CONV, [RNG.standard_normal((4, 3, 3, 3))]), (BroadcastMul(), [factor])]
    graph = chain((1, 3, 6, 6), *steps, (BroadcastAdd(), [np.reshape([0.5, 1e10, -0.3, 0.0], (1, 4, 1, 1))]))
    assert quantize_and_run(graph, random_samples(graph), quantizers("symmetric")).relative_error < 2.0**-14


def test_operands_far_above_their_sum_fit_32_bits() -> None:
    """a + b of +-1e7 which leave +-1: at the scale of their sum they would need 36 bits."""
    builder = GraphBuilder()
    a, b = (builder.input(name, TensorType((1, 64))) for name in "ab")
    graph = builder.graph([builder.apply(ElemwiseAdd(), [a, b], "y")])
    x = RNG.uniform(-1e7, 1e7, (1, 64)).astype(np.float32)
    samples = [{"a": x, "b": -x}, {"a": -x, "b": x}, {"a": 0 * x, "b": 0 * x + 1}]
    outcome = quantize_and_run(graph, samples, quantizers("symmetric"))
    # What cancels in float does so here: both operands have the same integers.
    assert not np.any([sample[0] for sample in outcome.approximate[:2]])
    assert_compiled_alike(outcome.integer)
