"""Constants, and what is known of every tensor: Constant, Shape, Size, EyeLike."""

from __future__ import annotations

import numpy as np
import onnx

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.symbol import Array

_DTYPES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


@converter("Constant")
def constant(node: Node) -> Array:
    """The value, under whichever attribute it stands: a tensor, or numbers as float32 or int64."""
    if len(node.proto.attribute) != 1:
        raise GraphError(f"{node.label}: has {len(node.proto.attribute)} attributes; one value is needed")
    attribute = node.proto.attribute[0]
    if attribute.name == "value":
        return node.tensor(attribute.t)
    if attribute.name in _DTYPES:
        return np.array(onnx.helper.get_attribute_value(attribute), dtype=_DTYPES[attribute.name])
    raise node.unsupported("the value", f"given as {attribute.name}", f"value or one of {', '.join(_DTYPES)}")


@converter("Shape")
def shape(node: Node) -> Array:
    """The shape as int64; from opset 15 on a part of it, [start, end)."""
    sizes = node.shape(0)
    start, end = node.integer("start", 0), node.integer("end", len(sizes))
    return np.array(sizes[start:end], dtype=np.int64)


@converter("EyeLike")
def eye_like(node: Node) -> Array:
    """Ones on a diagonal of a matrix of the input's shape, k places right of the main one."""
    shape = node.shape(0)
    if len(shape) != 2:
        raise GraphError(f"{node.label}: the input has shape {shape}; rank 2 is needed")
    made = node.made(shape)
    return np.eye(made[0], made[1], k=node.integer("k", 0), dtype=node.dtype("dtype", str(node.input(0).dtype)))


@converter("Size")
def size(node: Node) -> Array:
    return np.array(np.prod(node.shape(0), dtype=np.int64))
