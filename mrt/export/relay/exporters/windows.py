"""Pooling and Pad."""

from __future__ import annotations

from mrt.export.lowering import is_global, pooled, window_padding
from mrt.export.relay.exporters.selection import reduced
from mrt.export.relay.expressions import Value
from mrt.export.relay.node import Node, exporter
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.types import INT32_MIN


@exporter(Pad)
def pad(op: Pad, node: Node) -> Value:
    before, after = op.pad_width[::2], op.pad_width[1::2]
    if op.mode == "constant":
        return node.padded(node.wide(0), before, after, int(op.constant_value))
    return node.bordered(node.wide(0), before, after, 0, op.mode)


@exporter(Pooling)
def pooling(op: Pooling, node: Node) -> Value:
    """A window over everything is a reduction; nn.max_pool2d serves the maxima of images, else it is tap by tap."""
    shape, data, is_max = node.input_shape(0), node.wide(0), op.pool_type == "max"
    if is_global(op, shape):
        return reduced(node, "max" if is_max else "sum", data, tuple(range(2, len(shape))))
    if is_max and len(shape) == 4:
        # Elements that no window reaches are left over at the end.
        stride, before, after = window_padding(op, shape, node.shape)
        return node.call(
            "nn.max_pool2d",
            [data],
            node.shape,
            {
                "pool_size": list(op.kernel),
                **({"strides": list(stride)} if max(stride) > 1 else {}),
                "padding": [*before, *after],
            },
        )
    operator, border = ("maximum", INT32_MIN) if is_max else ("add", 0)
    return pooled(node, op, data, shape, node.shape, border, lambda total, tap: node.call(operator, [total, tap]))
