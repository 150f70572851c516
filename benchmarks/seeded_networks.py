"""Networks of known architectures as ONNX models, with weights from a seed, and inputs for them.

A network is evaluated on a few samples while it is built: weights are drawn as by He et al., "Delving Deep into
Rectifiers", and then every channel is brought to one mean and deviation over these samples, as by a batch normalisation
that has been folded. So activations keep sane ranges through any depth, and outputs differ from sample to sample. The
same seed gives the same weights, but for the float rounding of the machine's sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf, prod

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[np.float32]
Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Rows before, columns before, rows behind, columns behind, as ONNX writes them."""

OPSET, IR_VERSION = 17, 8
INPUT, OUTPUT, BATCH = "x", "y", "N"
"""Names in every model: of its input, its output and the length of axis 0, which is left open."""
PROBES = 8
"""Samples that a network is evaluated on while it is built."""
EPSILON = 1e-5
"""Added to variances, as batch normalisation does."""
SHIFT, SILU_SHIFT, RESIDUAL, SMOOTHING = 0.25, 0.6, 0.25, 1.0
"""The mean of a channel in its deviations, that before a SiLU, the deviation of a residual branch beside a path of 1
or more, and the mean of a depthwise filter's weights in their deviations.

Without them networks of this depth enlarge every small change, the rounding of integers too, more than trained ones do.
"""


