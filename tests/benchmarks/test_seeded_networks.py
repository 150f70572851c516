"""Seeded networks: ONNX Runtime computes what they were built from, and they are the architectures of their names."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
from loaded import load_benchmark

seeded = load_benchmark("seeded_networks")
building = load_benchmark("network_builder")
onnxruntime = pytest.importorskip("onnxruntime")

OUTPUTS = {"resnet8": (10,), "resnet20": (10,), "kws_dscnn": (12,), "kwt1": (12,), "yolov8n": (144, 2100)}
"""Of a sample; (1000,) in the others."""
SHAPES = {
    "resnet8": (3, 32, 32),
    "resnet20": (3, 32, 32),
    "kws_dscnn": (1, 49, 10),
    "kwt1": (98, 40),
    "yolov8n": (3, 320, 320),
}
"""(3, 224, 224) in the others."""
LARGE = {"resnet50", "resnet18", "mobilenetv2", "efficientnet_b0", "yolov8n", "squeezenet", "kwt1"}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in seeded.NETWORKS]


PARAMETERS = {
    # The numbers of torchvision, Keras and Ultralytics count two trained parameters for each channel of a batch
    # normalisation; one is left where that is folded.
    "resnet50": 25_557_032 - 26_560,
    "resnet18": 11_689_512 - 4_800,
    "mobilenetv2": 3_504_872 - 17_056,
    "mobilenetv1_025": 470_072 - 2_736,
    "squeezenet": 1_235_496,
    "efficientnet_b0": 5_288_548 - 21_008,
    # Less the 16 numbers that distances are expectations of, which are no part of this network.
    "yolov8n": 3_157_200 - 16 - 5_296,
}

Run = Callable[[np.ndarray], np.ndarray]


def running(model: onnx.ModelProto) -> Run:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_that_of_its_name(name: str) -> None:
    model = seeded.NETWORKS[name](1.0)
    onnx.checker.check_model(model, full_check=True)
    assert [entry.name for entry in (*model.graph.input, *model.graph.output)] == ["x", "y"]
    shape = SHAPES.get(name, (3, 224, 224))
    assert seeded.the_input(model)[1] == shape
    run = running(model)
    check_batches(run, shape, OUTPUTS.get(name, (1000,)))
    if name != "yolov8n":  # which has no logits
        check_logits(name, run, shape)
    if name in PARAMETERS:
        assert trained_parameters(model) == PARAMETERS[name]


def check_batches(run: Run, shape: tuple[int, ...], output: tuple[int, ...]) -> None:
    """A network takes any batch, of which samples are told apart."""
    x = building.samples(shape, 3, seed=4)
    together = run(x)
    assert together.shape == (3, *output)
    alone = np.concatenate([run(sample[None]) for sample in x])
    np.testing.assert_allclose(together, alone, atol=1e-3)
    assert together.std(0).mean() > 0.2 * together.std()


def check_logits(name: str, run: Run, shape: tuple[int, ...]) -> None:
    """Those of the probes are centred, as they were while the network was built: its every operator means the same to
    ONNX Runtime."""
    logits = run(building.samples(shape, building.PROBES, seed=0))
    np.testing.assert_allclose(logits.mean(0), 0, atol=2e-3 * np.abs(logits).max())
    if name != "squeezenet":  # whose last layer is a convolution
        assert np.square(logits).mean() == pytest.approx(1, rel=1e-2)


def trained_parameters(model: onnx.ModelProto) -> int:
    sizes = {tensor.name: prod(tensor.dims) for tensor in model.graph.initializer}
    trained = [node.input[1:] for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    return sum(sizes[each] for names in trained for each in names)


def test_networks_with_relu6_clip() -> None:
    kinds = [node.op_type for node in seeded.NETWORKS["mobilenetv1_025"](1.0).graph.node]
    assert kinds.count("Clip") == kinds.count("Conv") == 27 and "Relu" not in kinds


def image(**options: Any) -> Any:
    return building.Builder((3, 9, 8), 0, **options)


def sequence() -> Any:
    return building.Builder((5, 6), 0)


@pytest.mark.parametrize(
    ("builder", "layer"),
    [
        (image, lambda b: b.convolution(b.input, 7, 3)),
        (image, lambda b: b.convolution(b.input, 7, (4, 3), 2, (2, 0, 1, 1))),
        (image, lambda b: b.convolution(b.input, 5, 1, 2, gain=0.5)),
        (image, lambda b: b.convolution(b.input, 3, 3, 2, depthwise=True)),
        (image, lambda b: b.max_pooling(b.convolution(b.input, 4, 3), 3, 2, 1)),
        (image, lambda b: b.concat(b.relu(b.input), b.relu6(b.convolution(b.input, 4, 3, gain=9.0)))),
        (image, lambda b: b.silu(b.enlarged(b.channels_of(b.input, 1, 3)))),
        (image, lambda b: b.multiply(b.input, b.sigmoid(b.convolution(b.mean_position(b.input), 3, 1)))),
        (image, lambda b: b.concat(b.flat_positions(b.input), b.flat_positions(b.relu(b.input)), axis=2)),
        (image, lambda b: b.classifier(b.global_average(b.input), 5)),
        (sequence, lambda b: b.layer_norm(b.linear(b.input, 4))),
        (sequence, lambda b: b.gelu(b.linear(b.input, 4))),
        (sequence, lambda b: b.attention(b.input)),
        (sequence, lambda b: b.first_token(b.class_token(b.input))),
        (sequence, lambda b: b.class_token(b.input)),
    ],
)
def test_a_layer_is_evaluated_as_onnx_runtime_does(builder: Callable[[], Any], layer: Callable[[Any], Any]) -> None:
    b = builder()
    output = layer(b)
    found = running(b.model("layer", output))(b.input.value)
    np.testing.assert_allclose(found, output.value, rtol=1e-4, atol=1e-5)


def test_channels_are_of_equal_width_or_spread() -> None:
    b = image()
    value = b.convolution(b.input, 64, 3).value
    np.testing.assert_allclose(value.mean((0, 2, 3)), building.SHIFT, rtol=1e-3)
    np.testing.assert_allclose(value.std((0, 2, 3)), 1, rtol=1e-3)
    b = image(spread=16.0)
    widths = b.convolution(b.input, 64, 3).value.std((0, 2, 3))
    assert 1 / 16.1 < widths.min() < 1 / 8 and 1 / 2 < widths.max() < 1.01


def test_samples_are_seeded_and_neighbours_are_alike() -> None:
    x = building.samples((3, 40, 50), 6, seed=1)
    assert x.shape == (6, 3, 40, 50) and x.dtype == np.float32
    np.testing.assert_array_equal(x, building.samples((3, 40, 50), 6, seed=1))
    assert np.abs(x - building.samples((3, 40, 50), 6, seed=2)).mean() > 0.5
    assert abs(x.mean()) < 0.3 and 0.6 < x.var() < 1.4
    near = np.corrcoef(x[..., 1:].ravel(), x[..., :-1].ravel())[0, 1]
    assert near > 0.5 > np.corrcoef(x[0].ravel(), x[1].ravel())[0, 1]
