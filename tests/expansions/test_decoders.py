"""Whole networks that enlarge: a segmentation head on a trained stem and a super-resolution network, on real images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm.relax.frontend.onnx import from_onnx as import_onnx

import mrt
from mrt.evaluation import quantization_noise
from mrt.symbol import Array
from tests.frontend.onnx_models import run_onnxruntime

CALIBRATION, TEST, COMPILED = 128, 100, 8
"""How many images."""
CLASSES = 10
FINE, DEEP = "/layer2/layer2.2/Relu_1_output_0", "/layer3/layer3.2/Relu_1_output_0"
"""The trained stem's features at 16 x 16 and at 8 x 8."""
MIXED = [("symmetric", "affine"), ("affine", "symmetric")]
PAIRS = ("activation", "weight")

LoadData = Callable[[str, str], tuple[Array, Array]]


class Nodes:
    """The nodes and constants of an ONNX graph that grows; a node has one output, by which it is called."""

    def __init__(self, nodes: Sequence[onnx.NodeProto] = (), constants: Sequence[onnx.TensorProto] = ()) -> None:
        self.nodes, self.constants = list(nodes), list(constants)

    def __call__(self, op: str, output: str, *inputs: str | Array, **attributes: object) -> str:
        """A new node; gives its output. Inputs that are arrays become constants."""
        names = [given if isinstance(given, str) else f"{output}_{place}" for place, given in enumerate(inputs)]
        arrays = ((name, given) for name, given in zip(names, inputs, strict=True) if not isinstance(given, str))
        self.constants.extend(numpy_helper.from_array(given, name) for name, given in arrays)
        self.nodes.append(helper.make_node(op, names, [output], **attributes))
        return output

    def model(self, shape: Sequence[int | str], outputs: Mapping[str, int]) -> onnx.ModelProto:
        """The model of one float input, "input"; outputs with their element types."""
        source = helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)
        results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
        graph = helper.make_graph(self.nodes, "decoder", [source], results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@dataclass(frozen=True, eq=False)
class Network:
    """A model, the images (N, C, H, W) that it reads, and what ONNX Runtime makes of those of the test."""

    model: onnx.ModelProto
    calibration: Array
    test: Array
    expected: list[Array]

    @classmethod
    def of(cls, model: onnx.ModelProto, calibration: Array, test: Array) -> Network:
        return cls(model, calibration, test, run_onnxruntime(model, {"input": test}))

    def quantized(self, activation: str, weight: str) -> mrt.QuantizedModel:
        options = {"preset": "fast", "activation": {"quantizer": activation}, "weight": {"quantizer": weight}}
        config = mrt.QuantizationConfig.model_validate(options)
        return mrt.quantize(mrt.from_onnx(self.model), self.calibration, quantization=config)


def integers(*values: int) -> Array:
    return np.array(values, np.int64)


def bilinear(size: int) -> Array:
    """The kernel (size, size) of a deconvolution of stride 2 that interpolates linearly."""
    reach = (size + 1) // 2
    centre = reach - 1 if size % 2 else reach - 0.5
    line = 1 - np.abs(np.arange(size) - centre) / reach
    return np.outer(line, line).astype(np.float32)


@pytest.fixture(scope="module")
def segmentation(data_folder: Path, load_data: LoadData) -> Network:
    """The stem of a trained ResNet-20 and, in the manner of fully convolutional networks, its classifier at each place.

    Class scores at 8 x 8 are interpolated to 18 x 18 and cropped, joined by scores of the features at 16 x 16 and by
    these features, mixed, and interpolated class by class to 32 x 32. What is not trained is drawn with a seed.
    """
    trained = onnx.load(data_folder / "models" / "onnx" / "resnet20_cifar10.onnx").graph
    end = next(place for place, node in enumerate(trained.node) if DEEP in node.output) + 1
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in trained.initializer}
    read = {name for node in trained.node[:end] for name in node.input}
    add = Nodes(trained.node[:end], [tensor for tensor in trained.initializer if tensor.name in read])
    draw = np.random.default_rng(11)

    def drawn(*shape: int) -> Array:
        return draw.normal(0, 0.2, shape).astype(np.float32)

    # At single places scores reach 20 times what features do; a factor brings both into one range, as training would.
    classifier, bias = (arrays[f"linear.{kind}"] / np.float32(16) for kind in ("weight", "bias"))
    scores = add("Conv", "scores", DEEP, classifier[:, :, None, None], bias)
    each = np.eye(CLASSES, dtype=np.float32)[:, :, None, None]
    whole = add("ConvTranspose", "scores_18", scores, each * bilinear(4), strides=[2, 2])
    cropped = add("Slice", "scores_16", whole, integers(1, 1), integers(17, 17), integers(2, 3))
    total = add("Add", "total", cropped, add("Conv", "fine_scores", FINE, drawn(CLASSES, 32, 1, 1)))
    joined = add("Concat", "joined", total, FINE, axis=1)
    mixed = add("Conv", "mixed", joined, np.concatenate([each, drawn(CLASSES, 32, 1, 1)], axis=1))
    kernel = np.repeat(bilinear(3)[None, None], CLASSES, axis=0)
    doubled = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1], "group": CLASSES}
    logits = add("ConvTranspose", "logits", mixed, kernel, **doubled)
    add("ArgMax", "classes", logits, axis=1, keepdims=0)
    model = add.model(("N", 3, 32, 32), {"logits": TensorProto.FLOAT, "classes": TensorProto.INT64})
    images = [load_data("resnet20_cifar10", split)[0] for split in ("calibration", "test")]
    return Network.of(model, images[0][:CALIBRATION], images[1][:TEST])


