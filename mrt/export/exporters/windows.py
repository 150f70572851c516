"""Pooling and Pad."""

from __future__ import annotations

from functools import reduce

from mrt.export.node import Node, Value, exporter, lengths
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
    shape, windows = node.input_shape(0), op.windows(node.input_shape(0)[2:])
    is_max = op.pool_type == "max"
    data = node.input_as(0, "int8", "uint8") if is_max else node.wide(0)
    axes = list(range(2, len(shape)))
    if all(len(found) == 1 and found[0][:2] == (0, n) for found, n in zip(windows, shape[2:], strict=True)):
        if is_max:
            return node.emit("ReduceMax", [data], axes=axes, keepdims=1)
        return node.emit("ReduceSum", [data, lengths(axes)], keepdims=1)
    stride = op.stride or (1,) * len(axes)
    before, _ = op.pads(len(axes))
    # What the last window needs; the elements that no window reaches are negative padding.
    needed = [(m - 1) * s + k for m, s, k in zip(node.shape[2:], stride, op.kernel, strict=True)]
    after = [max(m - n - b, 0) for m, n, b in zip(needed, shape[2:], before, strict=True)]
    if data.dtype != "int32":
        return node.emit("MaxPool", [data], kernel_shape=list(op.kernel), strides=list(stride), pads=[*before, *after])
    result = node.padded(data, (0, 0, *before), (0, 0, *after), INT32_MIN if is_max else 0)
    grown = [*shape[:2], *(n + b + a for n, b, a in zip(shape[2:], before, after, strict=True))]
    for axis, kernel, step in zip(axes, op.kernel, stride, strict=True):
        result = _pooled(node, result, grown, axis, kernel, step, "Max" if is_max else "Add")
        grown[axis] = node.shape[axis]
    return result


def _pooled(node: Node, data: Value, shape: list[int], axis: int, kernel: int, step: int, op: str) -> Value:
    """`op` over every window of one axis of data of `shape`: windows are products of intervals."""
    span = (node.shape[axis] - 1) * step + 1
    whole = [slice(None)] * len(shape)
    taps = (
        node.sliced(data, [*whole[:axis], slice(tap, tap + span, step), *whole[axis + 1 :]], shape)
        for tap in range(kernel)
    )
    return reduce(lambda total, tap: node.emit(op, [total, tap]), taps)