def samples(shape: Sequence[int], count: int, seed: int) -> Array:
    """[count, *shape] float32 of mean 0 and variance 1: noise of all resolutions along the last two axes."""
    random = np.random.default_rng(seed)
    *leading, height, width = (count, *shape)
    total, levels = np.zeros((count, *shape), np.float32), 0
    while levels == 0 or 2**levels < 2 * max(height, width):
        coarse = (*leading, -(-height // 2**levels), -(-width // 2**levels))
        noise = random.standard_normal(coarse, np.float32)
        total += noise.repeat(2**levels, -2).repeat(2**levels, -1)[..., :height, :width]
        levels += 1
    return np.asarray(total / np.float32(levels**0.5))


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a network that is being built. value: what it is for the probes, axis 0 the sample."""

    name: str
    value: Array

    @property
    def channels(self) -> int:
        return int(self.value.shape[1])


class Builder:
    """An ONNX model in the making; every method adds nodes and gives their output.

    shape: of the input without its batch. spread: the widest channel of a convolution over the narrowest; gains between
    are spread evenly over their logarithm. shift: the mean of a channel over its deviation, where none is said.
    """

    def __init__(self, shape: Sequence[int], seed: int, spread: float = 1.0, shift: float = SHIFT) -> None:
        self._random = np.random.default_rng(seed)
        self._spread, self._shift = spread, shift
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self.input = Tensor(INPUT, samples(shape, PROBES, seed))

    def model(self, name: str, output: Tensor) -> onnx.ModelProto:
        """The model that gives `output`, checked."""
        last = helper.make_node("Identity", [output.name], [OUTPUT])
        values = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [BATCH, *tensor.value.shape[1:]])
            for name, tensor in ((INPUT, self.input), (OUTPUT, output))
        ]
        graph = helper.make_graph([*self._nodes, last], name, values[:1], values[1:], self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets, producer_name="mrt")
        onnx.checker.check_model(model, full_check=True)
        return model

    def convolution(
        self,
        x: Tensor,
        channels: int,
        kernel: int | Pair,
        stride: int = 1,
        pads: int | Pads | None = None,
        gain: float = 1.0,
        shift: float | None = None,
        depthwise: bool = False,
    ) -> Tensor:
        """A convolution with bias, each of whose channels has deviation `gain` or less by the spread.

        pads: by default half of the kernel. shift: a channel's mean over its deviation. depthwise: every channel has
        one filter, and `channels` is their number.
        """
        rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
        if pads is None:
            pads = (rows // 2, columns // 2) * 2
        pads = (pads,) * 4 if isinstance(pads, int) else pads
        weight = self._normal((channels, 1 if depthwise else x.channels, rows, columns))
        if depthwise:
            weight += SMOOTHING * weight.std()
        size = np.sqrt(np.square(x.value).mean((0, 2, 3)) + EPSILON)
        # What a narrow channel holds counts as much as what a wide one does.
        weight /= size[:, None, None, None] if depthwise else size[:, None, None]
        found = _convolve(x.value, weight, stride, pads)
        deviation = np.sqrt(found.var((0, 2, 3)) + EPSILON)
        widths = gain * self._spread ** -self._random.random(channels)
        factors = widths / deviation
        bias = (self._shift if shift is None else shift) * widths - found.mean((0, 2, 3)) * factors
        weight, factors, bias = (a.astype(np.float32) for a in (weight, factors[:, None, None, None], bias))
        return self._add(
            "Conv",
            [x, self._constant(weight * factors), self._constant(bias)],
            found * factors.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1),
            kernel_shape=(rows, columns),
            strides=(stride, stride),
            pads=pads,
            group=x.channels if depthwise else 1,
        )

    def relu(self, x: Tensor) -> Tensor:
        return self._add("Relu", [x], np.maximum(x.value, 0))

    def relu6(self, x: Tensor) -> Tensor:
        limits = [self._constant(np.array(limit, np.float32)) for limit in (0, 6)]
        return self._add("Clip", [x, *limits], np.clip(x.value, 0, 6))

    def sigmoid(self, x: Tensor) -> Tensor:
        return self._add("Sigmoid", [x], 1 / (1 + np.exp(-x.value)))

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return self._add("Mul", [a, b], a.value * b.value)

    def silu(self, x: Tensor) -> Tensor:
        """x / (1 + exp(-x)), in the operators that exporters write it in."""
        return self.multiply(x, self.sigmoid(x))

    def enlarged(self, x: Tensor) -> Tensor:
        """Every position four times."""
        scales = self._named(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32)))
        found = x.value.repeat(2, 2).repeat(2, 3)
        nothing = Tensor("", np.empty(0, np.float32))
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self._add("Resize", [x, nothing, scales], found, **modes)

    def channels_of(self, x: Tensor, first: int, last: int) -> Tensor:
        numbers = [helper.make_tensor("", onnx.TensorProto.INT64, [1], [n]) for n in (first, last, 1)]
        return self._add("Slice", [x, *map(self._named, numbers)], x.value[:, first:last])

    def max_pooling(self, x: Tensor, kernel: int, stride: int, pad: int = 0) -> Tensor:
        padded = np.pad(x.value, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
        found = _windows(padded, (kernel, kernel), stride).max((-2, -1))
        sizes = {"kernel_shape": (kernel, kernel), "strides": (stride, stride), "pads": (pad,) * 4}
        return self._add("MaxPool", [x], found, **sizes)

    def mean_position(self, x: Tensor) -> Tensor:
        """[N, C, 1, 1] of [N, C, H, W]."""
        return self._add("GlobalAveragePool", [x], x.value.mean((2, 3), keepdims=True))

    def global_average(self, x: Tensor) -> Tensor:
        """[N, C] of [N, C, H, W]."""
        mean = self.mean_position(x)
        return self._add("Flatten", [mean], mean.value.reshape(len(mean.value), -1), axis=1)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self._add("Add", [a, b], a.value + b.value)

    def concat(self, *tensors: Tensor, axis: int = 1) -> Tensor:
        return self._add("Concat", tensors, np.concatenate([t.value for t in tensors], axis), axis=axis)

    def flat_positions(self, x: Tensor) -> Tensor:
        """[N, C, H · W] of [N, C, H, W]."""
        shape = helper.make_tensor("", onnx.TensorProto.INT64, [3], [0, x.channels, -1])
        return self._add("Reshape", [x, self._named(shape)], x.value.reshape(*x.value.shape[:2], -1))

    def classifier(self, x: Tensor, classes: int) -> Tensor:
        """Logits [N, classes] of [N, C], centred and scaled over all classes together."""
        weight = self._normal((classes, x.channels))
        found = x.value @ weight.T
        mean = found.mean(0)
        factor = np.float32(1 / np.sqrt(np.square(found - mean).mean() + EPSILON))
        weight, bias = weight * factor, -mean * factor
        parameters = [self._constant(weight), self._constant(bias)]
        return self._add("Gemm", [x, *parameters], x.value @ weight.T + bias, transB=1)

    def linear(self, x: Tensor, width: int) -> Tensor:
        """A layer with bias along the last axis, that keeps the variance."""
        inner = x.value.shape[-1]
        weight = (self._random.standard_normal((inner, width), np.float32) / inner**0.5).astype(np.float32)
        product = self._add("MatMul", [x, self._constant(weight)], x.value @ weight)
        return self.add(product, self._constant(0.1 * self._random.standard_normal(width, np.float32)))

    def layer_norm(self, x: Tensor) -> Tensor:
        scale, shift = np.ones(x.value.shape[-1], np.float32), np.zeros(x.value.shape[-1], np.float32)
        centred = x.value - x.value.mean(-1, keepdims=True)
        found = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + EPSILON)
        inputs = [x, self._constant(scale), self._constant(shift)]
        return self._add("LayerNormalization", inputs, found, axis=-1, epsilon=EPSILON)

    def attention(self, x: Tensor) -> Tensor:
        """Attention of one head on [N, tokens, width]."""
        width = x.value.shape[-1]
        query, key, value = (self.linear(x, width) for _ in range(3))
        turned = self._add("Transpose", [key], key.value.transpose(0, 2, 1), perm=(0, 2, 1))
        products = self._add("MatMul", [query, turned], query.value @ turned.value)
        scaled = self._by_number("Mul", products, width**-0.5, np.multiply)
        powers = np.exp(scaled.value - scaled.value.max(-1, keepdims=True))
        shares = self._add("Softmax", [scaled], powers / powers.sum(-1, keepdims=True), axis=-1)
        return self.linear(self._add("MatMul", [shares, value], shares.value @ value.value), width)

    def gelu(self, x: Tensor) -> Tensor:
        """x/2 (1 + erf(x / √2)), in the operators that exporters write it in."""
        scaled = self._by_number("Div", x, 2**0.5, np.divide)
        curve = self._add("Erf", [scaled], np.vectorize(erf, [np.float32])(scaled.value))
        product = self._add("Mul", [x, self._by_number("Add", curve, 1, np.add)], x.value * (curve.value + 1))
        return self._by_number("Mul", product, 0.5, np.multiply)

    def class_token(self, x: Tensor) -> Tensor:
        """[N, tokens + 1, width]: a token in front of the others, and a vector added to each that tells its place.

        The class token is that vector of its own: what it is added to is zero.
        """
        pads = helper.make_tensor("", onnx.TensorProto.INT64, [6], [0, 1, 0, 0, 0, 0])
        padded = self._add("Pad", [x, self._named(pads)], np.pad(x.value, ((0, 0), (1, 0), (0, 0))))
        return self.add(padded, self._constant(self._random.standard_normal((1, *padded.value.shape[1:]), np.float32)))

    def first_token(self, x: Tensor) -> Tensor:
        place = self._named(helper.make_tensor("", onnx.TensorProto.INT64, [], [0]))
        return self._add("Gather", [x, place], x.value[:, 0], axis=1)

    def _normal(self, shape: tuple[int, ...]) -> Array:
        """Weights [outputs, inputs, ...] by He et al.: of variance 2 / inputs."""
        return np.asarray(self._random.standard_normal(shape, np.float32) * np.float32((2 / prod(shape[1:])) ** 0.5))

    def _by_number(self, operator: str, x: Tensor, number: float, meaning: Callable[..., Array]) -> Tensor:
        constant = np.array(number, np.float32)
        return self._add(operator, [x, self._constant(constant)], meaning(x.value, constant))

    def _add(self, operator: str, inputs: Sequence[Tensor], value: Array, **attributes: object) -> Tensor:
        name = f"{operator.lower()}{len(self._nodes)}"
        names = [tensor.name for tensor in inputs]
        self._nodes.append(helper.make_node(operator, names, [name], name, **attributes))
        return Tensor(name, value.astype(np.float32, copy=False))

    def _constant(self, value: Array) -> Tensor:
        value = np.asarray(value, np.float32)
        return Tensor(self._named(numpy_helper.from_array(value)).name, value)

    def _named(self, constant: onnx.TensorProto) -> Tensor:
        constant.name = f"parameter{len(self._constants)}"
        self._constants.append(constant)
        return Tensor(constant.name, np.empty(0, np.float32))


def _windows(x: Array, kernel: Pair, stride: int) -> Array:
    """[N, C, H, W, kernel rows, kernel columns] of a padded [N, C, rows, columns]."""
    return np.asarray(sliding_window_view(x, kernel, (2, 3))[:, :, ::stride, ::stride])


def _convolve(x: Array, weight: Array, stride: int, pads: Pads) -> Array:
    """The convolution of x [N, C, rows, columns] with weight [O, C, ...], or [C, 1, ...] which is depthwise."""
    top, left, bottom, right = pads
    windows = _windows(np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right))), weight.shape[2:], stride)
    if weight.shape[1] == 1 and len(weight) == x.shape[1]:
        taps = np.ndindex(*weight.shape[2:])
        return np.asarray(sum(windows[..., i, j] * weight[:, 0, i, j, None, None] for i, j in taps))
    return np.moveaxis(np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))), -1, 1)


# Architectures


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


def input_shape(model: onnx.ModelProto) -> tuple[int, ...]:
    """Of one sample."""
    return tuple(axis.dim_value for axis in model.graph.input[0].type.tensor_type.shape.dim[1:])
