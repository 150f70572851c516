"""Small ONNX networks that use most converters, to be damaged."""

from __future__ import annotations

import numpy as np
import onnx
from hostile_onnx import RNG, floats, ints, node
from onnx_models import make_model


def small_models() -> dict[str, onnx.ModelProto]:
    """Networks of a few nodes that use most converters."""
    convolutional = make_model(
        [
            node("Conv", "x w b", "c", pads=[1, 1, 0, 1], strides=[2, 1], auto_pad="NOTSET"),
            node("BatchNormalization", "c g g m v", "n"),
            node("Relu", "n", "r"),
            node("MaxPool", "r", "p", kernel_shape=[2, 2], ceil_mode=1, dilations=[2, 1]),
            node("Resize", "p _ scales", "z", mode="linear"),
            node("AveragePool", "z", "a", kernel_shape=[2, 2], count_include_pad=1, pads=[0, 0, 1, 1]),
            node("Flatten", "a", "f"),
            node("Gemm", "f fc fb", "y", alpha=0.5, transB=1),
        ],
        {"x": ("N", 3, 6, 6)},
        constants={
            "w": RNG.standard_normal((2, 3, 3, 3)).astype(floats), "b": np.ones(2, floats), "g": np.ones(2, floats),
            "m": np.zeros(2, floats), "v": np.ones(2, floats), "scales": np.array([1, 1, 2, 2], floats),
            "fc": RNG.standard_normal((3, 40)).astype(floats), "fb": np.ones(3, floats),
        },
    )  # fmt: skip
    attention = make_model(
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n zeros", "u"),
            node("Concat", "u tail", "t", axis=0),
            node("LayerNormalization", "x gamma beta", "l"),
            node("MatMul", "l q", "a"),
            node("Reshape", "a t", "h"),
            node("Transpose", "h", "ht", perm=[0, 2, 1, 3]),
            node("Einsum", "ht ht", "scores", equation="bhqd,bhkd->bhqk"),
            node("Where", "mask scores low", "masked"),
            node("Softmax", "masked", "p", axis=-1),
            node("MatMul", "p ht", "o"),
            node("Slice", "o starts ends axes steps", "sl"),
            node("ReduceMean", "sl", "y", axes=[2], keepdims=0),
        ],
        {"x": ("N", 4, 6)},
        constants={
            "zero": np.int64(0), "zeros": ints(0), "tail": ints(4, 2, 3), "gamma": np.ones(6, floats),
            "beta": np.zeros(6, floats), "q": RNG.standard_normal((6, 6)).astype(floats), "low": floats(-9),
            "mask": np.tril(np.ones((4, 4), bool)), "starts": ints(0), "ends": ints(4), "axes": ints(2),
            "steps": ints(2),
        },
    )  # fmt: skip
    pieces = make_model(
        [
            node("Split", "x", "p q", axis=1),
            node("Pad", "p pads", "d", mode="reflect"),
            node("Clip", "d lo hi", "c"),
            node("ConvTranspose", "q k", "e", strides=[2], output_padding=[1]),
            node("ReduceLogSumExp", "e", "r", axes=[2]),
            node("Greater", "r lo", "g"),
            node("And", "g g", "h"),
            node("CumSum", "c one", "i"),
            node("Mul", "i r", "y"),
        ],
        {"x": (1, 2, 5)},
        constants={
            "pads": ints(0, 0, 1, 0, 0, 1), "lo": floats(0), "hi": floats(6), "one": np.int64(2),
            "k": RNG.standard_normal((1, 1, 3)).astype(floats),
        },
    )  # fmt: skip
    return {"convolutional": convolutional, "attention": attention, "pieces": pieces}


MODELS = small_models()
