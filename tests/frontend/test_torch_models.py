"""Networks of PyTorch: read as PyTorch computes them, and quantized to the integers that their ONNX files give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from torch_programs import check, compare, export, operators, random, randomized

import mrt
from mrt.symbol import Graph

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional


class Residual(nn.Module):
    """The block of a ResNet, with a shortcut by a convolution where its shape changes."""

    def __init__(self, old: int, new: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(old, new, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(new)
        self.conv2 = nn.Conv2d(new, new, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(new)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride > 1 or old != new:
            self.shortcut = nn.Sequential(nn.Conv2d(old, new, 1, stride, bias=False), nn.BatchNorm2d(new))

    def forward(self, x: Any) -> Any:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += self.shortcut(x)
        return self.relu(y)


class Inverted(nn.Module):
    """The block of a MobileNetV2: wide, depthwise, narrow."""

    def __init__(self, old: int, new: int, stride: int) -> None:
        super().__init__()
        wide = 3 * old
        self.adds = stride == 1 and old == new
        self.body = nn.Sequential(
            *(nn.Conv2d(old, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True)),
            *(
                nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
                nn.BatchNorm2d(wide),
                nn.ReLU6(inplace=True),
            ),
            *(nn.Conv2d(wide, new, 1, bias=False), nn.BatchNorm2d(new)),
        )

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.adds else self.body(x)


class Transformer(nn.Module):
    """A vision transformer: patches, a class token, places, two encoders."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(random(1, 1, 16) / 4)
        self.places = nn.Parameter(random(1, 17, 16) / 4)
        layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        rows = self.patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(rows.shape[0], -1, -1), rows], 1) + self.places
        return self.head(self.norm(self.encoder(rows))[:, 0]).softmax(-1)


def resnet() -> Any:
    layers = [nn.Conv2d(3, 8, 3, 1, 1), nn.MaxPool2d(3, 2, 1), Residual(8, 8, 1), Residual(8, 16, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 5))


def mobilenet() -> Any:
    first = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()]
    blocks = [Inverted(8, 8, 1), Inverted(8, 12, 2), Inverted(12, 12, 1)]
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(12, 5))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("make", [resnet, mobilenet, Transformer])
def test_a_network_gives_what_pytorch_gives(make: Callable[[], Any], tmp_path: Path) -> None:
    """Exported for any batch, and read from a file."""
    torch.manual_seed(0)
    model, x = randomized(make()).eval(), random(3, 3, 16, 16)
    program = export(model, x, dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, tmp_path / "model.pt2")
    compare(mrt.load_model(tmp_path / "model.pt2", batch=2), model, x[:2])


def test_a_network_is_as_short_as_it_was_written() -> None:
    """Exported for one batch."""
    torch.manual_seed(0)
    graph = check(randomized(resnet()), random(3, 3, 16, 16))
    block = ["Convolution", "BatchNorm", "relu", "Convolution", "BatchNorm"]
    shortcut = ["Convolution", "BatchNorm", "elemwise_add", "relu"]
    found = operators(graph)
    assert found[:9] == ["Convolution", "Pooling", *block, "elemwise_add", "relu"]
    assert sorted(found[9:18]) == sorted([*block, *shortcut])
    assert found[18:] == ["Pooling", "Flatten", "FullyConnected"]


# The network of an ONNX file


class OfWeights(nn.Module):
    """ResNet-20 for CIFAR-10, whose convolutions hold the normalisation: the layers of an ONNX file in order."""

    def __init__(self, weights: Iterator[np.ndarray], strides: Iterator[int]) -> None:
        super().__init__()
        self.first = _convolution(weights, next(strides))
        self.blocks = nn.ModuleList(
            nn.ModuleList([_convolution(weights, next(strides)), _convolution(weights, next(strides))])
            for _ in range(9)
        )
        self.linear = _with(nn.Linear(64, 10), weights)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.first(x))
        for first, last in self.blocks:
            more = first.out_channels - y.shape[1]
            shortcut = F.pad(y[:, :, ::2, ::2], (0, 0, 0, 0, more // 2, more // 2)) if more else y
            y = F.relu(last(F.relu(first(y))) + shortcut)
        return self.linear(F.avg_pool2d(y, y.shape[-1]).view(y.shape[0], -1))


def _convolution(weights: Iterator[np.ndarray], stride: int) -> Any:
    weight = next(weights)
    return _with(nn.Conv2d(weight.shape[1], weight.shape[0], 3, stride, 1), iter([weight, next(weights)]))


def _with(layer: Any, weights: Iterator[np.ndarray]) -> Any:
    layer.weight.data, layer.bias.data = (torch.from_numpy(next(weights).copy()) for _ in range(2))
    return layer


def resnet20(path: Path) -> Any:
    graph = onnx.load(path).graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    layers = [node for node in graph.node if node.op_type in ("Conv", "Gemm")]
    weights = iter([values[name] for node in layers for name in node.input[1:3]])
    strides = (int(a.ints[0]) for node in layers for a in node.attribute if a.name == "strides")
    return OfWeights(weights, strides).eval()


@pytest.fixture(scope="module")
def images(load_data: Callable[[str, str], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    return load_data("resnet20_cifar10", "calibration")[0][:4].astype(np.float32)


@pytest.fixture(scope="module")
def resnet20s(data_folder: Path, images: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Graph]:
    """The same network from its ONNX file and from a .pt2 file."""
    path = data_folder / "models" / "onnx" / "resnet20_cifar10.onnx"
    saved = tmp_path_factory.mktemp("saved") / "resnet20.pt2"
    batch = torch.export.Dim("batch")
    torch.export.save(export(resnet20(path), torch.from_numpy(images[:2]), dynamic_shapes=({0: batch},)), saved)
    return mrt.load_model(path), mrt.load_model(saved)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_resnet20_gives_the_integers_of_its_onnx_file(
    quantizer: Any,
    resnet20s: tuple[Graph, Graph],
    images: np.ndarray,
    load_data: Callable[[str, str], tuple[np.ndarray, np.ndarray]],
) -> None:
    """Quantized with the same data, both are the same integers."""
    wanted, found = (graph.evaluate({graph.inputs[0].name: images[:1]})[0] for graph in resnet20s)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    config = mrt.QuantizationConfig.model_validate({"preset": "fast", "activation": {"quantizer": quantizer}})
    theirs, ours = (mrt.quantize(graph, [images], config) for graph in resnet20s)
    for one, other in zip(theirs.graph.operators, ours.graph.operators, strict=True):
        assert (one.op, one.type) == (other.op, other.type)
        for first, last in zip(one.inputs, other.inputs, strict=True):
            values = theirs.graph.value(first), ours.graph.value(last)
            assert (values[0] is None) == (values[1] is None)
            np.testing.assert_array_equal(*values)
    sample = load_data("resnet20_cifar10", "test")[0][:1].astype(np.float32)
    wanted, found = (_integers(model, sample) for model in (theirs, ours))
    assert wanted.dtype == found.dtype
    np.testing.assert_array_equal(found, wanted)


def _integers(model: mrt.QuantizedModel, sample: np.ndarray) -> np.ndarray:
    return model.graph.evaluate(model.quantize_inputs(sample))[0]
