"""Trained quantization: the integers against the definitions, computed with fractions and in float64."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

import mrt
from mrt.errors import DataError, QuantizationError
from mrt.preparation import prepare
from mrt.quantization.constant_grids import fold_constants
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, Symbol, TensorType
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.functions import HardSwish, Silu
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.transform import Reshape, Transpose
from tests.expansions.trained_graphs import (
    ACTIVATIONS,
    BETWEEN,
    GIVEN,
    LAYERS,
    RANGES,
    SIGNED,
    SPAN,
    STEP,
    WEIGHTS,
    all_steps,
    assert_rounded_once,
    between,
    defined,
    dequantizer,
    exactly,
    fake_quantize,
    integers_of,
    layer_graph,
    layers_sum,
    mixed_graph,
    one,
    per_channel_depthwise,
    qdq_graph,
    quantizer,
)


@pytest.mark.parametrize("levels", [2, 15, 256, 65536])
@pytest.mark.parametrize("kind", RANGES)
def test_integer_chain_is_the_definition_but_for_ties(kind: str, levels: int) -> None:
    limits = RANGES[kind] if len(RANGES[kind]) == 4 else (*RANGES[kind], *RANGES[kind])
    builder = GraphBuilder()
    data = builder.input("x", TensorType((1, 1)))
    graph = builder.graph([fake_quantize(builder, data, limits, levels, "y")])
    model = integers_of(graph, inputs=GIVEN)
    (found,) = model.dequantize_outputs(model.rebatched(2 * SPAN + 1).graph.evaluate({"x": all_steps()}))
    # The levels themselves, but where their zero is no integer: those leave in 2^15 steps.
    reach = max(abs(limits[2]), abs(limits[3]))
    is_whole = prepare(graph).graph.outputs[0].op == "FakeQuantize"
    off = reach * (1e-6 if is_whole else 1.25 * 2.0**-15)
    for step, value in zip(range(-SPAN, SPAN + 1), found[:, 0].tolist(), strict=True):
        wanted = defined(Fraction(step) * Fraction(STEP), limits, levels)
        nearest = min(abs(float(w) - value) for w in wanted)
        assert nearest <= off, (step, value, wanted)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_layer_rounds_once(layer: str, activation: str) -> None:
    assert_rounded_once(layer_graph(layer, ACTIVATIONS[activation], "channels", (0.0, 2.5)))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("weight", WEIGHTS)
def test_a_layer_takes_the_integers_of_its_weight(layer: str, weight: str) -> None:
    assert_rounded_once(layer_graph(layer, ACTIVATIONS["zero point"], weight, (0.0, 3.5)))


@pytest.mark.parametrize("case", BETWEEN)
def test_what_stands_between_two_quantizers_is_rounded_by_the_second(case: str) -> None:
    """Sums too: nothing is rounded to more than a part in 2^20 of its step first."""
    make, out, off = BETWEEN[case]
    model = assert_rounded_once(between(make, out), off)
    assert not any("anew" in note for note in model.notes)


def test_scales_and_zero_points_of_channels_of_the_source() -> None:
    """Channel by channel, so that `assert_rounded_once`, whose quantizers have one, sees each of them."""
    assert_rounded_once(per_channel_depthwise(), 2e-5)


def test_a_sum_over_channels_of_several_scales_is_noted() -> None:
    integer = mrt.quantize(per_channel_depthwise(dense=True))
    (note,) = (note for note in integer.notes if "one scale" in note)
    assert note == "rounded anew to one scale for Convolution, which adds up channels of several: layer_pad"


@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 0), ("int8", 0), ("int16", 0), ("int32", 16), ("uint8", 4)])
def test_quantize_and_dequantize_of_onnx(dtype: str, bits: int) -> None:
    """The integers are those of the definition, in float64, on the same inputs; halves may go either way."""
    graph = qdq_graph(dtype, bits)
    model = mrt.quantize(graph)
    x = np.random.default_rng(8).normal(0.3, 0.5, (2, 4, 6, 6)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    (wanted,) = exactly(graph, {"x": x})
    steps = np.abs(found - wanted) / 0.031
    assert steps.max() < 1.001 and np.mean(steps > 0.5) < 2e-3
    assert model.inputs[0].zero_point == 19 and model.outputs[0].zero_point == 3
    assert model.outputs[0].scale == np.float32(0.031)
    assert not model.ranges and not any("anew" in note for note in model.notes)


def test_a_function_between_quantizers_of_16_bits_has_entries_of_16_bits() -> None:
    builder = GraphBuilder()
    data = quantizer(builder, builder.input("x", TensorType((2, 500))), 0.0002, 32768, "q", "int32", 16)
    found = builder.apply(Sigmoid(), [dequantizer(builder, data, 0.0002, 32768, "real")], "function")
    graph = builder.graph([quantizer(builder, found, 2.0**-16, 0, "y", "int32", 16)])
    x = np.random.default_rng(8).normal(0, 3, (2, 500)).astype(np.float32)
    model = mrt.quantize(graph)
    (found,) = model.graph.evaluate(model.quantize_inputs(x))
    (wanted,) = exactly(graph, {"x": x})
    assert np.abs(found - wanted).max() <= 1 and np.mean(found != wanted) < 0.01


def test_integers_that_come_in_are_dequantized_by_the_network() -> None:
    builder = GraphBuilder()
    data = builder.input("x", TensorType((2, 3), "uint8"))
    real = dequantizer(builder, data, 0.5, 128, "real")
    graph = builder.graph([fake_quantize(builder, builder.apply(Relu(), [real], "r"), (0.0, 31.875), 256, "y")])
    model = mrt.quantize(graph)
    x = np.array([[0, 127, 128], [129, 200, 255]], np.uint8)
    assert model.inputs[0].is_given and model.inputs[0].dtype == "uint8"
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    np.testing.assert_allclose(found, np.clip((x.astype(float) - 128) * 0.5, 0, 31.875), atol=0.0626)


def test_the_rest_of_a_network_is_calibrated() -> None:
    graph = mixed_graph(lambda builder, data: builder.apply(Silu(), [data], "function"))
    with pytest.raises(QuantizationError, match="not known without data: first, function; no"):
        mrt.quantize(graph)
    x = np.random.default_rng(4).normal(0, 0.8, (2, 4, 6, 6)).astype(np.float32)
    model = mrt.quantize(graph, x, runner=NumpyRunner())
    assert set(model.ranges) == {"first", "function", "last"}
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    (wanted,) = graph.evaluate({"x": x})
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()
    notes = "\n".join(model.notes)
    assert "rounded anew for silu, since no quantizer of the network stands before it: first" in notes


FLAT = {
    "of its own range": (one(Sigmoid()), (0.0, 1.0)),
    "behind a quantizer": (one(Silu()), (-1.0, 1.55)),
    "behind a quantizer that is moved": (one(HardSwish(), Transpose(axes=(0, 2, 3, 1))), (-0.5, 0.775)),
}


@pytest.mark.parametrize("case", FLAT)
def test_a_function_of_an_accumulator_needs_no_data_where_what_it_tells_apart_is_known(case: str) -> None:
    """The accumulator is rounded to 16 bits over that, however far its proven range goes."""
    make, out = FLAT[case]
    graph = between(lambda builder, sources: make(builder, [layers_sum(builder, sources)]), out)
    assert_rounded_once(graph, 0.02)


def test_what_a_network_does_not_round_is_rounded_to_16_bits() -> None:
    """A global average before a function: 8 bits would bring the result off by steps of the quantizer."""
    pooling = Pooling(global_pool=True, pool_type="avg", kernel=(1, 1))
    graph = between(one(LeakyReLU(slope=0.1), pooling, Sigmoid()), (0.4, 0.6))
    assert_rounded_once(graph, 0.05)


def test_what_a_quantizer_bounds_needs_no_data() -> None:
    """The second layer reads the first one's output through a quantizer; its own output leaves at its proven range."""
    graph = mixed_graph(lambda builder, data: fake_quantize(builder, data, (0.0, 2.0), 256, "between"))
    model = mrt.quantize(graph)
    x = np.random.default_rng(4).normal(0, 0.8, (2, 4, 6, 6)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    (wanted,) = graph.evaluate({"x": x})
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_float_network_needs_data() -> None:
    builder = GraphBuilder()
    graph = builder.graph([builder.apply(Relu(), [builder.input("x", TensorType((1, 3)))], "y")])
    with pytest.raises(QuantizationError, match="x .* has no range; calibrate it first"):
        mrt.quantize(graph)
    with pytest.raises(DataError, match="fast bias correction needs calibration data"):
        mrt.quantize(graph, quantization=QuantizationConfig(bias_correction="fast"))


@pytest.mark.parametrize("same", [True, False])
def test_ranges_are_tuned_where_that_is_asked_and_noted(same: bool) -> None:
    limits = (-1.0, 1.63) if same else (-1.0, 1.63, -2.0, 2.9)
    builder = GraphBuilder()
    graph = builder.graph([fake_quantize(builder, builder.input("x", TensorType((1, 64))), limits, 256, "y")])
    prepared = prepare(graph, tune_ranges=True)
    (note,) = prepared.notes
    assert note.startswith("y (FakeQuantize): tuned to an integer zero point: input [-1, 1.63] became [")
    tuned = [prepared.graph.parameters[source.name] for source in prepared.graph.outputs[0].inputs[1:]]
    for (low, high), (old_low, old_high) in zip((tuned[:2], tuned[2:]), (limits[:2], limits[-2:]), strict=True):
        zero = -low / (high - low) * 255
        assert abs(zero - np.rint(zero)) < 1e-9
        step = (old_high - old_low) / 255
        assert abs(low - old_low) < step and abs(high - old_high) < step
        assert np.isclose(low, old_low, rtol=1e-6) or np.isclose(high, old_high, rtol=1e-6)
    model = mrt.quantize(graph, quantization=QuantizationConfig(tune_ranges=True))
    assert model.notes[0] == note and model.outputs[0].zero_point in range(256)
    assert not any("tuned" in note for note in mrt.quantize(graph).notes)


def test_weights_without_an_integer_zero_keep_a_finer_one() -> None:
    """They are as near as integers of 16 bits, a part in 2^7 of their step."""
    weight = np.random.default_rng(9).uniform(-0.7, 1.1, (6, 20)).astype(np.float32)
    builder = GraphBuilder()
    data = fake_quantize(builder, builder.input("x", TensorType((3, 20))), SIGNED, 256, "a")
    quantized = fake_quantize(builder, builder.parameter("w", weight), (-0.7001, 1.1), 256, "w_q")
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=6, no_bias=True), [data, quantized], "layer")])
    prepared, constants = fold_constants(prepare(graph).graph)
    (defined_weight,) = Graph((), (quantized,), graph.parameters).evaluate({})
    assert list(constants) == ["w_q"] and np.abs(constants["w_q"].integers).max() < 2**15
    assert np.abs(prepared.parameters["w_q"] - defined_weight).max() <= (1.8 / 255) / 2**7


