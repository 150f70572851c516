"""Rectifiers in integers: LeakyReLU with one slope and with one for each channel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from mrt.errors import QuantizationError
from mrt.frontend.onnx import from_onnx
from mrt.preparation import prepare
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from tests.compiled_integers import assert_compiled_alike
from tests.frontend.onnx_models import make_model, run_onnxruntime
from tests.quantization.networks import Outcome, chain, quantize_and_run, random_samples

PRELU = LeakyReLU(act_type="prelu")
SLOPES = [
    [0.25, 0.0, 1.0],
    [0.1, 1.75, 40.0],
    [-0.5, -1.0, -3.0],
    [-2.0, 0.0, 0.3],
    [1e-3, -1e-6, 1e-40],
    [0.0, 0.0, 0.0],
    [-0.75],
    [1.5],
]
RNG = np.random.default_rng(13)


def configured(quantizer: str = "symmetric", bits: int = 8, output: int = 8) -> QuantizationConfig:
    activation = {"quantizer": quantizer, "bits": bits}
    return QuantizationConfig.model_validate({"activation": activation, "output": {"bits": output}})


def check_error(outcome: Outcome, slopes: list[float]) -> None:
    """|y - f(x)| <= max(1, |slope|) sx / 2, half a step of the output and of the 16 times finer common scale, and the
    rounding of two multipliers of 14 bits or more."""
    gain, step = max(1.0, *np.abs(slopes)), outcome.integer.outputs[0].step
    for (real,), (found,) in zip(outcome.real, outcome.approximate, strict=True):
        allowed = gain * outcome.integer.inputs[0][1].scale / 2 + step * (1 / 2 + 1 / 32) + 2.0**-13 * np.abs(real)
        assert (np.abs(found - real) <= allowed).all()


@pytest.mark.parametrize("slopes", SLOPES, ids=str)
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("offset", [0.0, 2.0, -2.5])
def test_slopes_of_each_channel(slopes: list[float], quantizer: str, bits: int, offset: float) -> None:
    graph = chain((2, 3, 20, 20), (PRELU, [np.array(slopes)]))
    samples = [{"x": feeds["x"] + np.float32(offset)} for feeds in random_samples(graph)]
    check_error(quantize_and_run(graph, samples, configured(quantizer, bits)), slopes)


@pytest.mark.parametrize("slope", [0.25, 0.0, 1.0, -0.5, -1.0, -20.0, 7.0, 1e-40])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_one_slope(slope: float, quantizer: str) -> None:
    graph = chain((1, 3, 20, 20), (LeakyReLU(slope=slope), []))
    check_error(quantize_and_run(graph, random_samples(graph), configured(quantizer)), [slope])


@settings(max_examples=40)
@given(st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=6), st.sampled_from(["symmetric", "affine"]))
def test_any_slopes(slopes: list[float], quantizer: str) -> None:
    graph = chain((1, len(slopes), 40), (PRELU, [np.array(slopes)]))
    check_error(quantize_and_run(graph, random_samples(graph, 1), configured(quantizer)), slopes)


@pytest.mark.parametrize("shape", [(1, 3), (4, 3), (2, 3, 5), (1, 3, 2, 2, 2)])
@pytest.mark.parametrize("slopes", [[-0.5, 0.25, 2.0], [0.5]], ids=str)
def test_ranks(shape: tuple[int, ...], slopes: list[float]) -> None:
    graph = chain(shape, (PRELU, [np.array(slopes)]))
    check_error(quantize_and_run(graph, random_samples(graph, 32), configured()), slopes)


def test_a_vector() -> None:
    graph = chain((7,), (PRELU, [np.array([-0.5])]))
    check_error(quantize_and_run(graph, random_samples(graph, 32), configured()), [-0.5])


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize(
    ("operator", "weight"),
    [
        (Convolution(kernel=(3, 3), num_filter=3, no_bias=True), RNG.standard_normal((3, 4, 3, 3))),
        (FullyConnected(num_hidden=3, no_bias=True), RNG.standard_normal((3, 4 * 6 * 8))),
        # Its scales lie along the last axis, the slopes along axis 1.
        (FullyConnected(num_hidden=9, no_bias=True, flatten=False), RNG.standard_normal((9, 8))),
    ],
    ids=["Convolution", "FullyConnected", "FullyConnected-last-axis"],
)
def test_behind_scales_of_each_channel(operator: Operator, weight: np.ndarray, quantizer: str) -> None:
    slopes = np.linspace(1.3, -0.8, 3 if len(weight) == 3 else 4)
    graph = chain((1, 4, 6, 8), (operator, [weight]), (PRELU, [slopes]))
    outcome = quantize_and_run(graph, random_samples(graph), configured(quantizer, output=16))
    assert outcome.relative_error < 0.02
    assert_compiled_alike(outcome.integer)


@pytest.mark.parametrize("slopes", [[0.25, 1.0, 1.5], [-0.5, -1.0, -3.0], [-2.0, 0.0, 0.3]], ids=str)
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_compiled_integers_are_the_evaluated_ones(slopes: list[float], quantizer: str) -> None:
    graph = chain((1, 3, 8, 9), (PRELU, [np.array(slopes)]))
    assert_compiled_alike(quantize_and_run(graph, random_samples(graph), configured(quantizer)).integer)


def test_slopes_that_are_no_constant_are_refused_by_name() -> None:
    builder = GraphBuilder()
    inputs = [builder.input("x", TensorType((1, 3, 4))), builder.input("slope", TensorType((3,)))]
    graph = builder.graph([builder.apply(PRELU, inputs, "y")])
    with pytest.raises(QuantizationError, match=r"y \(LeakyReLU\): slope must be a constant"):
        quantize_and_run(graph, random_samples(graph))


def prelu_network() -> Graph:
    """Two convolutions, each with a PReLU of slopes of all signs, pooling, and a layer; read from ONNX."""
    random = np.random.default_rng(21)
    weights = {
        "w1": random.standard_normal((8, 3, 3, 3)) / 5,
        "b1": random.standard_normal(8) / 4,
        "s1": random.uniform(-0.5, 1.5, (8, 1, 1)),
        "w2": random.standard_normal((12, 8, 3, 3)) / 8,
        "b2": random.standard_normal(12) / 4,
        "s2": random.uniform(0.0, 0.5, (12, 1, 1)),
        "w3": random.standard_normal((5, 12)) / 3,
        "b3": random.standard_normal(5) / 4,
        "s3": np.array([0.2]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"]),
        helper.make_node("PRelu", ["c1", "s1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("PRelu", ["c2", "s2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["l"], transB=1),
        helper.make_node("PRelu", ["l", "s3"], ["y"]),
    ]
    constants = {name: value.astype(np.float32) for name, value in weights.items()}
    model = make_model(nodes, {"x": (1, 3, 14, 14)}, constants=constants)
    graph = from_onnx(model)
    (feeds,) = random_samples(graph, 1)
    np.testing.assert_allclose(graph.evaluate(feeds)[0], run_onnxruntime(model, feeds)[0], rtol=1e-4, atol=1e-5)
    return graph


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_a_network_of_prelus(quantizer: str) -> None:
    graph = prepare(prelu_network()).graph
    outcome = quantize_and_run(graph, random_samples(graph, 16), configured(quantizer, output=16))
    assert outcome.relative_error < 0.08
    assert_compiled_alike(outcome.integer)
