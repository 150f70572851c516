"""Every TFLite operator that is read, against NumPy, and NumPy against TensorFlow's interpreter where it is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from tflite_files import File, interpreted, random, same_padding

from mrt.frontend.tflite import converters, from_tflite
from mrt.frontend.tflite.node import covered_operators

Array = np.ndarray
NO_ACTIVATION, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)
SAME, VALID = 0, 1


@dataclass(frozen=True)
class Computed:
    """An input of the model, as opposed to a constant in its file."""

    value: Array


@dataclass(frozen=True)
class Case:
    """One operator: its inputs (None where one is left out), and what it gives of them."""

    kind: str
    inputs: Sequence[Computed | Array | None]
    expected: Array | Sequence[Array]
    options: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5

    @property
    def has_kernel(self) -> bool:
        """Whether TensorFlow computes it: its kernels overlook a TANH that is built in, which the schema has."""
        return self.attributes.get("FusedActivationFunction") != TANH

    @property
    def results(self) -> list[Array]:
        return list(self.expected) if isinstance(self.expected, (list, tuple)) else [self.expected]

    def content(self) -> bytes:
        file = File()
        numbers = [self._add(file, given) for given in self.inputs]
        outputs = [file.tensor(result.shape, result.dtype.name) for result in self.results]
        file.operator(self.kind, numbers, outputs, self.options, **self.attributes)
        return file.write(outputs)

    @staticmethod
    def _add(file: File, given: Computed | Array | None) -> int:
        if given is None:
            return -1
        if isinstance(given, Computed):
            return file.input(given.value.shape, given.value.dtype.name)
        return file.constant(given)

    @property
    def feeds(self) -> list[Array]:
        return [given.value for given in self.inputs if isinstance(given, Computed)]


def f(values: Any) -> Array:
    """As float32."""
    return np.asarray(values, dtype=np.float32)


def ints(*values: int) -> Array:
    return np.asarray(values, dtype=np.int32)


ACTIVATIONS: dict[int, Callable[[Array], Array]] = {
    NO_ACTIVATION: lambda x: x,
    RELU: lambda x: np.maximum(x, 0),
    RELU_N1_TO_1: lambda x: np.clip(x, -1, 1),
    RELU6: lambda x: np.clip(x, 0, 6),
    TANH: np.tanh,
}


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


CASES: dict[str, Case] = {}


def case(name: str, *arguments: Any, **fields: Any) -> None:
    assert name not in CASES
    CASES[name] = Case(*arguments, **fields)


def window_options(stride: Sequence[int], dilation: Sequence[int], padding: int, activation: int) -> dict[str, int]:
    return {
        "Padding": padding,
        "StrideH": stride[0],
        "StrideW": stride[1],
        "DilationHFactor": dilation[0],
        "DilationWFactor": dilation[1],
        "FusedActivationFunction": activation,
    }


IMAGE = random(2, 7, 6, 4)
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

# Matrix products

MATRIX, ROWS = random(5, 6, seed=1), random(3, 6)
case(
    "fully connected",
    "FULLY_CONNECTED",
    [Computed(ROWS), MATRIX, random(5)],
    ROWS @ MATRIX.T + random(5),
    "FullyConnectedOptions",
)
case(
    "fully connected without bias",
    "FULLY_CONNECTED",
    [Computed(ROWS), MATRIX, None],
    ROWS @ MATRIX.T,
    "FullyConnectedOptions",
)
case(
    "fully connected of an image",
    "FULLY_CONNECTED",
    [Computed(random(2, 1, 3, 2)), MATRIX, random(5)],
    np.maximum(random(2, 1, 3, 2).reshape(2, 6) @ MATRIX.T + random(5), 0),
    "FullyConnectedOptions",
    {"FusedActivationFunction": RELU},
)
case(
    "fully connected, rows merged",
    "FULLY_CONNECTED",
    [Computed(random(2, 4, 6)), MATRIX, random(5)],
    random(2, 4, 6).reshape(8, 6) @ MATRIX.T + random(5),
    "FullyConnectedOptions",
)
case(
    "fully connected, axes kept",
    "FULLY_CONNECTED",
    [Computed(random(2, 4, 6)), MATRIX, random(5)],
    random(2, 4, 6) @ MATRIX.T + random(5),
    "FullyConnectedOptions",
    {"KeepNumDims": True},
)
case(
    "fully connected, weight computed",
    "FULLY_CONNECTED",
    [Computed(random(2, 4, 6)), Computed(MATRIX), random(5)],
    np.clip(random(2, 4, 6) @ MATRIX.T + random(5), 0, 6),
    "FullyConnectedOptions",
    {"KeepNumDims": True, "FusedActivationFunction": RELU6},
)
case(
    "fully connected, weight computed, no bias",
    "FULLY_CONNECTED",
    [Computed(ROWS), Computed(MATRIX)],
    ROWS @ MATRIX.T,
    "FullyConnectedOptions",
)
for adj_x, adj_y in product([False, True], repeat=2):
    left, right = random(2, 3, 4, 5), random(3, 5, 6, seed=1)
    given = (left.swapaxes(-1, -2) if adj_x else left, right.swapaxes(-1, -2) if adj_y else right)
    flags = {"AdjX": adj_x, "AdjY": adj_y}
    case(
        f"batch matmul {adj_x} {adj_y}",
        "BATCH_MATMUL",
        [Computed(a.copy()) for a in given],
        left @ right,
        "BatchMatMulOptions",
        flags,
    )
    case(
        f"batch matmul by a constant {adj_x} {adj_y}",
        "BATCH_MATMUL",
        [Computed(given[0].copy()), given[1][0].copy()],
        left @ right[0],
        "BatchMatMulOptions",
        flags,
    )

# Elementwise

X, Y = random(2, 3, 4, seed=5), random(2, 3, 4, seed=6)
BINARY: dict[str, tuple[Callable[[Array, Array], Array], str]] = {
    "ADD": (np.add, "AddOptions"),
    "SUB": (np.subtract, "SubOptions"),
    "MUL": (np.multiply, "MulOptions"),
    "DIV": (np.divide, "DivOptions"),
    "MAXIMUM": (np.maximum, "MaximumMinimumOptions"),
    "MINIMUM": (np.minimum, "MaximumMinimumOptions"),
    "SQUARED_DIFFERENCE": (lambda a, b: np.square(a - b), "SquaredDifferenceOptions"),
}
for kind, (function, options) in BINARY.items():
    others = {
        "a tensor": Computed(Y),
        "broadcasting": Computed(random(3, 1, seed=7) + 3),
        "a constant": random(4, seed=7) + 3,
        "a number": f(2.5),
        "a constant of more axes": random(2, 2, 3, 4, seed=8) + 3,
    }
    for index, (name, other) in enumerate(others.items()):
        value = other.value if isinstance(other, Computed) else other
        for turned in (False, True):
            pair = [other, Computed(X + 3)] if turned else [Computed(X + 3), other]
            values = (value, X + 3) if turned else (X + 3, value)
            activation = (
                [*ACTIVATIONS][index] if options in ("AddOptions", "SubOptions", "MulOptions", "DivOptions") else 0
            )
            attributes = {"FusedActivationFunction": activation} if activation else {}
            case(
                f"{kind} {name}{' turned' if turned else ''}",
                kind,
                pair,
                f(ACTIVATIONS[activation](f(function(*values)))),
                options,
                attributes,
            )
case("add n", "ADD_N", [Computed(X), Computed(Y), Computed(X * Y)], X + Y + X * Y, "AddNOptions")
case("pow of 2", "POW", [Computed(X), f(2)], X**2, "PowOptions")
case("pow of 3", "POW", [Computed(np.abs(X)), f(3)], np.abs(X) ** 3, "PowOptions")

NORMAL = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 3, 4)
TENTHS = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4) / 2
ERF = np.vectorize(math.erf)
UNARY: dict[str, tuple[Callable[[Array], Array], Array]] = {
    "ABS": (np.abs, X),
    "CEIL": (np.ceil, TENTHS),
    "ELU": (lambda x: np.where(x > 0, x, np.expm1(x)), X),
    "EXP": (np.exp, X),
    "FLOOR": (np.floor, TENTHS),
    "HARD_SWISH": (lambda x: x * np.clip(x + 3, 0, 6) / 6, NORMAL),
    "LOG": (np.log, np.abs(X) + 0.1),
    "LOGISTIC": (lambda x: 1 / (1 + np.exp(-x)), NORMAL),
    "NEG": (np.negative, X),
    "RELU": (lambda x: np.maximum(x, 0), X),
    "RELU6": (lambda x: np.clip(x, 0, 6), NORMAL),
    "RELU_0_TO_1": (lambda x: np.clip(x, 0, 1), X),
    "RELU_N1_TO_1": (lambda x: np.clip(x, -1, 1), X),
    "ROUND": (np.rint, TENTHS),
    "RSQRT": (lambda x: 1 / np.sqrt(x), np.abs(X) + 0.1),
    "SIGN": (np.sign, TENTHS),
    "SQRT": (np.sqrt, np.abs(X)),
    "SQUARE": (np.square, X),
    "TANH": (np.tanh, X),
}
for kind, (unary, data) in UNARY.items():
    case(kind.lower(), kind, [Computed(data)], f(unary(data)))
case("gelu", "GELU", [Computed(X)], f(X * (1 + ERF(X / math.sqrt(2))) / 2), "GeluOptions", {"Approximate": False})
case(
    "gelu by tanh",
    "GELU",
    [Computed(X)],
    f(X / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))),
    "GeluOptions",
    {"Approximate": True},
)
case("leaky relu", "LEAKY_RELU", [Computed(X)], f(np.where(X > 0, X, X * 0.3)), "LeakyReluOptions", {"Alpha": 0.3})
for name, alpha in {
    "one": f([[[0.25]]]),
    "per channel": random(1, 1, 4),
    "per column": random(6, 1),
    "per element": random(7, 6, 4),
}.items():
    case(f"prelu {name}", "PRELU", [Computed(IMAGE), alpha], f(np.where(IMAGE > 0, IMAGE, IMAGE * alpha)))
case(
    "cast to integers",
    "CAST",
    [Computed(NORMAL)],
    NORMAL.astype(np.int32),
    "CastOptions",
    {"InDataType": 0, "OutDataType": 2},
)
case("cast to floats", "CAST", [Computed(ints(-1, 3))], f([-1, 3]), "CastOptions", {"InDataType": 2, "OutDataType": 0})

# Normalisation


def softmax(x: Array) -> Array:
    powers = np.exp(x.astype(np.float64))
    return f(powers / powers.sum(axis=-1, keepdims=True))


case("softmax", "SOFTMAX", [Computed(X)], softmax(X), "SoftmaxOptions", {"Beta": 1.0})
case("softmax of half", "SOFTMAX", [Computed(X)], softmax(X / 2), "SoftmaxOptions", {"Beta": 0.5})
case("log softmax", "LOG_SOFTMAX", [Computed(X)], f(np.log(softmax(X))), "LogSoftmaxOptions")
for data in (random(3, 4), X, IMAGE):
    case(
        f"length of rank {data.ndim}",
        "L2_NORMALIZATION",
        [Computed(data)],
        f(data / np.sqrt(np.square(data).sum(axis=-1, keepdims=True))),
        "L2NormOptions",
    )

# Reductions

for (kind, reduced), keep, axes in product(
    {"MEAN": np.mean, "SUM": np.sum, "REDUCE_MAX": np.max, "REDUCE_MIN": np.min}.items(),
    [False, True],
    [(1, 2), (-1,), (0, 1, 2, 3)],
):
    case(
        f"{kind} over {axes} keep {keep}",
        kind,
        [Computed(IMAGE), ints(*axes)],
        f(reduced(IMAGE, axis=axes, keepdims=keep)),
        "ReducerOptions",
        {"KeepDims": keep},
    )

# Moving values

case("reshape by an input", "RESHAPE", [Computed(X), ints(-1, 4)], X.reshape(6, 4), "ReshapeOptions")
case("reshape by options", "RESHAPE", [Computed(X)], X.reshape(2, 12), "ReshapeOptions", {"NewShape": [2, 12]})
case("squeeze all", "SQUEEZE", [Computed(X.reshape(2, 1, 12, 1))], X.reshape(2, 12), "SqueezeOptions")
case(
    "squeeze one",
    "SQUEEZE",
    [Computed(X.reshape(2, 1, 12, 1))],
    X.reshape(2, 1, 12),
    "SqueezeOptions",
    {"SqueezeDims": [-1]},
)
case("expand dims", "EXPAND_DIMS", [Computed(X), ints(-2)], X[:, :, None], "ExpandDimsOptions")
case("transpose", "TRANSPOSE", [Computed(X), ints(1, 2, 0)], X.transpose(1, 2, 0), "TransposeOptions")
case(
    "concatenation",
    "CONCATENATION",
    [Computed(X), Computed(Y), random(2, 3, 1)],
    np.concatenate([X, Y, random(2, 3, 1)], -1),
    "ConcatenationOptions",
    {"Axis": -1},
)
case("concatenation of one", "CONCATENATION", [Computed(X)], X, "ConcatenationOptions", {"Axis": 1})
case("pack", "PACK", [Computed(X), Computed(Y)], np.stack([X, Y], axis=1), "PackOptions", {"ValuesCount": 2, "Axis": 1})
case("pack of one", "PACK", [Computed(X)], X[None], "PackOptions", {"ValuesCount": 1})
case("unpack", "UNPACK", [Computed(X)], [X[:, 0], X[:, 1], X[:, 2]], "UnpackOptions", {"Num": 3, "Axis": 1})
case("split", "SPLIT", [ints(2)[0], Computed(X)], np.split(X, 2, axis=2), "SplitOptions", {"NumSplits": 2})
case(
    "split by sizes",
    "SPLIT_V",
    [Computed(X), ints(1, -1), ints(2)[0]],
    [X[..., :1], X[..., 1:]],
    "SplitVOptions",
    {"NumSplits": 2},
)
case("slice", "SLICE", [Computed(X), ints(0, 1, 1), ints(2, -1, 2)], X[:, 1:, 1:3], "SliceOptions")
case("tile", "TILE", [Computed(X), ints(1, 2, 3)], np.tile(X, (1, 2, 3)), "TileOptions")
case("broadcast", "BROADCAST_TO", [Computed(X[:, :1]), ints(2, 3, 4)], np.broadcast_to(X[:, :1], (2, 3, 4)).copy())
case("reverse", "REVERSE_V2", [Computed(X), ints(1)], X[:, ::-1].copy(), "ReverseV2Options")
case("gather by constants", "GATHER", [Computed(X), ints(3, 0, 0)], X[..., [3, 0, 0]], "GatherOptions", {"Axis": 2})
case("gather in a row", "GATHER", [Computed(X), ints(1, 2)], X[:, 1:], "GatherOptions", {"Axis": 1})
case("gather one", "GATHER", [Computed(X), ints(1)[0]], X[:, 1], "GatherOptions", {"Axis": 1})
case("gather by computed", "GATHER", [random(5, 3), Computed(ints(4, 0, 1))], random(5, 3)[[4, 0, 1]], "GatherOptions")
case("embedding", "EMBEDDING_LOOKUP", [Computed(ints(4, 0, 1)), random(5, 3)], random(5, 3)[[4, 0, 1]])
case(
    "pad", "PAD", [Computed(X), ints(0, 0, 1, 2, 0, 1).reshape(3, 2)], np.pad(X, [(0, 0), (1, 2), (0, 1)]), "PadOptions"
)
case(
    "pad with a value",
    "PADV2",
    [Computed(X), ints(0, 0, 1, 2, 0, 1).reshape(3, 2), f(3)],
    np.pad(X, [(0, 0), (1, 2), (0, 1)], constant_values=3),
    "PadV2Options",
)
for mode, word in enumerate(["reflect", "symmetric"]):
    widths = ints(0, 0, 1, 2, 2, 0).reshape(3, 2)
    case(
        f"mirror {word}",
        "MIRROR_PAD",
        [Computed(X), widths],
        np.pad(X, widths, mode=word),
        "MirrorPadOptions",
        {"Mode": mode},
    )
case(
    "mirror as wide as the data",
    "MIRROR_PAD",
    [Computed(X), ints(0, 0, 3, 3, 4, 4).reshape(3, 2)],
    np.pad(X, [(0, 0), (3, 3), (4, 4)], mode="symmetric"),
    "MirrorPadOptions",
    {"Mode": 1},
)


def strided(name: str, expected: Array, begin: Array, end: Array, strides: Array, **masks: int) -> None:
    attributes = {f"{mask}Mask": bits for mask, bits in masks.items()}
    case(
        f"strided {name}",
        "STRIDED_SLICE",
        [Computed(X), begin, end, strides],
        expected,
        "StridedSliceOptions",
        attributes,
    )


strided("plain", X[0:2, 1:3, 0:4:2], ints(0, 1, 0), ints(2, 3, 4), ints(1, 1, 2))
strided("open", X[:, 1:, :-1], ints(9, 1, 2), ints(2, -2, -1), ints(1, 1, 1), Begin=0b101, End=0b10)
strided("backward", X[:, ::-1, 3:0:-2], ints(0, 7, 3), ints(2, 0, 0), ints(1, -1, -2), Begin=0b10, End=0b10)
strided("element", X[:, -1, 1:2], ints(0, -1, 1), ints(2, 0, 2), ints(1, 1, 1), ShrinkAxis=0b10)
strided("elements", X[1, :, 2], ints(1, 0, 2), ints(2, 3, 3), ints(1, 1, 1), ShrinkAxis=0b101)
strided("new axis", X[:, None, 1:], ints(0, 0, 1), ints(2, 0, 3), ints(1, 1, 1), NewAxis=0b10)
strided("ellipsis", X[..., 1:3], ints(0, 1), ints(0, 3), ints(1, 1), Ellipsis=0b1)
strided(
    "all at once",
    X[None, ..., 2],
    ints(0, 0, 2),
    ints(0, 0, 3),
    ints(1, 1, 1),
    NewAxis=0b1,
    Ellipsis=0b10,
    ShrinkAxis=0b100,
)
strided("fewer entries", X[:, 1:], ints(0, 1), ints(2, 3), ints(1, 1))

for size, (corners, half) in product([(14, 12), (7, 18), (5, 9), (3, 3), (1, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]):

    def nearest(old: int, new: int, corners: int = corners, half: int = half) -> Array:
        scale = np.float32(old - 1) / np.float32(new - 1) if corners and new > 1 else np.float32(old) / np.float32(new)
        places = (np.arange(new, dtype=np.float32) + np.float32(0.5 * half)) * scale
        found = np.floor(places + np.float32(0.5)) if corners else np.floor(places)
        return np.clip(found, 0, old - 1).astype(int)

    case(
        f"resize to {size} corners {corners} half {half}",
        "RESIZE_NEAREST_NEIGHBOR",
        [Computed(IMAGE), ints(*size)],
        IMAGE[:, nearest(7, size[0])][:, :, nearest(6, size[1])],
        "ResizeNearestNeighborOptions",
        {"AlignCorners": bool(corners), "HalfPixelCenters": bool(half)},
    )

BLOCKS = random(2, 4, 6, 8)
case(
    "depth to space",
    "DEPTH_TO_SPACE",
    [Computed(BLOCKS)],
    BLOCKS.reshape(2, 4, 6, 2, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(2, 8, 12, 2),
    "DepthToSpaceOptions",
    {"BlockSize": 2},
)
case(
    "space to depth",
    "SPACE_TO_DEPTH",
    [Computed(BLOCKS)],
    BLOCKS.reshape(2, 2, 2, 3, 2, 8).transpose(0, 1, 3, 2, 4, 5).reshape(2, 2, 3, 32),
    "SpaceToDepthOptions",
    {"BlockSize": 2},
)

# Choosing

STEPS = np.tile(f([0, 1, 2, 3]), (2, 3, 1)) - 1.5
for kind, compare in {
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
}.items():
    case(f"{kind.lower()} a number", kind, [Computed(STEPS), f(0.5)], compare(STEPS, 0.5))
    case(
        f"{kind.lower()} a tensor",
        kind,
        [Computed(STEPS), Computed(np.sign(STEPS) / 2)],
        compare(STEPS, np.sign(STEPS) / 2),
    )
CONDITION = np.random.default_rng(9).integers(0, 2, (2, 3, 4)).astype(bool)
case("select", "SELECT", [Computed(CONDITION), Computed(X), Computed(Y)], np.where(CONDITION, X, Y), "SelectOptions")
case(
    "select rows",
    "SELECT",
    [Computed(np.asarray([True, False])), Computed(X), Computed(Y)],
    np.stack([X[0], Y[1]]),
    "SelectOptions",
)
case(
    "select broadcasting",
    "SELECT_V2",
    [Computed(CONDITION[0, 0]), Computed(X), f(0)],
    f(np.where(CONDITION[0, 0], X, 0)),
    "SelectV2Options",
)
case("argmax", "ARG_MAX", [Computed(IMAGE), ints(3)[0]], IMAGE.argmax(axis=3), "ArgMaxOptions", {"OutputType": 4})
case("argmin", "ARG_MIN", [Computed(IMAGE), ints(1)[0]], IMAGE.argmin(axis=1), "ArgMinOptions", {"OutputType": 4})

TESTED_ELSEWHERE = {
    *("DEQUANTIZE", "QUANTIZE", "FILL", "RANGE", "RANK", "REDUCE_PROD", "SHAPE", "ZEROS_LIKE"),
    *("FLOOR_DIV", "FLOOR_MOD", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"),
}
"""By files of constants, in test_tflite_models.py, and of integers, in test_tflite_quantized.py."""


def test_every_operator_has_a_case() -> None:
    assert converters.__doc__  # imported, so that all are registered
    assert {case.kind for case in CASES.values()} | TESTED_ELSEWHERE == covered_operators()


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    case = CASES[name]
    graph = from_tflite(case.content())
    feeds = {symbol.name: value for symbol, value in zip(graph.inputs, case.feeds, strict=True)}
    for found, expected in zip(graph.evaluate(feeds), case.results, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_kernel])
def test_what_is_expected_is_what_tensorflow_gives(name: str) -> None:
    case = CASES[name]
    for found, expected in zip(interpreted(case.content(), case.feeds), case.results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=case.tolerance, atol=case.tolerance)