@pytest.mark.parametrize("block", [1, 5])
def test_a_weight_with_a_scale_for_each_input_channel_is_quantized_anew_and_noted(block: int) -> None:
    builder = GraphBuilder()
    data = fake_quantize(builder, builder.input("x", TensorType((3, 20))), SIGNED, 256, "a")
    integers = builder.parameter("w", np.random.default_rng(1).integers(-127, 128, (6, 20)).astype(np.int8))
    weight = dequantizer(builder, integers, np.linspace(0.01, 0.02, 20 // block).repeat(block), 0, "w_q")
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=6, no_bias=True), [data, weight], "layer")])
    notes = expand_graph(prepare(graph).graph, {}, QuantizationConfig()).notes
    assert any(
        note.startswith("layer (FullyConnected): w_q came quantized with a scale for each input") for note in notes
    )


@pytest.mark.parametrize("zero_point", [0, 3])
def test_a_weight_with_negative_scales_is_turned_round(zero_point: int) -> None:
    """As NNCF compresses weights: that of largest magnitude is -128. The integers stay those of int8."""
    integers = np.random.default_rng(1).integers(-128, 128, (4, 4, 3, 3)).astype(np.int8)
    integers[:, 0, 0, 0] = -128
    scales = np.reshape([0.011, -0.0093, -0.0121, 0.0087], (4, 1, 1, 1))

    def layer(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
        weight = dequantizer(builder, builder.parameter("w", integers), scales, zero_point, "w_q")
        operator = Convolution(kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True)
        return builder.apply(operator, [sources[0], weight], "layer")

    model = assert_rounded_once(between(layer, (-6.4, 6.35)))
    weights = [s.inputs[1] for s in model.graph.operators if s.op == "Convolution"]
    assert all(weight.dtype == "int8" for weight in weights)


def test_constants_are_followed_through_what_moves_and_scales_them() -> None:
    """A transposed, negatively scaled weight: the integers of the oracle, not ones that were rounded anew."""
    rng, builder = np.random.default_rng(2), GraphBuilder()
    values = rng.integers(-127, 128, (20, 6)).astype(np.int8)
    weight = dequantizer(builder, builder.parameter("w", values), np.linspace(0.01, 0.02, 6), 3, "w_q")
    factor = builder.parameter("f", np.float32([-2.0]))
    scaled = builder.apply(BroadcastMul(), [builder.apply(Transpose(), [weight], "turned"), factor], "scaled")
    data = fake_quantize(builder, builder.input("x", TensorType((3, 20))), SIGNED, 256, "a")
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=6, no_bias=True), [data, scaled], "layer")])
    _, constants = fold_constants(prepare(graph).graph)
    grid = constants["scaled"]
    assert (grid.integers == -values.T).all() and (grid.zero_point == -3).all()
    np.testing.assert_allclose(grid.scale.reshape(-1), np.float32(np.linspace(0.01, 0.02, 6)) * 2.0, rtol=1e-12)


