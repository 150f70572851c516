"""ONNX models built operator by operator with weights from a seed, and inputs for them.

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
    """[count, *shape] float32 of mean 0 and variance 1: noise of all resolutions along the last two axes, or the last
    one of a shape of one axis."""
    random = np.random.default_rng(seed)
    if len(shape) == 1:
        return samples((1, *shape), count, seed)[:, 0]
    *leading, height, width = (count, *shape)
    total, levels = np.zeros((count, *shape), np.float32), 0
    while levels == 0 or 2**levels < 2 * max(height, width):
        coarse = (*leading, -(-height // 2**levels), -(-width // 2**levels))
        noise = random.standard_normal(coarse, np.float32)
        rows = noise.repeat(min(2**levels, height), -2)[..., :height, :]
        total += rows.repeat(min(2**levels, width), -1)[..., :width]
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
