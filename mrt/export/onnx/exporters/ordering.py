"""The first elements along an axis in their order."""

from __future__ import annotations

from onnx import helper

from mrt.export.onnx.node import Node, Value, exporter, lengths
from mrt.symbol.operators.ordering import TopK
from mrt.symbol.types import normalize_axis


@exporter(TopK)
def first_in_order(op: TopK, node: Node) -> Value:
    """ONNX too has the lower place first of equal ones; its places are int64."""
    data, shape, scope = node.wide(0), node.input_shape(0), node.scope
    count = scope.constant(lengths([op.count(shape)]))
    names = [scope.unique(f"{node.symbol.name}/{kind}") for kind in ("values", "places")]
    attributes = {"axis": normalize_axis(op.axis, len(shape)), "largest": int(not op.is_ascend), "sorted": 1}
    scope.nodes.append(helper.make_node("TopK", [data.name, count.name], names, name=names[0], **attributes))
    return Value(names[0], "int32") if op.gives_values else node.cast(Value(names[1], "int64"), "int32")
