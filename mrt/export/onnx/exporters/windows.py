"""Pooling and Pad."""

from __future__ import annotations

from mrt.export.lowering import is_global, pooled, window_padding
from mrt.export.onnx.node import Node, Value, exporter, lengths
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.types import INT32_MIN


@exporter(Pad)
def pad(op: Pad, node: Node) -> Value:
    data = node.input_as(0, "int8", "uint8")
    before, after = op.pad_width[::2], op.pad_width[1::2]
    if op.mode == "constant":
        return node.padded(data, before, after, int(op.constant_value))
    return node.emit("Pad", [data, lengths((*before, *after))], mode=op.mode)


@exporter(Pooling)
def pooling(op: Pooling, node: Node) -> Value:
    """A window over everything is a reduction; ONNX's MaxPool serves the maxima of 8 bits, else it is tap by tap."""
    shape, is_max = node.input_shape(0), op.pool_type == "max"
    data = node.input_as(0, "int8", "uint8") if is_max else node.wide(0)
    axes = list(range(2, len(shape)))
    if is_global(op, shape):
        if is_max:
            return node.emit("ReduceMax", [data], axes=axes, keepdims=1)
        return node.emit("ReduceSum", [data, lengths(axes)], keepdims=1)
    if data.dtype != "int32":
        # Elements that no window reaches are left over at the end.
        stride, before, after = window_padding(op, shape, node.shape)
        return node.emit("MaxPool", [data], kernel_shape=list(op.kernel), strides=list(stride), pads=[*before, *after])
    name, border = ("Max", INT32_MIN) if is_max else ("Add", 0)
    return pooled(node, op, data, shape, node.shape, border, lambda total, tap: node.emit(name, [total, tap]))
