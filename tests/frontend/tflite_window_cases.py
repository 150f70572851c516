"""TFLite's convolutions and poolings, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from tflite_case import ACTIVATIONS, IMAGE, NO_ACTIVATION, RELU, SAME, VALID, Array, Cases, Computed, f, ints
from tflite_files import random, same_padding

CASES = Cases()
case = CASES.add


def patches(x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], padding: int, fill: float):
    """The windows of an image (N, H, W, C), as rows of places: (N, kernel height, kernel width, C) each."""
    pads = [
        same_padding(size, k, s, d) if padding == SAME else (0, 0)
        for size, k, s, d in zip(x.shape[1:3], kernel, stride, dilation, strict=True)
    ]
    x = np.pad(x.astype(np.float64), [(0, 0), *pads, (0, 0)], constant_values=fill)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    places = [range(0, size - span + 1, s) for size, span, s in zip(x.shape[1:3], spans, stride, strict=True)]
    return [
        [x[:, h : h + spans[0] : dilation[0], w : w + spans[1] : dilation[1]] for w in places[1]] for h in places[0]
    ]


def windowed(rows: list[list[Array]], function: Callable[[Array], Array]) -> Array:
    return np.stack([np.stack([function(patch) for patch in row], axis=1) for row in rows], axis=1)


def convolved(
    x: Array, w: Array, b: Array | None, stride: Sequence[int], dilation: Sequence[int], padding: int
) -> Array:
    """w is (O, H, W, I); with fewer channels than the data's they are groups."""
    groups = x.shape[3] // w.shape[3]
    rows = patches(x, w.shape[1:3], stride, dilation, padding, 0.0)

    def sums(patch: Array) -> Array:
        parts = zip(np.split(patch, groups, axis=3), np.split(w.astype(np.float64), groups), strict=True)
        return np.concatenate([np.einsum("nhwi,ohwi->no", part, kernel) for part, kernel in parts], axis=1)

    return windowed(rows, sums) + (0 if b is None else b)


def depthwise(x: Array, w: Array) -> Array:
    """A depthwise weight (1, H, W, O) as that of a convolution in groups of one channel."""
    return w.transpose(3, 1, 2, 0)


def deconvolved(x: Array, w: Array, shape: Sequence[int], stride: Sequence[int], padding: int) -> Array:
    """w is (O, H, W, I). All that the taps reach, from where a convolution of the output would pad."""
    n, height, width, _ = x.shape
    reach = [(size - 1) * s + k for size, s, k in zip((height, width), stride, w.shape[1:3], strict=True)]
    begins = [
        same_padding(size, k, s)[0] if padding == SAME else 0
        for size, k, s in zip(shape[1:3], w.shape[1:3], stride, strict=True)
    ]
    whole = np.zeros((n, *(max(r, b + size) for r, b, size in zip(reach, begins, shape[1:3], strict=True)), w.shape[0]))
    for h, v, i, j in product(range(height), range(width), range(w.shape[1]), range(w.shape[2])):
        whole[:, h * stride[0] + i, v * stride[1] + j] += x[:, h, v].astype(np.float64) @ w[:, i, j].T.astype(
            np.float64
        )
    return whole[:, begins[0] : begins[0] + shape[1], begins[1] : begins[1] + shape[2]]


def window_options(stride: Sequence[int], dilation: Sequence[int], padding: int, activation: int) -> dict[str, int]:
    return {
        "Padding": padding,
        "StrideH": stride[0],
        "StrideW": stride[1],
        "DilationHFactor": dilation[0],
        "DilationWFactor": dilation[1],
        "FusedActivationFunction": activation,
    }


for index, (stride, dilation, padding) in enumerate(product([(1, 1), (2, 1), (2, 3)], [(1, 1), (2, 1)], [SAME, VALID])):
    weight, bias = random(5, 3, 2, 4, seed=1), random(5, seed=2)
    activation = [*ACTIVATIONS][index % 5]
    case(
        f"conv stride {stride} dilation {dilation} padding {padding} activation {activation}",
        "CONV_2D",
        [Computed(IMAGE), weight, bias],
        f(ACTIVATIONS[activation](convolved(IMAGE, weight, bias, stride, dilation, padding))),
        "Conv2DOptions",
        window_options(stride, dilation, padding, activation),
    )
    multiplier = 1 + index % 2
    weight, bias = random(1, 3, 2, 4 * multiplier, seed=1), random(4 * multiplier, seed=2)
    case(
        f"depthwise stride {stride} dilation {dilation} padding {padding} multiplier {multiplier}",
        "DEPTHWISE_CONV_2D",
        [Computed(IMAGE), weight, bias],
        f(ACTIVATIONS[activation](convolved(IMAGE, depthwise(IMAGE, weight), bias, stride, dilation, padding))),
        "DepthwiseConv2DOptions",
        window_options(stride, dilation, padding, activation) | {"DepthMultiplier": multiplier},
    )

