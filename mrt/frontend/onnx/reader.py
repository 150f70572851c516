"""Reading an ONNX model into a float Graph: inputs, constants, then node by node through the converters."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import onnx

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx.constants import ALWAYS_KNOWN, MOVING, evaluate_node, folds, is_standard
from mrt.frontend.onnx.control_flow import (
    ControlFlow,
    Item,
    deciders,
    holds_graphs,
    live_nodes,
    names_made,
    names_read,
)
from mrt.frontend.onnx.converters.quantization import quantized_form, scaled_form
from mrt.frontend.onnx.dynamic_quantization import with_static_scales
from mrt.frontend.onnx.files import read_model
from mrt.frontend.onnx.inlining import without_functions
from mrt.frontend.onnx.integer_models import holds_integers_alone
from mrt.frontend.onnx.node import Node, Scope, Value, find_converter
from mrt.frontend.shared.converting import converted
from mrt.frontend.shared.inputs import ReadOptions, StatedInput, fixed_inputs
from mrt.frontend.shared.quantized import QuantizedConstant, holds_quantized
from mrt.frontend.shared.refusals import list_uncovered
from mrt.frontend.shared.split import FileOperator, read_with_split
from mrt.symbol import Array, Graph, Symbol, TensorType
from mrt.symbol.operators.normalization import Identity

OPSETS = range(9, 29)
"""Opset versions that are read."""

_INPUT_DTYPES = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float32",
    onnx.TensorProto.BFLOAT16: "float32",
    onnx.TensorProto.DOUBLE: "float32",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.BOOL: "bool",
}


def read_graph(model: str | os.PathLike[str] | onnx.ModelProto, options: ReadOptions) -> Graph:
    """The float graph of an ONNX model; raises as from_onnx does."""
    proto, folder, title = read_model(model)
    opset = _opset(proto, title)
    graph = without_functions(proto, title).graph
    if graph.sparse_initializer:
        names = ", ".join(sparse.values.name for sparse in graph.sparse_initializer)
        raise GraphError(f"{title} has sparse initializers, which are not read: {names}; store them densely")
    outputs = [output.name for output in graph.output]
    operators = [_described(node) for node in live_nodes(graph, outputs)]

    def read(wanted: Sequence[str]) -> Graph:
        nodes, notes = with_static_scales([_in_default_domain(node) for node in live_nodes(graph, wanted)], wanted)
        names = _names(graph)
        scope = Scope(names | names_made(graph), opset, folder, holds_integers_alone(graph, nodes))
        constants = {*options.values, *(tensor.name for tensor in graph.initializer)}
        uncovered = _uncovered(nodes, constants, scope.is_exact, _real_inputs(graph))
        if uncovered:
            raise UnsupportedOperatorError(list_uncovered(title, uncovered, _ADVICE, operators, outputs))
        found = _read(graph, nodes, wanted, scope, ControlFlow(scope, names, title), options)
        return replace(found, notes=(*found.notes, *notes)) if notes else found

    return read_with_split(read, operators, outputs, options.split)


_ADVICE = "replace them before exporting, or cut the model before them"


def _read(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    scope: Scope,
    flow: ControlFlow,
    options: ReadOptions,
) -> Graph:
    """The graph of these outputs, which need just these nodes."""
    _read_inputs(graph, scope, options)
    used = set(outputs).union(*map(names_read, nodes))
    _read_initializers(graph, used, scope)
    _read_nodes(nodes, scope, used, flow)
    read = scope.builder.graph([_output(name, scope) for name in outputs])
    return replace(read, other_names={node.name: tuple(filter(None, node.output)) for node in nodes if node.name})


def _opset(model: onnx.ModelProto, title: str) -> int:
    versions = [int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if len(set(versions)) != 1 or versions[0] not in OPSETS:
        found = ", ".join(map(str, versions)) or "none"
        raise GraphError(
            f"{title} is of opset {found}; {OPSETS[0]} to {OPSETS[-1]} are read; "
            "export it so, or convert it with onnx.version_converter"
        )
    return versions[0]


def _names(graph: onnx.GraphProto) -> set[str]:
    """All names of values; GraphError where two values share one."""
    initialized = [tensor.name for tensor in graph.initializer]
    known = set(initialized)
    given = [value.name for value in graph.input if value.name not in known]
    computed = [name for node in graph.node for name in node.output if name]
    names: set[str] = set()
    for name in (*initialized, *given, *computed):
        if name in names:
            raise GraphError(f"two values of the model are called {name}; names must be unique")
        names.add(name)
    return names


def _in_default_domain(node: onnx.NodeProto) -> onnx.NodeProto:
    """ONNX Runtime's own QuantizeLinear and DequantizeLinear are ONNX's, for integers that old opsets lack."""
    if node.domain != "com.microsoft" or node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.domain = ""
    return copy


def _described(node: onnx.NodeProto) -> FileOperator:
    kind = node.op_type if is_standard(node) else f"{node.domain}.{node.op_type}"
    name = next(filter(None, node.output), node.name)
    return FileOperator(name, kind, tuple(filter(None, names_read(node))), tuple(filter(None, node.output)))


def _real_inputs(graph: onnx.GraphProto) -> set[str]:
    return {value.name for value in graph.input if _INPUT_DTYPES.get(value.type.tensor_type.elem_type) == "float32"}


def _uncovered(
    nodes: Sequence[onnx.NodeProto], known: Iterable[str], is_exact: bool, real: Collection[str]
) -> dict[str, list[str]]:
    """Every operator that is not covered, with the names of its nodes. real: values that are not known, real numbers.

    Whether a node is covered may depend on its inputs: many operators are only where no input depends on the data.
    """
    known = {"", *known}
    uncovered: dict[str, list[str]] = {}
    for node in nodes:
        if holds_graphs(node):
            # What is inside is seen where it is put in place: until then its results may be anything.
            known.update(node.output)
            given = deciders(node, nodes, known, real)
            if given:
                kind = f"{node.op_type} decided by {', '.join(given)}"
                uncovered.setdefault(kind, []).append(_described(node).name)
        elif folds(node, all(name in known for name in node.input)):
            known.update(node.output)
        elif find_converter(node, is_exact) is None:
            described = _described(node)
            uncovered.setdefault(described.kind, []).append(described.name)
    return uncovered


def _read_inputs(graph: onnx.GraphProto, scope: Scope, options: ReadOptions) -> None:
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in initialized]
    stated = [_stated_input(value) for value in inputs]
    for value, fixed in zip(inputs, fixed_inputs(stated, options), strict=True):
        if fixed.value is None:
            scope.input(value.name, TensorType(fixed.shape, _INPUT_DTYPES[value.type.tensor_type.elem_type]))
        else:
            scope.define(value.name, fixed.value)


def _stated_input(value: onnx.ValueInfoProto) -> StatedInput:
    """An input as the file states it; GraphError where it is none that a graph has."""
    if not value.type.HasField("tensor_type"):
        raise GraphError(f"input {value.name} is no tensor; only tensors are read")
    tensor = value.type.tensor_type
    if tensor.elem_type not in _INPUT_DTYPES:
        known = onnx.TensorProto.DataType.values()
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type) if tensor.elem_type in known else "of an unknown type"
        raise GraphError(f"input {value.name} is {kind}; a float, signed integer, uint8 or bool is needed")
    kind = onnx.TensorProto.DataType.Name(tensor.elem_type)
    dtype = _VALUE_DTYPES.get(kind, kind.lower())
    if not tensor.HasField("shape"):
        return StatedInput(value.name, None, dtype)
    return StatedInput(value.name, tuple(_size(dim) for dim in tensor.shape.dim), dtype)


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.dim_value > 0:
        return int(dim.dim_value)
    name = dim.dim_param
    if not isinstance(name, str):  # bytes of a damaged file that are no text
        return None
    return name if name not in _NO_SYMBOLS and name.isprintable() else None


_VALUE_DTYPES = {"FLOAT": "float32", "DOUBLE": "float64", "BFLOAT16": "float32"}
_NO_SYMBOLS = ("", "?", "None", "-1")
"""What exporters call sizes that have nothing to do with each other."""


def _read_initializers(graph: onnx.GraphProto, used: Collection[str], scope: Scope) -> None:
    for tensor in graph.initializer:
        if tensor.name in used:
            scope.define(tensor.name, scope.given(tensor))


def _read_nodes(nodes: Sequence[onnx.NodeProto], scope: Scope, used: set[str], flow: ControlFlow) -> None:
    """Reads nodes in order, and in the place of control flow the nodes that it stands for."""
    pending: list[Item] = list(reversed(nodes))
    while pending:
        item = pending.pop()
        parts = flow.unfolded(item)
        if parts is None:
            _read_node(item, scope, used)
            continue
        parts = [_in_default_domain(part) if isinstance(part, onnx.NodeProto) else part for part in parts]
        inner = [part for part in parts if isinstance(part, onnx.NodeProto)]
        read = set().union(*map(names_read, inner))
        uncovered = _uncovered(inner, filter(scope.is_known, read), scope.is_exact, read)
        if uncovered:
            raise UnsupportedOperatorError(list_uncovered(flow.title, uncovered, _ADVICE))
        used |= read
        pending += reversed(parts)


def _read_node(proto: onnx.NodeProto, scope: Scope, used: set[str]) -> None:
    """Defines the outputs of a node: arrays where no input depends on the data, else what its converter makes."""
    node = Node(next(filter(None, proto.output), ""), scope, proto)
    for name in proto.input:
        if name and name not in scope:
            raise GraphError(f"{node.label}: reads {name}, which no input, initializer or earlier node gives")
    inputs = [scope.value(name) if name else None for name in proto.input]
    arrays = [value for value in inputs if not isinstance(value, Symbol)]
    if proto.op_type not in ALWAYS_KNOWN and folds(proto, len(arrays) == len(inputs)):
        for name, array in evaluate_node(proto, arrays, scope.opset, scope.budget).items():
            scope.define(name, array)
            scope.keep_quantized(array, _quantized_form(node, arrays))
        return
    convert = find_converter(proto, scope.is_exact)
    if convert is None:
        raise UnsupportedOperatorError(f"{node.label}: the operator is not covered")
    result = converted(node, convert)
    results = result if isinstance(result, tuple) else (result,)
    for name in proto.output[len(results) :]:
        if name in used:
            raise node.unsupported(f"output {name}", "used", f"a node of which only output {proto.output[0]} is used")
    for index, value in enumerate(results):
        if proto.output[index]:
            scope.define(proto.output[index], _named(value, node, index))


def _quantized_form(node: Node, inputs: Sequence[Array | None]) -> QuantizedConstant | None:
    """The quantized constant that a node of constants gives: one that is dequantized, or moved."""
    if node.operator == "DequantizeLinear":
        return quantized_form(node)
    if node.operator in ("Mul", "Div"):
        return scaled_form(node, inputs)
    first = inputs[0] if inputs else None
    constant = None if first is None or node.operator not in MOVING else node.scope.quantized(first)
    if constant is None:
        return None
    return constant.moved(
        lambda array: evaluate_node(node.proto, [array, *inputs[1:]], node.opset, node.scope.budget)[node.name]
    )


def _named(value: Value, node: Node, index: int) -> Value:
    """The value under its output's own name: where the converter found nothing to do, as a copy."""
    if not isinstance(value, Symbol) or value.name == node.proto.output[index]:
        return value
    return node.apply(Identity(), [value], output=index)


def _output(name: str, scope: Scope) -> Symbol:
    if name not in scope:
        raise GraphError(f"output {name} is given by no node, input or initializer; the model is malformed")
    symbol = scope.symbol(name)
    return scope.real(symbol) if holds_quantized(symbol) else symbol