def test_limits_of_channels_are_one_clip() -> None:
    """Every clip behind the rounding has the same two ends for all channels: those of the levels."""
    model = integers_of(per_channel_depthwise())
    ends = [(s.operator.a_min, s.operator.a_max) for s in model.graph.operators if isinstance(s.operator, Clip)]
    assert (0.0, 255.0) in ends
    assert not any(symbol.op in ("broadcast_maximum", "broadcast_minimum") for symbol in model.graph.operators)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ((-1.0, 1.63), "since their zero point is no integer"),
        ((0.3, 0.3, -1.0, 1.0), "since their limits are equal"),
        ((1.0, -1.0, -1.0, 1.0), "since their limits are in the wrong order"),
    ],
)
def test_a_chain_that_stays_is_noted(limits: Sequence[float], reason: str) -> None:
    graph = between(lambda builder, sources: fake_quantize(builder, sources[0], limits, 256, "stays"))
    (note,) = (note for note in mrt.quantize(graph).notes if "element by element" in note)
    assert note.startswith(f"computed element by element, {reason}: stays")


def test_a_matrix_product_takes_the_integers_of_its_constant() -> None:
    def product(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
        integers = np.random.default_rng(4).integers(-99, 100, (2, 6, 5)).astype(np.int8)
        constant = dequantizer(builder, builder.parameter("w", integers), 0.0113, 2, "w_q")
        rows = builder.apply(Reshape(shape=(2, 24, 6)), [sources[0]], "rows")
        return builder.apply(BatchDot(), [rows, constant], "product")

    assert_rounded_once(between(product, (-2.0, 3.1)))


def test_an_input_that_is_moved_first_comes_in_at_the_grid_of_its_quantizer() -> None:
    builder = GraphBuilder()
    moved = builder.apply(Transpose(axes=(0, 2, 1)), [builder.input("x", TensorType((2, 3, 4)))], "moved")
    padded = builder.apply(Pad(pad_width=(0, 0, 1, 1, 0, 2)), [moved], "padded")
    graph = builder.graph([fake_quantize(builder, padded, (-1.0, 1.55), 256, "y")])
    model = mrt.quantize(graph)
    assert (model.inputs[0].scale, model.inputs[0].zero_point) == (np.float32(0.01), 100)
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 4)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    np.testing.assert_allclose(found, graph.evaluate({"x": x})[0], atol=1e-6)


