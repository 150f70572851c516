"""Operators that move, repeat or join elements; ONNX has them for every dtype."""

from __future__ import annotations

import numpy as np

from mrt.export.arrangement import ARRANGING
from mrt.export.onnx.node import Node, Value, exporter, lengths
from mrt.symbol.operators.arrangement import Repeat, Tile, UpSampling
from mrt.symbol.operators.transform import Concat
from mrt.symbol.types import normalize_axis

for _records, _write in ARRANGING.items():
    exporter(*_records)(_write)


@exporter(Concat)
def concat(op: Concat, node: Node) -> Value:
    parts = [node.input(index) for index in range(node.input_count)]
    return node.emit("Concat", parts, axis=normalize_axis(op.dim, len(node.shape)))


@exporter(Tile)
def tile(op: Tile, node: Node) -> Value:
    shape, reps = op.aligned(node.input_shape(0))
    data = node.input(0) if shape == node.input_shape(0) else node.reshaped(node.input(0), shape)
    return node.emit("Tile", [data, lengths(reps)])


@exporter(Repeat)
def repeat(op: Repeat, node: Node) -> Value:
    data, shape = node.input(0), node.input_shape(0)
    if op.axis is None:
        shape = (int(np.prod(shape)),)
        data = node.reshaped(data, shape)
    axis = normalize_axis(op.axis or 0, len(shape))
    return _repeated(node, data, axis, shape[axis], op.repeats)


@exporter(UpSampling)
def up_sampling(op: UpSampling, node: Node) -> Value:
    *_, height, width = node.input_shape(0)
    return _repeated(node, _repeated(node, node.input(0), 2, height, op.scale), 3, width, op.scale)


def _repeated(node: Node, data: Value, axis: int, length: int, times: int) -> Value:
    return node.emit("Gather", [data, np.repeat(lengths(range(length)), times)], axis=axis)
