"""TFLite's products, elementwise operators, normalisations, comparisons and choices, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
from tflite_case import ACTIVATIONS, IMAGE, RELU, RELU6, Array, Cases, Computed, X, Y, f, ints
from tflite_files import random

CASES = Cases()
case = CASES.add

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
ORDER = np.argsort(-X, axis=-1, kind="stable")[..., :2]
TOP = np.take_along_axis(X, ORDER, axis=-1)
case("top k", "TOPK_V2", [Computed(X), ints(2)[0]], [TOP, ORDER.astype(np.int32)], "TopKV2Options")
case("argmin", "ARG_MIN", [Computed(IMAGE), ints(1)[0]], IMAGE.argmin(axis=1), "ArgMinOptions", {"OutputType": 4})


case("cos", "COS", [Computed(X)], np.cos(X))
case("sin", "SIN", [Computed(X)], np.sin(X))
case("atan2", "ATAN2", [Computed(Y), Computed(X)], np.arctan2(Y, X))
case("atan2 broadcasting", "ATAN2", [Computed(Y), X[0, 0]], np.arctan2(Y, X[0, 0]))
case(
    "pow by channel",
    "POW",
    [Computed(abs(X) + f(0.1)), f([2, 0.5, 3, -1])],
    (abs(X) + f(0.1)) ** f([2, 0.5, 3, -1]),
    "PowOptions",
)

# Normalisation over neighbouring channels

for radius in (0, 1, 5):
    image = random(2, 3, 4, 6, seed=3)
    energy = np.stack(
        [(image[..., max(0, c - radius) : c + radius + 1] ** 2).sum(-1) for c in range(image.shape[-1])], axis=-1
    )
    case(
        f"local response {radius}",
        "LOCAL_RESPONSE_NORMALIZATION",
        [Computed(image)],
        f(image * (1.5 + 0.2 * energy) ** -0.75),
        "LocalResponseNormalizationOptions",
        {"Radius": radius, "Bias": 1.5, "Alpha": 0.2, "Beta": 0.75},
    )
