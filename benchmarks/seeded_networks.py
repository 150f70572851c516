"""Networks of known architectures as ONNX models, with weights from a seed (`network_builder.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
from network_builder import RESIDUAL, SILU_SHIFT, Builder, Tensor


def resnet50(spread: float = 1.0) -> onnx.ModelProto:
    """ResNet-50 with the stride in the 3 × 3 convolutions, 1 × 3 × 224 × 224, 1000 classes."""

    def bottleneck(b: Builder, x: Tensor, width: int, stride: int) -> Tensor:
        y = b.relu(b.convolution(x, width, 1))
        y = b.relu(b.convolution(y, width, 3, stride))
        return _residual(b, x, b.convolution(y, 4 * width, 1, gain=RESIDUAL), stride)

    return _resnet("resnet50", bottleneck, (3, 4, 6, 3), spread)


def resnet18(spread: float = 1.0) -> onnx.ModelProto:
    """ResNet-18, 1 × 3 × 224 × 224, 1000 classes."""
    return _resnet("resnet18", _basic_block, (2, 2, 2, 2), spread)


def _resnet(
    name: str, block: Callable[[Builder, Tensor, int, int], Tensor], counts: Sequence[int], spread: float
) -> onnx.ModelProto:
    b = Builder((3, 224, 224), 0, spread)
    x = b.max_pooling(b.relu(b.convolution(b.input, 64, 7, 2)), 3, 2, 1)
    for stage, count in enumerate(counts):
        for place in range(count):
            x = block(b, x, 64 * 2**stage, 2 if stage and not place else 1)
    return b.model(name, b.classifier(b.global_average(x), 1000))


def _basic_block(b: Builder, x: Tensor, width: int, stride: int) -> Tensor:
    y = b.relu(b.convolution(x, width, 3, stride))
    return _residual(b, x, b.convolution(y, width, 3, gain=RESIDUAL), stride)


def _residual(b: Builder, x: Tensor, branch: Tensor, stride: int) -> Tensor:
    if stride != 1 or x.channels != branch.channels:
        x = b.convolution(x, branch.channels, 1, stride)
    return b.relu(b.add(x, branch))


def resnet8(spread: float = 1.0) -> onnx.ModelProto:
    """The ResNet-8 of MLPerf Tiny, 1 × 3 × 32 × 32, 10 classes."""
    return _small_resnet("resnet8", 1, spread)


def resnet20(spread: float = 1.0) -> onnx.ModelProto:
    """ResNet-20 for CIFAR-10, 1 × 3 × 32 × 32, with 1 × 1 convolutions where the width grows."""
    return _small_resnet("resnet20", 3, spread)


def _small_resnet(name: str, blocks: int, spread: float) -> onnx.ModelProto:
    b = Builder((3, 32, 32), 0, spread)
    x = b.relu(b.convolution(b.input, 16, 3))
    for stage in range(3):
        for place in range(blocks):
            x = _basic_block(b, x, 16 * 2**stage, 2 if stage and not place else 1)
    return b.model(name, b.classifier(b.global_average(x), 10))


def mobilenetv2(spread: float = 1.0) -> onnx.ModelProto:
    """MobileNetV2 1.0, 1 × 3 × 224 × 224, 1000 classes."""
    b = Builder((3, 224, 224), 0, spread)
    x = b.relu6(b.convolution(b.input, 32, 3, 2))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, channels, count, stride in stages:
        for place in range(count):
            x = _inverted_residual(b, x, expansion, channels, 1 if place else stride)
    x = b.relu6(b.convolution(x, 1280, 1))
    return b.model("mobilenetv2", b.classifier(b.global_average(x), 1000))


def _inverted_residual(b: Builder, x: Tensor, expansion: int, channels: int, stride: int) -> Tensor:
    y = x if expansion == 1 else b.relu6(b.convolution(x, expansion * x.channels, 1))
    y = b.relu6(b.convolution(y, y.channels, 3, stride, depthwise=True))
    if stride == 1 and x.channels == channels:
        return b.add(x, b.convolution(y, channels, 1, gain=RESIDUAL))
    return b.convolution(y, channels, 1)


def mobilenetv1_025(spread: float = 1.0) -> onnx.ModelProto:
    """MobileNetV1 0.25, 1 × 3 × 224 × 224, 1000 classes."""
    b = Builder((3, 224, 224), 0, spread)
    x = b.relu6(b.convolution(b.input, 8, 3, 2))
    widths = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *((128, 1),) * 5, (256, 2), (256, 1))
    for channels, stride in widths:
        x = b.relu6(b.convolution(x, x.channels, 3, stride, depthwise=True))
        x = b.relu6(b.convolution(x, channels, 1))
    return b.model("mobilenetv1_025", b.classifier(b.global_average(x), 1000))


def efficientnet_b0(spread: float = 1.0) -> onnx.ModelProto:
    """EfficientNet-B0, 1 × 3 × 224 × 224, 1000 classes: SiLU, and channels scaled by what is squeezed out of them."""
    b = Builder((3, 224, 224), 0, spread, SILU_SHIFT)
    x = b.silu(b.convolution(b.input, 32, 3, 2))
    stages = (
        *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
        *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
    )
    for expansion, channels, count, stride, kernel in stages:
        for place in range(count):
            x = _squeezed_residual(b, x, expansion, channels, 1 if place else stride, kernel)
    x = b.silu(b.convolution(x, 1280, 1))
    return b.model("efficientnet_b0", b.classifier(b.global_average(x), 1000))


def _squeezed_residual(b: Builder, x: Tensor, expansion: int, channels: int, stride: int, kernel: int) -> Tensor:
    y = x if expansion == 1 else b.silu(b.convolution(x, expansion * x.channels, 1))
    y = b.silu(b.convolution(y, y.channels, kernel, stride, depthwise=True))
    squeezed = b.silu(b.convolution(b.mean_position(y), max(x.channels // 4, 1), 1))
    y = b.multiply(y, b.sigmoid(b.convolution(squeezed, y.channels, 1)))
    if stride == 1 and x.channels == channels:
        return b.add(x, b.convolution(y, channels, 1, gain=RESIDUAL))
    return b.convolution(y, channels, 1)


def yolov8n(spread: float = 1.0) -> onnx.ModelProto:
    """YOLOv8n, 1 × 3 × 320 × 320: for 2,100 positions the 64 numbers that boxes are made of, and 80 scores."""
    b = Builder((3, 320, 320), 0, spread, SILU_SHIFT)

    def layer(x: Tensor, channels: int, kernel: int = 3, stride: int = 1) -> Tensor:
        return b.silu(b.convolution(x, channels, kernel, stride))

    def split_residual(x: Tensor, channels: int, count: int, adds: bool = True) -> Tensor:
        x = layer(x, channels, 1)
        parts = [b.channels_of(x, 0, channels // 2), b.channels_of(x, channels // 2, channels)]
        for _ in range(count):
            y = layer(layer(parts[-1], channels // 2), channels // 2)
            parts.append(b.add(parts[-1], y) if adds else y)
        return layer(b.concat(*parts), channels, 1)

    x = split_residual(layer(layer(b.input, 16, 3, 2), 32, 3, 2), 32, 1)
    fine = split_residual(layer(x, 64, 3, 2), 64, 2)
    middle = split_residual(layer(fine, 128, 3, 2), 128, 2)
    x = layer(split_residual(layer(middle, 256, 3, 2), 256, 1), 128, 1)
    pooled = [x]
    for _ in range(3):
        pooled.append(b.max_pooling(pooled[-1], 5, 1, 2))
    coarse = layer(b.concat(*pooled), 256, 1)
    joined = split_residual(b.concat(b.enlarged(coarse), middle), 128, 1, adds=False)
    fine = split_residual(b.concat(b.enlarged(joined), fine), 64, 1, adds=False)
    middle = split_residual(b.concat(layer(fine, 64, 3, 2), joined), 128, 1, adds=False)
    coarse = split_residual(b.concat(layer(middle, 128, 3, 2), coarse), 256, 1, adds=False)
    found = []
    for x in (fine, middle, coarse):
        boxes, scores = (b.convolution(layer(layer(x, width), width), width, 1) for width in (64, 80))
        found.append(b.flat_positions(b.concat(boxes, scores)))
    return b.model("yolov8n", b.concat(*found, axis=2))


def squeezenet(spread: float = 1.0) -> onnx.ModelProto:
    """SqueezeNet 1.1, 1 × 3 × 224 × 224, 1000 classes: fire modules, whose two halves are concatenated."""

    def fire(x: Tensor, squeezed: int, expanded: int) -> Tensor:
        y = b.relu(b.convolution(x, squeezed, 1))
        return b.concat(*(b.relu(b.convolution(y, expanded, kernel)) for kernel in (1, 3)))

    b = Builder((3, 224, 224), 0, spread)
    x = b.relu(b.convolution(b.input, 64, 3, 2, 0))
    for stage in (((16, 64), (16, 64)), ((32, 128), (32, 128)), ((48, 192), (48, 192), (64, 256), (64, 256))):
        x = b.max_pooling(x, 3, 2)
        for squeezed, expanded in stage:
            x = fire(x, squeezed, expanded)
    return b.model("squeezenet", b.global_average(b.convolution(x, 1000, 1, shift=0)))


def kws_dscnn(spread: float = 1.0) -> onnx.ModelProto:
    """The depthwise separable network for keywords of MLPerf Tiny, 1 × 1 × 49 × 10, 12 classes."""
    b = Builder((1, 49, 10), 0, spread)
    x = b.relu(b.convolution(b.input, 64, (10, 4), 2, (4, 1, 5, 1)))
    for _ in range(4):
        x = b.relu(b.convolution(x, 64, 3, depthwise=True))
        x = b.relu(b.convolution(x, 64, 1))
    return b.model("kws_dscnn", b.classifier(b.global_average(x), 12))


def kwt1(spread: float = 1.0) -> onnx.ModelProto:
    """A keyword transformer of 12 layers, 98 frames of 40 and a class token, width 64, one head, 12 classes.

    It has no convolution, so that spread changes nothing.
    """
    b = Builder((98, 40), 0, spread)
    x = b.class_token(b.linear(b.input, 64))
    for _ in range(12):
        x = b.layer_norm(b.add(x, b.attention(x)))
        x = b.layer_norm(b.add(x, b.linear(b.gelu(b.linear(x, 256)), 64)))
    return b.model("kwt1", b.classifier(b.first_token(x), 12))


NETWORKS: dict[str, Callable[[float], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "resnet18": resnet18,
    "mobilenetv2": mobilenetv2,
    "mobilenetv1_025": mobilenetv1_025,
    "efficientnet_b0": efficientnet_b0,
    "yolov8n": yolov8n,
    "squeezenet": squeezenet,
    "resnet8": resnet8,
    "resnet20": resnet20,
    "kws_dscnn": kws_dscnn,
    "kwt1": kwt1,
}
"""By name, from the spread of their channels to the model."""


def the_input(model: onnx.ModelProto) -> tuple[str, tuple[int, ...]]:
    """Name and shape of one sample of a network's only input.

    ValueError where there are several, where it is not float32 or where an axis but the first has no size.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [given for given in model.graph.input if given.name not in constants]
    if len(inputs) != 1:
        raise ValueError(f"inputs {', '.join(given.name for given in inputs)} were found; one is needed")
    (given,) = inputs
    facts = given.type.tensor_type
    if facts.elem_type != onnx.TensorProto.FLOAT:
        found = onnx.TensorProto.DataType.Name(facts.elem_type)
        raise ValueError(f"{given.name}: elements of type {found} were found; FLOAT is needed")
    shape = tuple(axis.dim_value for axis in facts.shape.dim[1:])
    if not shape or not all(shape):
        raise ValueError(f"{given.name}: a sample of shape {list(shape)} was found; fixed sizes are needed")
    return given.name, shape