@pytest.fixture(scope="module")
def originals(load_data: LoadData) -> tuple[Array, Array]:
    """Images of calibration and test, in [0, 1]."""
    calibration, test = (load_data("mlperf_resnet8_cifar10", split)[0] for split in ("calibration", "test"))
    return calibration[:CALIBRATION] / np.float32(255), test[:TEST] / np.float32(255)


def halved(images: Array) -> Array:
    """Means over blocks of 2 x 2."""
    count, channels, height, width = images.shape
    return images.reshape(count, channels, height // 2, 2, width // 2, 2).mean(axis=(3, 5), dtype=np.float32)


@pytest.fixture(scope="module")
def super_resolution(originals: tuple[Array, Array]) -> Network:
    """Images of twice the size: repeated pixels and a detail that two convolutions tell, moved from channels to space.

    The first convolution is drawn with a seed; the second is the least-squares fit of what repeated pixels lack.
    """
    draw = np.random.default_rng(7)
    first = draw.normal(0, 0.3, (24, 3, 5, 5)).astype(np.float32)
    shift = draw.normal(0, 0.3, 24).astype(np.float32)

    def features(add: Nodes) -> str:
        stem = add("Conv", "stem", "input", first, shift, pads=[2, 2, 2, 2])
        return add("Relu", "features", stem)

    small = [halved(images) for images in originals]
    add = Nodes()
    features(add)
    (found,) = run_onnxruntime(add.model(("N", 3, 16, 16), {"features": TensorProto.FLOAT}), {"input": small[0]})
    missing = originals[0] - small[0].repeat(2, 2).repeat(2, 3)
    second, offset = fitted(found, missing)

    add = Nodes()
    detail = add("Conv", "detail", features(add), second, offset, pads=[1, 1, 1, 1])
    moved = add("DepthToSpace", "moved", detail, blocksize=2)
    scales = np.array([1, 1, 2, 2], np.float32)
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    repeated = add("Resize", "repeated", "input", "", scales, **modes)
    add("Clip", "output", add("Add", "sum", moved, repeated), np.float32(0), np.float32(1))
    return Network.of(add.model(("N", 3, 16, 16), {"output": TensorProto.FLOAT}), *small)


def fitted(features: Array, missing: Array) -> tuple[Array, Array]:
    """The 3 x 3 convolution, weight and bias, whose output moved to space by blocks of 2 is nearest to `missing`."""
    count, channels, height, width = features.shape
    bordered = np.pad(features, ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = np.lib.stride_tricks.sliding_window_view(bordered, (3, 3), axis=(2, 3))
    rows = taps.transpose(0, 2, 3, 1, 4, 5).reshape(count * height * width, channels * 9)
    rows = np.concatenate([rows, np.ones((len(rows), 1), np.float32)], axis=1).astype(np.float64)
    # (n, c, h, i, w, j) to channels (i, j, c), as DepthToSpace reads them.
    blocks = missing.reshape(count, 3, height, 2, width, 2).transpose(0, 2, 4, 3, 5, 1)
    ridge = 1e-4 * len(rows) * np.eye(rows.shape[1])
    solution = np.linalg.solve(rows.T @ rows + ridge, rows.T @ blocks.reshape(len(rows), 12))
    weight = solution[:-1].T.reshape(12, channels, 3, 3)
    return weight.astype(np.float32), solution[-1].astype(np.float32)


def evaluated(model: mrt.QuantizedModel, images: Array) -> list[Array]:
    """The integer outputs of the graph's meaning, image by image."""
    rows = [model.graph.evaluate(model.quantize_inputs(image[None])) for image in images]
    return [np.concatenate(output) for output in zip(*rows, strict=True)]


def assert_proven_and_compiled_alike(network: Network, model: mrt.QuantizedModel, folder: Path) -> list[Array]:
    """Asserts that the saved model is verified and that, compiled, it gives what its graph means; the real outputs."""
    model.save(folder)
    assert mrt.verify(folder).max_bits <= 32
    assert {symbol.type.is_integer for symbol in model.graph.symbols} == {True}
    module = model.compile(batch=4)
    fed = model.quantize_inputs(network.test)
    compiled = module.run_integer(fed)
    compiled = compiled if isinstance(compiled, list) else [compiled]
    for got, wanted in zip(compiled, evaluated(model, network.test[:COMPILED]), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got[:COMPILED], wanted)
    return model.dequantize_outputs(compiled)


def sqnr(reference: Array, measured: Array) -> float:
    found = quantization_noise(reference, measured).sqnr_db
    assert found is not None
    return found


def signal_to_noise(images: Array, found: Array) -> float:
    """The PSNR of images in [0, 1], in dB."""
    return float(-10 * np.log10(np.square(images.astype(np.float64) - found).mean()))


@pytest.mark.parametrize("name", ["segmentation", "super_resolution"])
def test_float_graphs_are_what_onnx_runtime_computes(name: str, request: pytest.FixtureRequest) -> None:
    network: Network = request.getfixturevalue(name)
    graph = mrt.from_onnx(network.model)
    for place in range(4):
        found = graph.evaluate({"input": network.test[place : place + 1]})
        for got, expected in zip(found, network.expected, strict=True):
            np.testing.assert_allclose(got, expected[place : place + 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "expected"),
    [
        ("segmentation", [DEEP, FINE], ["logits", "classes"], {"Deconvolution": 2, "Concat": 1, "argmax": 1}),
        ("super_resolution", ["input"], ["sum"], {"UpSampling": 1, "Convolution": 2}),
    ],
)
def test_parts_that_tvm_imports(
    name: str, inputs: list[str], outputs: list[str], expected: dict[str, int], request: pytest.FixtureRequest
) -> None:
    """The Relax modules that TVM's importer makes, read, are the same; its Pad and Clip are opaque and cut off here."""
    whole = onnx.shape_inference.infer_shapes(request.getfixturevalue(name).model)
    part = onnx.utils.Extractor(whole).extract_model(inputs, outputs)
    graph = mrt.from_relax(import_onnx(part))
    draw = np.random.default_rng(3)
    arrays = [draw.standard_normal(symbol.shape).astype(np.float32) for symbol in graph.inputs]
    found = graph.evaluate({symbol.name: array for symbol, array in zip(graph.inputs, arrays, strict=True)})
    for got, wanted in zip(found, run_onnxruntime(part, dict(zip(inputs, arrays, strict=True))), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    counts = graph.count_operators()
    assert {op: counts[op] for op in expected} == expected


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(PAIRS, MIXED)
def test_segmentation(segmentation: Network, activation: str, weight: str, tmp_path: Path) -> None:
    model = segmentation.quantized(activation, weight)
    logits, classes = assert_proven_and_compiled_alike(segmentation, model, tmp_path / "model")
    expected_logits, expected_classes = segmentation.expected
    noise, agreement = sqnr(expected_logits, logits), float((classes == expected_classes).mean())
    print(f"segmentation, {activation}, {weight}: agreement {agreement:.2%}, {noise:.2f} dB")
    assert noise > 26
    assert agreement > 0.955


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(PAIRS, [*MIXED, ("symmetric", "symmetric"), ("affine", "affine")])
def test_super_resolution(
    super_resolution: Network, originals: tuple[Array, Array], activation: str, weight: str, tmp_path: Path
) -> None:
    """The integers enlarge as well as the float network, which is better than repeated pixels."""
    model = super_resolution.quantized(activation, weight)
    (found,) = assert_proven_and_compiled_alike(super_resolution, model, tmp_path / "model")
    (expected,) = super_resolution.expected
    repeated = super_resolution.test.repeat(2, 2).repeat(2, 3)
    noise = sqnr(expected, found)
    by_pixels, by_float, by_integers = (signal_to_noise(originals[1], image) for image in (repeated, expected, found))
    print(
        f"super-resolution, {activation}, {weight}: PSNR {by_integers:.2f} dB (float {by_float:.2f}, "
        f"repeated pixels {by_pixels:.2f}), {noise:.2f} dB"
    )
    assert noise > 45
    assert by_float > by_pixels + 1
    assert by_integers > by_float - 0.1
