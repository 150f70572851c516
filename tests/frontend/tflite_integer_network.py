"""A small network of integers, and what TensorFlow's interpreter gave for it; run as a program it is recorded anew.

    pip install ai-edge-litert
    python tests/frontend/tflite_integer_network.py

The interpreter with its default kernels (XNNPACK's) wrote `tflite_integer_network.json`: for each dtype the digest of
the file's bytes, and every tensor that the network computes for one image.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from tflite_files import File

RECORDED = Path(__file__).with_suffix(".json")
DTYPES = ("int8", "uint8", "int16")
RNG_SEED = 5
WINDOW = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
POOL = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}


def image(dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(RNG_SEED).integers(limits.min, limits.max + 1, (1, 8, 8, 3)).astype(dtype)


def network(dtype: str, bias_axis: int = 0, bias_scale: float = 1.0) -> bytes:
    """Two convolutions, the sum of what they give, averages, a dense layer and a softmax, each tensor an output.

    bias_axis: what the file calls the axis of biases; bias_scale: how many times too large it calls their scales, or 0
    for files that state none.
    """
    rng, file = np.random.default_rng(RNG_SEED), File()
    fine = 1 / 256 if dtype == "int16" else 1.0
    zero = {"int8": -7, "uint8": 120, "int16": 0}[dtype]

    def tensor(shape: tuple[int, ...], scale: float, zero_point: int = zero) -> int:
        return file.tensor(shape, dtype, scales=[scale * fine], zero_points=[zero_point])

    def layer(kind: str, data: int, scale: float, shape: tuple[int, ...], axis: int, result: int, **options: int):
        """Weights with a scale for each output, uint8 ones with one."""
        outputs = shape[axis]
        count = 1 if dtype == "uint8" else outputs
        weight_scales = rng.uniform(0.002, 0.01, count).astype(np.float32)
        weight = rng.integers(-127, 128, shape)
        if dtype == "uint8":
            weight = weight + 128
        zeros = [128 if dtype == "uint8" else 0] * count
        bias_dtype = "int64" if dtype == "int16" else "int32"
        bias = rng.integers(-3000, 3000, outputs) * (200 if dtype == "int16" else 1)
        kernel = file.constant(
            weight.astype("uint8" if dtype == "uint8" else "int8"),
            scales=weight_scales,
            zero_points=zeros,
            axis=axis if count > 1 else 0,
        )
        scales = weight_scales * np.float32(scale * fine)
        told = {"scales": scales * np.float32(bias_scale), "zero_points": [0] * count, "axis": bias_axis}
        shift = file.constant(bias.astype(bias_dtype), **told if bias_scale else {})
        file.operator(kind, [data, kernel, shift], [result], **options)

    data = file.input((1, 8, 8, 3), dtype, scales=[0.0207 * fine], zero_points=[zero])
    first, second, total = (tensor((1, 8, 8, 6), scale) for scale in (0.0513, 0.0391, 0.0627))
    pooled, flat, logits = tensor((1, 4, 4, 6), 0.0627), tensor((1, 96), 0.0627), tensor((1, 10), 0.113)
    shares = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}[dtype]
    result = file.tensor((1, 10), dtype, scales=[shares[0]], zero_points=[shares[1]])
    layer("CONV_2D", data, 0.0207, (6, 3, 3, 3), 0, first, options="Conv2DOptions", FusedActivationFunction=1, **WINDOW)
    layer(
        "DEPTHWISE_CONV_2D",
        first,
        0.0513,
        (1, 3, 3, 6),
        3,
        second,
        options="DepthwiseConv2DOptions",
        DepthMultiplier=1,
        **WINDOW,
    )
    file.operator("ADD", [first, second], [total], "AddOptions", FusedActivationFunction=0)
    file.operator("AVERAGE_POOL_2D", [total], [pooled], "Pool2DOptions", **POOL)
    file.operator("RESHAPE", [pooled, file.constant(np.int32([1, 96]))], [flat], "ReshapeOptions")
    layer("FULLY_CONNECTED", flat, 0.0627, (10, 96), 0, logits, options="FullyConnectedOptions")
    file.operator("SOFTMAX", [logits], [result], "SoftmaxOptions", Beta=1.0)
    return file.write([first, second, total, pooled, logits, result])


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def record() -> None:
    from ai_edge_litert.interpreter import Interpreter

    found = {}
    for dtype in DTYPES:
        content = network(dtype)
        machine = Interpreter(model_content=content)
        machine.allocate_tensors()
        machine.set_tensor(machine.get_input_details()[0]["index"], image(dtype))
        machine.invoke()
        outputs = [machine.get_tensor(told["index"]).reshape(-1).tolist() for told in machine.get_output_details()]
        found[dtype] = {"digest": digest(content), "outputs": outputs}
    RECORDED.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    record()
