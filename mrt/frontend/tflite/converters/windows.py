"""Operators with sliding windows: convolution, its transpose and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import tflite

from mrt.errors import GraphError
from mrt.frontend.shared.deconvolution import deconvolved
from mrt.frontend.shared.shaping import bordered, unless_default
from mrt.frontend.shared.windows import same_pads
from mrt.frontend.tflite.activation import activated
from mrt.frontend.tflite.files import Options, names_of
from mrt.frontend.tflite.layouts import channels_last, channels_second, image, weight
from mrt.frontend.tflite.node import Node, converter
from mrt.frontend.tflite.rounding import away_from_halves
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.functions import Sqrt, Square
from mrt.symbol.operators.pooling import Pooling

_PADDINGS = names_of(tflite.Padding)


@converter("CONV_2D")
def convolution(node: Node) -> Symbol:
    """The weight is (O, H, W, I), where I may be a part of the data's channels: they are groups then."""
    options, data = node.options("Conv2DOptions"), image(node)
    kernel = weight(node, (0, 3, 1, 2))
    channels, read = data.shape[1], kernel.shape[1]
    if not read or channels % read:
        raise GraphError(f"{node.label}: data has {channels} channels, the weight reads {read}")
    return _convolved(node, options, data, kernel, channels // read)


@converter("CONV_3D")
def convolution_of_volumes(node: Node) -> Symbol:
    """The data is (N, D, H, W, C), the weight (D, H, W, I, O), where I may be a part of the channels as above."""
    if len(node.shape(0)) != 5:
        raise GraphError(f"{node.label}: data has shape {node.shape(0)}; rank 5 is needed")
    options, data, kernel = node.options("Conv3DOptions"), channels_second(node), weight(node, (4, 3, 0, 1, 2))
    channels, read = data.shape[1], kernel.shape[1]
    if not read or channels % read:
        raise GraphError(f"{node.label}: data has {channels} channels, the weight reads {read}")
    return _convolved(node, options, data, kernel, channels // read)


@converter("DEPTHWISE_CONV_2D")
def depthwise_convolution(node: Node) -> Symbol:
    """The weight is (1, H, W, O), where O is a multiple of the data's channels."""
    options, data = node.options("DepthwiseConv2DOptions"), image(node)
    if len(node.shape(1)) != 4 or node.shape(1)[0] != 1:
        raise GraphError(f"{node.label}: the weight has shape {node.shape(1)}; (1, height, width, outputs) is needed")
    return _convolved(node, options, data, weight(node, (3, 0, 1, 2)), data.shape[1])


def _convolved(node: Node, options: Options, data: Symbol, kernel: Symbol, groups: int) -> Symbol:
    """Padding that differs between begin and end becomes a Pad before the convolution."""
    axes = "DHW"[-len(kernel.shape[2:]) :]
    stride = _sizes(node, options, *(f"Stride{axis}" for axis in axes))
    dilation = _sizes(node, options, *(f"Dilation{axis}Factor" for axis in axes))
    spans = [(size - 1) * step + 1 for size, step in zip(kernel.shape[2:], dilation, strict=True)]
    begins, ends = _pads(node, options, data.shape[2:], stride, spans)
    if begins != ends:
        data, begins = bordered(node, data, begins, ends, "padded"), (0,) * len(axes)
    inputs = [data, kernel, *_bias(node, 2)]
    operator = Convolution(
        kernel=kernel.shape[2:],
        num_filter=kernel.shape[0],
        stride=unless_default(stride, 1),
        dilate=unless_default(dilation, 1),
        pad=unless_default(begins, 0),
        num_group=groups,
        no_bias=len(inputs) == 2,
    )
    return _applied(node, options, operator, inputs)


@converter("TRANSPOSE_CONV")
def deconvolution(node: Node) -> Symbol:
    """The inputs are the shape of the output, the weight (O, H, W, I), the data, and perhaps a bias.

    What a convolution of the output with the same options would pad is cut off, as TFLite has it.
    """
    options = node.options("TransposeConvOptions")
    shape = node.known_integers(0, "output_shape")
    moved = replace(node, inputs=(node.input(2), *node.inputs[1:]))
    data, kernel = image(moved), weight(moved, (3, 0, 1, 2))
    if len(shape) != 4 or min(shape) < 1 or shape[3] != kernel.shape[1]:
        raise GraphError(
            f"{node.label}: the output shall be {shape}; (batch, height, width, {kernel.shape[1]}) is needed"
        )
    stride = _sizes(node, options, "StrideH", "StrideW")
    begins, _ = _pads(node, options, shape[1:3], stride, kernel.shape[2:])
    inputs = [data, kernel, *_bias(node, 3)]

    def make(suffix: str) -> Symbol:
        return deconvolved(moved, inputs, stride, (1, 1), 1, begins, shape[1:3], suffix)

    return channels_last(node, 4, partial(activated, node, options, make))


@converter("MAX_POOL_2D", "AVERAGE_POOL_2D")
def pooling(node: Node) -> Symbol:
    """Averages are those of the elements that are there, the border left out; of integers their halves are rounded
    away from the integer 0, whatever real number that stands for.
    """
    options, data = node.options("Pool2DOptions"), image(node)
    if node.operator == "MAX_POOL_2D":
        return _applied(node, options, _pooling(node, options, data, "max"), [data])
    operator = _pooling(node, options, data, "avg")
    if not node.outputs[0].is_quantized:
        return _applied(node, options, operator, [data])

    def make(suffix: str) -> Symbol:
        return away_from_halves(node, node.apply(operator, [data], "averages"), math.prod(operator.kernel), suffix)

    return channels_last(node, 4, partial(activated, node, options, make))


@converter("L2_POOL_2D")
def length_pooling(node: Node) -> Symbol:
    """The square root of the average of squares."""
    options, data = node.options("Pool2DOptions"), image(node)
    operator = _pooling(node, options, data, "avg")

    def make(suffix: str) -> Symbol:
        squares = node.apply(Square(), [data], "squares")
        return node.apply(Sqrt(), [node.apply(operator, [squares], "averages")], suffix)

    return channels_last(node, 4, partial(activated, node, options, make))


def _pooling(node: Node, options: Options, data: Symbol, kind: str) -> Pooling:
    kernel = _sizes(node, options, "FilterHeight", "FilterWidth")
    stride = _sizes(node, options, "StrideH", "StrideW")
    begins, ends = _pads(node, options, tuple(map(node.places, data.shape[2:])), stride, kernel)
    return Pooling(
        kernel=kernel,
        pool_type=kind,
        stride=unless_default(stride, 1),
        pad=unless_default(begins, 0) if begins == ends else begins + ends,
        count_include_pad=kind == "max",
    )


def _applied(node: Node, options: Options, operator: Operator, inputs: Sequence[Symbol]) -> Symbol:
    """`operator` on channels-first inputs and the activation, with the channels last."""
    make = partial(activated, node, options, partial(node.apply, operator, inputs))
    return channels_last(node, inputs[0].type.rank, make)


def _bias(node: Node, index: int) -> list[Symbol]:
    return [node.symbol(index, "bias")] if node.has(index) else []


def _sizes(node: Node, options: Options, *names: str) -> tuple[int, ...]:
    """Options that are sizes; GraphError where one is not positive."""
    sizes = tuple(map(options.integer, names))
    if min(sizes) < 1:
        raise GraphError(f"{node.label}: {' and '.join(names)} are {sizes}; sizes of at least 1 are needed")
    return sizes


def _pads(
    node: Node, options: Options, spatial: Sequence[int], stride: Sequence[int], spans: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements of padding before and after each spatial axis. SAME gives ceil(size / stride) windows."""
    number = options.integer("Padding")
    if _PADDINGS.get(number) == "VALID":
        none = (0,) * len(spans)
        return none, none
    if _PADDINGS.get(number) != "SAME":
        raise node.unsupported("Padding", f"number {number}", "SAME or VALID")
    return same_pads(spatial, stride, spans, upper=True)
