"""Telling models that compute with integers alone, such as MRT exports, from those whose integers stand for floats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from mrt.frontend.onnx.control_flow import graphs_of, names_read

_INTEGERS = frozenset({"UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "UINT32", "UINT64", "BOOL"})
_TO_FLOAT = frozenset({"DequantizeLinear", "DynamicQuantizeLinear"})
"""Operators whose result is a float or real numbers' integers, whatever is said of types."""
_GENERATING = ("value_float", "value_floats")


def holds_integers_alone(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> bool:
    """Whether no input, initializer, constant or cast of `nodes`, those that an output needs, is a float.

    Operators give a float where they read one, so that no value is one then. What graphs within nodes hold counts.
    """
    read = {value.name for value in graph.output}.union(*map(names_read, nodes))
    types = [tensor.data_type for tensor in graph.initializer if tensor.name in read]
    types += [value.type.tensor_type.elem_type for value in graph.input if value.name in read]
    types += [value.type.tensor_type.elem_type for value in graph.output]
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node.op_type in _TO_FLOAT:
            return False
        types += _types_of(node)
        for inner in graphs_of(node):
            types += [tensor.data_type for tensor in inner.initializer]
            pending += inner.node
    return all(_name(kind) in _INTEGERS for kind in types)


def _types_of(node: onnx.NodeProto) -> Iterator[int]:
    """The data types that a node's attributes state."""
    for attribute in node.attribute:
        if attribute.name in _GENERATING:
            yield onnx.TensorProto.FLOAT
        elif attribute.type == onnx.AttributeProto.TENSOR:
            yield attribute.t.data_type
        elif node.op_type == "Cast" and attribute.name == "to":
            yield attribute.i


def _name(kind: int) -> str:
    return onnx.TensorProto.DataType.Name(kind) if kind in onnx.TensorProto.DataType.values() else ""
