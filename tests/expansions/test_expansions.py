"""Integer forms stay near float, and within their proven bounds, on hard cases; test_matrix.py has all attributes."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import QuantizationError, UnsupportedOperatorError
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import Identity
from mrt.symbol.operators.transform import Concat, Flatten
from tests.expansions.quantizers import EIGHT_BITS, quantizers
from tests.matrix import PAIRS
from tests.quantization.networks import chain, quantize_and_run, random_samples

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("operator", "weight"),
    [
        (Convolution(kernel=(3, 3), num_filter=8, no_bias=True), normal(8, 4, 3, 3)),
        (Convolution(kernel=(3, 3), num_filter=8, num_group=2, stride=(2, 1), no_bias=True), normal(8, 2, 3, 3)),
        (Convolution(kernel=(3, 3), num_filter=4, num_group=4, no_bias=True), normal(4, 1, 3, 3)),
        (Convolution(kernel=(2, 3), num_filter=8, num_group=4, dilate=(2, 1), no_bias=True), normal(8, 1, 2, 3)),
        (FullyConnected(num_hidden=5, no_bias=True), normal(5, 4 * 7 * 7)),
        (FullyConnected(num_hidden=5, no_bias=True, flatten=False), normal(5, 7)),
    ],
)
@pytest.mark.parametrize("scales", ["output_channel", "layer"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("offset", [0.0, 3.0, -8.0])
def test_reductions_with_bias_and_relu(
    operator: Operator, weight: np.ndarray, scales: str, pair: tuple[str, str], offset: float
) -> None:
    rank = 2 if isinstance(operator, FullyConnected) and operator.flatten else 4
    channels = weight.shape[0]
    shape = [1] * rank
    shape[1 if isinstance(operator, Convolution) else rank - 1] = channels
    graph = chain((1, 4, 7, 7), (operator, [weight]), (BroadcastAdd(), [normal(*shape)]), (Relu(), []))
    samples = [{"x": feeds["x"] + np.float32(offset)} for feeds in random_samples(graph)]
    outcome = quantize_and_run(graph, samples, quantizers(*pair, scales=scales))
    # Behind the offset the terms cancel and relu leaves little, to which the error is compared.
    assert outcome.relative_error < EIGHT_BITS * (1 if offset == 0 else 2)


def two_inputs(operator: Operator, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> object:
    builder = GraphBuilder()
    a, b = (builder.input(name, TensorType(shape)) for name, shape in zip("ab", shapes, strict=True))
    return builder.graph([builder.apply(operator, [a, b], "y")])


@pytest.mark.parametrize(
    "operator",
    [ElemwiseAdd(), ElemwiseSub(), ElemwiseMul(), BroadcastAdd(), BroadcastSub(), BroadcastMul(), AddN(), Concat()],
    ids=lambda operator: operator.op,
)
@pytest.mark.parametrize("spread", [1.0, 30.0, 0.0])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_two_tensors_of_different_scale(operator: Operator, spread: float, quantizer: str) -> None:
    graph = two_inputs(operator, ((1, 3, 4, 4), (1, 3, 4, 4)))
    samples = random_samples(graph)
    for feeds in samples:
        feeds["a"] = feeds["a"] + np.float32(1.5)
        feeds["b"] = feeds["b"] * np.float32(spread)
    assert quantize_and_run(graph, samples, quantizers(quantizer)).relative_error < EIGHT_BITS


def test_a_sum_that_is_concatenated_is_rounded_once() -> None:
    """Off by half a step of the concat, half a sixteenth of one for each term, and a little for the inputs' steps.

    Terms rounded to whole steps would be off by up to half a step each.
    """
    builder = GraphBuilder()
    a, b, c = (builder.input(name, TensorType((1, 3, 16, 16))) for name in "abc")
    total = builder.apply(ElemwiseAdd(), [a, b], "total")
    graph = builder.graph([builder.apply(Concat(), [total, c], "joined")])
    inputs = {name: {"activation": {"bits": 16}} for name in "abc"}
    config = QuantizationConfig.model_validate({"output": {"bits": 8}, "overrides": inputs})
    assert quantize_and_run(graph, random_samples(graph), config).worst_steps <= 0.5 + 2 / 32 + 0.01


@pytest.mark.parametrize("operator", [ElemwiseAdd(), ElemwiseSub(), ElemwiseMul()], ids=lambda o: o.op)
def test_a_tensor_with_itself(operator: Operator) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 4, 4)))
    graph = builder.graph([builder.apply(operator, [x, x], "y")])
    assert quantize_and_run(graph, random_samples(graph)).relative_error < EIGHT_BITS


@pytest.mark.parametrize("constant", [0.0, 1e-30, -1.0, 1e6])
def test_multiplying_by_awkward_constants(constant: float) -> None:
    graph = chain((1, 3, 4, 4), (BroadcastMul(), [np.full((1, 3, 1, 1), constant)]), (Relu(), []))
    outcome = quantize_and_run(graph, random_samples(graph))
    assert outcome.worst_steps < 300


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_pruned_channel_with_and_without_bias(pair: tuple[str, str]) -> None:
    weight = normal(4, 3, 3, 3)
    weight[1] = 0
    weight[2] = 0
    bias = np.array([0.5, 0.0, 1.5, -0.5]).reshape(1, 4, 1, 1)
    conv = Convolution(kernel=(3, 3), num_filter=4, no_bias=True)
    graph = chain((1, 3, 6, 6), (conv, [weight]), (BroadcastAdd(), [bias]))
    outcome = quantize_and_run(graph, random_samples(graph), quantizers(*pair))
    assert outcome.relative_error < EIGHT_BITS
    for sample in outcome.approximate:
        np.testing.assert_allclose(sample[0][:, 1], 0.0, atol=outcome.integer.outputs[0].step)
        np.testing.assert_allclose(sample[0][:, 2], 1.5, atol=2e-3)


@pytest.mark.parametrize("magnitude", [1e-40, 1e-30, 1e-12, 1e12, 1e30])
def test_weights_of_every_magnitude(magnitude: float) -> None:
    conv = Convolution(kernel=(1, 1), num_filter=4, no_bias=True)
    weight = (normal(4, 3, 1, 1) * magnitude).astype(np.float32)
    graph = chain((1, 3, 6, 6), (conv, [weight]))
    outcome = quantize_and_run(graph, random_samples(graph))
    if magnitude > 1e-28:
        assert outcome.relative_error < EIGHT_BITS
    else:
        assert all(np.abs(sample[0]).max() < 1e-28 for sample in outcome.approximate)


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-40, 1e30])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_constant_tensors(value: float, pair: tuple[str, str]) -> None:
    graph = chain((1, 3, 4, 4), (Relu(), []), (Flatten(), []), (FullyConnected(2, no_bias=True), [normal(2, 48)]))
    samples = [{"x": np.full((1, 3, 4, 4), value, np.float32)}]
    outcome = quantize_and_run(graph, samples, quantizers(*pair))
    assert np.isfinite(outcome.approximate[0][0]).all()
    assert outcome.relative_error < EIGHT_BITS or abs(value) < 1e-28


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8, 10])
def test_more_bits_cost_less(bits: int) -> None:
    conv = Convolution(kernel=(3, 3), num_filter=8, no_bias=True)
    graph = chain((1, 4, 7, 7), (conv, [normal(8, 4, 3, 3)]), (Relu(), []))
    config = QuantizationConfig.model_validate({"activation": {"bits": bits}, "weight": {"bits": bits}})
    outcome = quantize_and_run(graph, random_samples(graph), config)
    assert outcome.relative_error <= 5.0 * 2.0**-bits


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_sixteen_by_sixteen_bits_keep_as_many_as_fit(pair: tuple[str, str]) -> None:
    graph = chain((1, 64, 3, 3), (Convolution(kernel=(3, 3), num_filter=2, no_bias=True), [normal(2, 64, 3, 3)]))
    config = QuantizationConfig.model_validate(
        {"activation": {"bits": 16, "quantizer": pair[0]}, "weight": {"bits": 16, "quantizer": pair[1]}}
    )
    outcome = quantize_and_run(graph, random_samples(graph), config)
    assert outcome.relative_error < 0.01
    weights, sums = outcome.integer.notes
    assert "s0 (Convolution): weights of" in weights and "instead of 16" in weights
    assert "partial sums, shifted right by" in sums


def test_what_fits_in_no_way_is_refused_by_name() -> None:
    """One channel of a convolution is not cut into slices."""
    graph = chain((1, 1, 2**17), (Convolution((2**17,), 1, no_bias=True), [np.ones((1, 1, 2**17))]))
    config = QuantizationConfig.model_validate({"activation": {"bits": 16}, "weight": {"bits": 16}})
    with pytest.raises(QuantizationError, match=r"s0 \(Convolution\): its sums of 131072 products"):
        quantize_and_run(graph, random_samples(graph, 1), config)


def test_overrides_by_pattern() -> None:
    conv = Convolution(kernel=(3, 3), num_filter=8, no_bias=True)
    graph = chain((1, 4, 7, 7), (conv, [normal(8, 4, 3, 3)]), (Relu(), []))
    config = QuantizationConfig.model_validate({"overrides": {"s0*": {"weight": {"bits": 3}}}})
    integer = quantize_and_run(graph, random_samples(graph), config).integer
    assert np.abs(integer.graph.parameters["p0_0"]).max() <= 3


def test_a_shared_weight_with_consumers_of_different_scale() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4)))
    w = builder.parameter("w", normal(4, 4))
    first = builder.apply(FullyConnected(4, no_bias=True), [x, w], "first")
    second = builder.apply(FullyConnected(4, no_bias=True), [first, w], "second")
    graph = builder.graph([first, second, x, w])
    assert quantize_and_run(graph, random_samples(graph)).relative_error < 2 * EIGHT_BITS


def test_operators_without_an_integer_form_are_listed_together() -> None:
    graph = chain((1, 4), (Identity(), []), (Relu(), []), (Identity(), []))
    with pytest.raises(UnsupportedOperatorError, match=r"_copy \(2: s0, s2\)"):
        quantize_and_run(graph, random_samples(graph))


def test_a_long_chain() -> None:
    graph = chain((1, 4), *[(Relu(), [])] * 3_000)
    assert quantize_and_run(graph, random_samples(graph, 1)).relative_error < EIGHT_BITS


def test_a_clip_that_no_value_reaches_is_a_constant() -> None:
    graph = chain((1, 8), (Clip(a_min=5.0, a_max=6.0), []))
    assert quantize_and_run(graph, random_samples(graph)).relative_error < 1e-3


def test_a_bias_behind_zeros_is_kept() -> None:
    dense = FullyConnected(num_hidden=2, no_bias=True)
    bias = np.array([[0.003, -0.002]])
    graph = chain((1, 8), (Clip(a_min=0.0, a_max=0.0), []), (dense, [np.ones((2, 8))]), (BroadcastAdd(), [bias]))
    assert quantize_and_run(graph, random_samples(graph)).relative_error < 1e-3


@pytest.mark.parametrize(("factor", "constant"), [(1.0, 1e10), (1e-8, 1e6)])
def test_a_constant_far_above_the_data(factor: float, constant: float) -> None:
    steps = [(BroadcastMul(), [np.full((1, 1), factor)]), (BroadcastAdd(), [np.full((1, 1), constant)])]
    graph = chain((1, 8), *steps)
    assert quantize_and_run(graph, random_samples(graph)).relative_error < 1e-3