GROUPED = random(6, 2, 2, 2, seed=3)
case(
    "conv in groups",
    "CONV_2D",
    [Computed(IMAGE), GROUPED, np.zeros(6, np.float32)],
    f(convolved(IMAGE, GROUPED, None, (1, 1), (1, 1), SAME)),
    "Conv2DOptions",
    window_options((1, 1), (1, 1), SAME, NO_ACTIVATION),
)
case(
    "conv with a computed weight",
    "CONV_2D",
    [Computed(IMAGE), Computed(random(3, 2, 2, 4, seed=4)), f([1, 2, 3])],
    f(convolved(IMAGE, random(3, 2, 2, 4, seed=4), f([1, 2, 3]), (1, 1), (1, 1), VALID)),
    "Conv2DOptions",
    window_options((1, 1), (1, 1), VALID, NO_ACTIVATION),
)

SMALL = random(2, 3, 4, 3)
for stride, kernel, padding, extra in product(
    [(1, 1), (2, 2), (2, 3)], [(3, 3), (2, 4), (1, 1)], [SAME, VALID], [0, 1]
):
    weight = random(2, *kernel, 3, seed=1)
    spatial = [
        size * s - extra * (s - 1) if padding == SAME else (size - 1) * s + k + extra * (s - 1)
        for size, s, k in zip(SMALL.shape[1:3], stride, kernel, strict=True)
    ]
    shape = (2, *spatial, 2)
    if extra and stride == (1, 1):
        continue
    case(
        f"deconv stride {stride} kernel {kernel} padding {padding} extra {extra}",
        "TRANSPOSE_CONV",
        [ints(*shape), weight, Computed(SMALL)],
        f(deconvolved(SMALL, weight, shape, stride, padding)),
        "TransposeConvOptions",
        {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1]},
    )
case(
    "deconv with bias and activation",
    "TRANSPOSE_CONV",
    [ints(2, 6, 8, 2), random(2, 3, 3, 3, seed=1), Computed(SMALL), f([1, -1])],
    f(np.maximum(deconvolved(SMALL, random(2, 3, 3, 3, seed=1), (2, 6, 8, 2), (2, 2), SAME) + f([1, -1]), 0)),
    "TransposeConvOptions",
    {"Padding": SAME, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": RELU},
)

for index, (kernel, stride, padding) in enumerate(product([(2, 2), (3, 4)], [(1, 1), (2, 3)], [SAME, VALID])):
    activation = [*ACTIVATIONS][index % 5]
    attributes = {
        **{"FilterHeight": kernel[0], "FilterWidth": kernel[1], "StrideH": stride[0], "StrideW": stride[1]},
        **{"Padding": padding, "FusedActivationFunction": activation},
    }
    windows = patches(IMAGE, kernel, stride, (1, 1), padding, np.nan)
    for kind, reduce in {
        "MAX_POOL_2D": lambda patch: np.nanmax(patch, axis=(1, 2)),
        "AVERAGE_POOL_2D": lambda patch: np.nanmean(patch, axis=(1, 2)),
        "L2_POOL_2D": lambda patch: np.sqrt(np.nanmean(np.square(patch), axis=(1, 2))),
    }.items():
        case(
            f"{kind} kernel {kernel} stride {stride} padding {padding}",
            kind,
            [Computed(IMAGE)],
            f(ACTIVATIONS[activation](windowed(windows, reduce))),
            "Pool2DOptions",
            attributes,
        )

# Volumes

VOLUME = random(1, 4, 5, 6, 3, seed=21)
CUBE, CUBE_BIAS = random(2, 3, 2, 3, 4, seed=22), random(4, seed=23)


def convolved_volume(stride: tuple[int, int, int], padding: int) -> Array:
    data = VOLUME.astype(np.float64)
    if padding == SAME:
        pads = [same_padding(*of) for of in zip(VOLUME.shape[1:4], CUBE.shape[:3], stride, strict=True)]
        data = np.pad(data, [(0, 0), *pads, (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(data, CUBE.shape[:3], axis=(1, 2, 3))
    windows = windows[:, :: stride[0], :: stride[1], :: stride[2]]
    return f(np.einsum("ndhwcxyz,xyzco->ndhwo", windows, CUBE) + CUBE_BIAS)


for stride, padding in product([(1, 1, 1), (2, 1, 3)], [SAME, VALID]):
    case(
        f"volume stride {stride} padding {padding}",
        "CONV_3D",
        [Computed(VOLUME), CUBE, CUBE_BIAS],
        convolved_volume(stride, padding),
        "Conv3DOptions",
        {f"Stride{axis}": step for axis, step in zip("DHW", stride, strict=True)} | {"Padding": padding},
        tolerance=1e-4,
    )
