"""Operators that move, repeat or join elements; Relay has them for every dtype."""

from __future__ import annotations

from math import prod

from mrt.export.arrangement import ARRANGING
from mrt.export.relay.expressions import Value
from mrt.export.relay.node import Node, exporter
from mrt.symbol.operators.arrangement import Repeat, Tile, UpSampling
from mrt.symbol.operators.transform import Concat
from mrt.symbol.types import normalize_axis

for _records, _write in ARRANGING.items():
    exporter(*_records)(_write)


@exporter(Concat)
def concat(op: Concat, node: Node) -> Value:
    parts = [node.input(index) for index in range(node.input_count)]
    if len({part.dtype for part in parts}) > 1:
        parts = [node.wide(index) for index in range(node.input_count)]
    return node.concatenated(parts, normalize_axis(op.dim, len(node.shape)))


@exporter(Tile)
def tile(op: Tile, node: Node) -> Value:
    shape, reps = op.aligned(node.input_shape(0))
    return node.call("tile", [node.reshaped(node.input(0), shape)], node.shape, {"reps": list(reps)})


@exporter(Repeat)
def repeat(op: Repeat, node: Node) -> Value:
    data = node.input(0)
    if op.axis is None:
        data = node.reshaped(data, (prod(data.shape),))
    return repeated(node, data, normalize_axis(op.axis or 0, len(data.shape)), op.repeats)


@exporter(UpSampling)
def up_sampling(op: UpSampling, node: Node) -> Value:
    """Rows and columns repeated: the scales of nn.upsampling are floats."""
    return repeated(node, repeated(node, node.input(0), 2, op.scale), 3, op.scale)


def repeated(node: Node, data: Value, axis: int, times: int) -> Value:
    shape = [n * times if place == axis else n for place, n in enumerate(data.shape)]
    return node.call("repeat", [data], shape, {"repeats": times, "axis": axis})
