"""Trained quantization: quantize and dequantize of quantized programs, fake_quantize of training with quantization."""

from __future__ import annotations

import numpy as np
import torch
from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, converter, dtype_of, relax_dtype, shape_of

_KINDS = ("int8", "uint8", "int16", "int32")
"""The integers that the bounds of a fake_quantize may be kept in, the narrowest first."""


@converter("quantize_per_tensor.default", "quantize_per_tensor.tensor")
def quantize_per_tensor(node: Node) -> Expression:
    return bounded(
        node, node.tensor("input"), _one(node, "scale"), _one(node, "zero_point"), 0, integer_kind(node, "dtype")
    )


@converter("quantize_per_channel.default")
def quantize_per_channel(node: Node) -> Expression:
    scale, zero = node.tensor("scales"), _whole(node, node.tensor("zero_points"))
    return bounded(node, node.tensor("input"), scale, zero, node.integer("axis"), integer_kind(node, "dtype"))


@converter("dequantize_per_tensor.default", "dequantize_per_tensor.tensor")
def dequantize_per_tensor(node: Node) -> Expression:
    return relax.op.dequantize(node.tensor("input"), _one(node, "scale"), _one(node, "zero_point"), 0)


@converter("dequantize_per_channel.default")
def dequantize_per_channel(node: Node) -> Expression:
    scale = node.tensor("scales")
    zero = (
        _whole(node, node.tensor("zero_points"))
        if node.has("zero_points")
        else constant(np.zeros(shape_of(scale)), "int32")
    )
    return relax.op.dequantize(node.tensor("input"), scale, zero, node.integer("axis"))


@converter("fake_quantize_per_tensor_affine.default", "fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize_per_tensor(node: Node) -> Expression:
    return _rounded(node, _one(node, "scale"), _one(node, "zero_point"), 0)


@converter("fake_quantize_per_channel_affine.default")
def fake_quantize_per_channel(node: Node) -> Expression:
    return _rounded(node, node.tensor("scale"), _whole(node, node.tensor("zero_point")), node.integer("axis"))


@converter(
    "fake_quantize_per_tensor_affine_cachemask.default",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
)
def fake_quantize_per_tensor_with_mask(node: Node) -> tuple[Expression]:
    """Without the mask, of which gradients are made."""
    return (fake_quantize_per_tensor(node),)


@converter("fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_per_channel_with_mask(node: Node) -> tuple[Expression]:
    return (fake_quantize_per_channel(node),)


def _rounded(node: Node, scale: Expression, zero: Expression, axis: int) -> Expression:
    """Quantized to the narrowest integers that hold the bounds, and dequantized."""
    low, high = node.integer("quant_min"), node.integer("quant_max")
    fitting = [kind for kind in _KINDS if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
    if not fitting:
        raise node.unsupported("quant_min and quant_max", (low, high), "bounds of 32 bits")
    data = node.tensor("self")
    integers = node.emit(bounded(node, data, scale, zero, axis, fitting[0]), "integers")
    return relax.op.dequantize(integers, scale, zero, axis)


def bounded(node: Node, data: Expression, scale: Expression, zero: Expression, axis: int, kind: str) -> Expression:
    """`data` as integers of `kind`.

    Bounds that are narrower cut the data before, at the real numbers that they stand for: these are rounded to the
    bounds themselves.
    """
    limits = np.iinfo(kind)
    low = max(node.integer("quant_min"), limits.min) if node.has("quant_min") else limits.min
    high = min(node.integer("quant_max"), limits.max) if node.has("quant_max") else limits.max
    for bound, end, cut in ((low, limits.min, relax.op.maximum), (high, limits.max, relax.op.minimum)):
        if bound != end:
            steps = node.emit(relax.op.subtract(constant(bound, "int32"), zero))
            real = node.emit(relax.op.multiply(node.emit(relax.op.astype(steps, "float32")), scale))
            data = node.emit(cut(data, _along(node, real, axis, len(shape_of(data)))))
    return relax.op.quantize(data, scale, zero, axis, kind)


def _along(node: Node, vector: Expression, axis: int, rank: int) -> Expression:
    """A vector as it broadcasts along an axis; a number as it is."""
    if not shape_of(vector):
        return vector
    column = [-1 if place == axis % rank else 1 for place in range(rank)]
    return node.emit(relax.op.reshape(vector, [shape_of(vector)[0] if size == -1 else 1 for size in column]))


def integer_kind(node: Node, name: str) -> str:
    """The dtype that a quantize gives, as the argument of this name says."""
    kind = relax_dtype(node.arguments[name])
    if kind not in _KINDS:
        raise node.unsupported(name, kind, f"one of {', '.join(_KINDS)}")
    return kind


def _one(node: Node, name: str) -> Expression:
    """A scale or zero point of a whole tensor, a number or a tensor of one element; float32 and int32."""
    dtype = "float32" if name == "scale" else "int32"
    value = node.arguments[name]
    if not isinstance(value, torch.fx.Node):
        return constant(value, dtype)
    given = node.cast(node.tensor(name), dtype)
    return given if not shape_of(given) else node.emit(relax.op.reshape(given, []))


def _whole(node: Node, zeros: Expression) -> Expression:
    """Zero points as int32."""
    return zeros if dtype_of(zeros) == "int32" else node.cast(zeros, "int32")