@pytest.mark.parametrize("limits", [(100.0, 103.0), (-31.7, -30.01)])
def test_an_input_far_from_zero_comes_in_over_its_range(limits: Sequence[float]) -> None:
    """With no integer zero point, in 16 bits of that range and not of all from zero on."""
    builder = GraphBuilder()
    graph = builder.graph([fake_quantize(builder, builder.input("x", TensorType((1, 999))), limits, 255, "y")])
    model = mrt.quantize(graph)
    x = np.random.default_rng(0).uniform(limits[0] - 0.3, limits[1] + 0.3, (1, 999)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    steps = np.abs(found - graph.evaluate({"x": x})[0]) / ((limits[1] - limits[0]) / 254)
    assert steps.max() < 1.6 and np.mean(steps > 0.7) < 0.02


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((-1e-30, 1e-30), "its output has steps of 7.8"),
        ((np.full((2, 1, 1), -1), np.array([1, 2]).reshape(2, 1, 1)), "its output has a scale along the batch"),
    ],
)
def test_quantizers_without_a_form_are_refused_with_the_reason(limits: Sequence[object], words: str) -> None:
    builder = GraphBuilder()
    data = builder.input("x", TensorType((2, 3, 4)))
    graph = builder.graph([fake_quantize(builder, data, limits, 256, "y")])
    with pytest.raises(QuantizationError, match=f"FakeQuantize.: {words}"):
        mrt.quantize(graph, np.ones((2, 3, 4), np.float32), runner=NumpyRunner())


def test_what_the_records_do_not_bound_is_bounded_by_its_quantizer() -> None:
    builder = GraphBuilder()
    data = fake_quantize(builder, builder.input("x", TensorType((2, 64))), SIGNED, 256, "a")
    gamma, beta = (builder.parameter(n, np.full(64, v, np.float32)) for n, v in (("gamma", 1.0), ("beta", 0.1)))
    normal = builder.apply(LayerNorm(), [data, gamma, beta], "normal")
    graph = builder.graph([fake_quantize(builder, normal, (-4.0, 4.0 * 127 / 128), 256, "y")])
    model = mrt.quantize(graph)
    x = np.random.default_rng(0).normal(0, 1, (2, 64)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    assert np.abs(found - graph.evaluate({"x": x})[0]).max() < 1.5 * 4 / 128


def test_limits_beyond_those_of_the_quantizer_are_not_computed() -> None:
    """There are as many as without them."""
    product, limits = MulScalar(scalar=0.73), Clip(a_min=0.0, a_max=6.0)
    with_limits, without = (
        assert_rounded_once(between(one(*ops), (0.0, 5.99))) for ops in ((product, limits), (product,))
    )
    assert [s.op for s in with_limits.graph.operators] == [s.op for s in without.graph.operators]
