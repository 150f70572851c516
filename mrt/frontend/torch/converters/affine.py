"""torchao's quantize_affine and dequantize_affine: one scale for each block of a tensor."""

from __future__ import annotations

import numpy as np
from tvm import relax

from mrt.frontend.torch.converters.quantization import bounded, integer_kind
from mrt.frontend.torch.node import Expression, Node, constant, converter, dtype_of, shape_of


@converter("dequantize_affine.default")
def dequantize_affine(node: Node) -> Expression:
    """Scales of blocks within an axis are those of each element: what they give is a float constant."""
    data = node.tensor("input")
    axis = _axis(node, data)
    scale, zero = _scales(node)
    if axis is not None:
        return relax.op.dequantize(data, _flat(node, scale), _flat(node, zero), axis)
    whole = shape_of(data)
    blocks = [(length // size, size) for length, size in zip(whole, node.integers("block_size"), strict=True)]
    split, each = [size for pair in blocks for size in pair], [size for count, _ in blocks for size in (count, 1)]
    steps = node.cast(node.emit(relax.op.reshape(data, split)), "float32")
    zeros = node.cast(node.emit(relax.op.reshape(zero, each)), "float32")
    scales = node.emit(relax.op.reshape(scale, each))
    real = node.emit(relax.op.multiply(node.emit(relax.op.subtract(steps, zeros)), scales))
    return relax.op.reshape(real, whole)


@converter("quantize_affine.default")
def quantize_affine(node: Node) -> Expression:
    data = node.tensor("input")
    axis = _axis(node, data)
    if axis is None:
        raise node.unsupported("block_size", node.integers("block_size"), "one block, or one for each index of an axis")
    scale, zero = _scales(node)
    return bounded(node, data, _flat(node, scale), _flat(node, zero), axis, integer_kind(node, "output_dtype"))


def _axis(node: Node, data: Expression) -> int | None:
    """The axis along which each index has its scale, 0 where the tensor has one; None where blocks lie otherwise."""
    shape, sizes = shape_of(data), node.integers("block_size")
    if len(shape) != len(sizes) or any(size < 1 or length % size for length, size in zip(shape, sizes, strict=False)):
        raise node.unsupported("block_size", sizes, f"divisors of the lengths of {tuple(shape)}")
    cut = [axis for axis, (length, size) in enumerate(zip(shape, sizes, strict=True)) if size != length]
    if not cut:
        return 0
    return cut[0] if len(cut) == 1 and sizes[cut[0]] == 1 else None


def _scales(node: Node) -> tuple[Expression, Expression]:
    """Scales as float32 and zero points as int32, of one shape."""
    scale = node.cast(node.tensor("scale"), "float32")
    if not node.has("zero_point"):
        return scale, constant(np.zeros(shape_of(scale)), "int32")
    zero = node.tensor("zero_point")
    if dtype_of(zero).startswith("float"):
        raise node.unsupported("zero_point", dtype_of(zero), "an integer")
    return scale, node.cast(zero, "int32")


def _flat(node: Node, values: Expression) -> Expression:
    """One value as a number, several as a vector."""
    count = int(np.prod(shape_of(values)))
    return node.emit(relax.op.reshape(values, [] if count == 1 else [count]))
