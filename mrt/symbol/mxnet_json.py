"""Graphs as MXNet symbol JSON: MRT's own files, and MXNet's of every version as far as operators are covered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mrt.errors import GraphError, ModelFileError, UnsupportedOperatorError
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.graph import Graph
from mrt.symbol.interval import Array
from mrt.symbol.operator import Operator, find_operator, is_operator, parse_attribute, parse_operator
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.arrangement import UpSampling
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.transform import Concat, Reshape, SliceAxis, Squeeze
from mrt.symbol.symbol import Symbol, apply, variable
from mrt.symbol.types import TensorType, normalize_axis, type_of

FORMAT_VERSION = 1
"""Stands in the graph's attributes of the files that MRT writes."""

_MXNET_VERSION = 10901
_DTYPE_CODES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "uint8": 3,
    "int32": 4,
    "int8": 5,
    "int64": 6,
    "bool": 7,
    "int16": 8,
}
_DTYPES = {code: dtype for dtype, code in _DTYPE_CODES.items()}
_UNKNOWN_DTYPE = -1
_ACTIVATIONS = ("relu", "sigmoid", "tanh", "softrelu", "softsign", "mish")
"""The act_types of Activation, which are operators of the same names."""
_SPLITS = ("SliceChannel", "split")
"""The operators of several outputs that are read, each output as a slice."""
_SHOWN_NAMES = 3


def graph_to_json(graph: Graph) -> str:
    """The graph without its parameters' values; the same text for the same graph.

    Inputs stand first and in order. Variables carry __shape__ and __dtype__ (MXNet's code), inputs also __input__, and
    symbols whose origin is another name carry it as __origin__.
    """
    fed = set(graph.inputs)
    order = [*graph.inputs, *(symbol for symbol in graph.symbols if symbol not in fed)]
    index = {symbol: place for place, symbol in enumerate(order)}
    nodes = ",\n".join(f"  {_line(_node(symbol, index, symbol in fed))}" for symbol in order)
    rest = {
        "arg_nodes": [place for place, symbol in enumerate(order) if symbol.is_variable],
        "node_row_ptr": list(range(len(order) + 1)),
        "heads": [[index[symbol], 0, 0] for symbol in graph.outputs],
        "attrs": {"mxnet_version": ["int", _MXNET_VERSION], "format_version": ["int", FORMAT_VERSION]},
    }
    members = [f' "nodes": [\n{nodes}\n ]', *(f" {_line(key)}: {_line(value)}" for key, value in rest.items())]
    return "{\n" + ",\n".join(members) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _node(symbol: Symbol, index: Mapping[Symbol, int], is_input: bool) -> dict[str, Any]:
    if symbol.is_variable:
        attributes = {"__shape__": str(symbol.shape), "__dtype__": str(_DTYPE_CODES[symbol.dtype])}
        attributes |= {"__input__": "True"} if is_input else {}
    else:
        attributes = {name: str(value) for name, value in symbol.operator.attributes().items()}
        if "num_args" in _ignored(symbol.operator):
            attributes["num_args"] = str(len(symbol.inputs))
    if symbol.origin != symbol.name:
        attributes["__origin__"] = symbol.origin
    node: dict[str, Any] = {"op": symbol.op, "name": symbol.name}
    if attributes:
        node["attrs"] = attributes
    node["inputs"] = [[index[source], 0, 0] for source in symbol.inputs]
    return node


def _ignored(operator: Operator) -> frozenset[str]:
    return getattr(operator, "ignored", frozenset())


def graph_from_json(
    text: str, parameters: Mapping[str, Array], input_types: Mapping[str, TensorType] | None = None
) -> Graph:
    """The graph of an MXNet symbol JSON.

    parameters: arrays by the names of their variables, auxiliary states among them. Every other variable is an input,
    in the file's order, of the type that `input_types` gives for it, else the file. A file that MRT wrote says itself
    which variables are inputs. In other files a result of rank 0 is read as of shape (1,), as MXNet has it.

    Raises ModelFileError where the text is no symbol JSON or a variable's shape is not known,
    UnsupportedOperatorError listing all operators that no record covers, GraphError where an operator does not fit.
    """
    content = _load(text)
    nodes = [_read_node(entry, place) for place, entry in enumerate(_list_of(content, "nodes"))]
    heads = [_reference(entry, len(nodes), "heads") for entry in _list_of(content, "heads")]
    _check_covered(nodes)
    _check_variables(nodes)
    _check_outputs(nodes, heads)
    builder = GraphBuilder(reserved=(node.name for node in nodes))
    source = _Source(parameters, input_types or {}, "format_version" in _format_attributes(content))
    symbols: dict[_Reference, Symbol] = {}
    used = {*heads, *(reference for node in nodes for reference in node.inputs)}
    for place, node in enumerate(nodes):
        if node.op == "null":
            symbols[_Reference(place, 0)] = _read_variable(node, source, builder)
            continue
        inputs = [symbols[reference] for reference in node.inputs]
        if node.op in _SPLITS:
            outputs = sorted(reference.output for reference in used if reference.place == place)
            symbols |= {_Reference(place, k): _read_part(node, k, inputs, builder) for k in outputs}
        elif node.op == UpSampling.op and len(inputs) > 1:
            symbols[_Reference(place, 0)] = _read_joint_up_sampling(node, inputs, builder)
        else:
            symbols[_Reference(place, 0)] = _read_operator(node, source, builder, inputs)
    return builder.graph([symbols[head] for head in heads])


@dataclass(frozen=True)
class _Node:
    """One entry of `nodes`, its attributes as text."""

    op: str
    name: str
    attributes: dict[str, str]
    inputs: list[_Reference]


@dataclass(frozen=True)
class _Reference:
    """An output of the node at a place in `nodes`."""

    place: int
    output: int


@dataclass(frozen=True)
class _Source:
    """What a file is read with: arrays and types by variable name, and whether MRT wrote it."""

    parameters: Mapping[str, Array]
    input_types: Mapping[str, TensorType]
    is_ours: bool


def _load(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ModelFileError(f"the symbol file is no JSON: {error}") from None
    except RecursionError:
        raise ModelFileError("the symbol file is no symbol JSON: it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ModelFileError("the symbol file is no symbol JSON: an object is needed at the top")
    attributes = _format_attributes(content)
    version = attributes.get("format_version")
    if version is not None and version != ["int", FORMAT_VERSION]:
        raise ModelFileError(f"the symbol file has format_version {version}; {FORMAT_VERSION} is needed: update MRT")
    return content


def _format_attributes(content: dict[str, Any]) -> dict[str, Any]:
    attributes = content.get("attrs", {})
    return attributes if isinstance(attributes, dict) else {}


def _list_of(content: dict[str, Any], key: str) -> list[Any]:
    found = content.get(key)
    if not isinstance(found, list):
        raise ModelFileError(f"the symbol file is no symbol JSON: a list {key} is needed")
    return found


def _read_node(entry: Any, place: int) -> _Node:
    where = f"nodes[{place}] of the symbol file"
    if not isinstance(entry, dict):
        raise ModelFileError(f"{where} is {entry!r}; an object is needed")
    op, name, inputs = entry.get("op"), entry.get("name"), entry.get("inputs", [])
    if not isinstance(op, str) or not isinstance(name, str):
        raise ModelFileError(f"{where} has op {op!r} and name {name!r}; two texts are needed")
    if not isinstance(inputs, list):
        raise ModelFileError(f"{where} ({name}) has inputs {inputs!r}; a list is needed")
    # MXNet 0.x writes the operator's parameters as `param`, and then the user's attributes as `attr`.
    keys = ("param",) if "param" in entry and op != "null" else ("attr", "attrs")
    attributes: dict[str, str] = {}
    for key in keys:
        found = entry.get(key) or {}
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ModelFileError(f"{where} ({name}) has {key} {found!r}; texts by name are needed")
        attributes |= found
    return _Node(op, name, attributes, [_reference(item, place, f"inputs of {name}") for item in inputs])


def _reference(entry: Any, end: int, where: str) -> _Reference:
    """What [node, output] or [node, output, version] names; the node must be one before `end`."""
    is_reference = isinstance(entry, list) and len(entry) in (2, 3) and all(type(item) is int for item in entry)
    if not is_reference or not 0 <= entry[0] < end:
        raise ModelFileError(f"{where} of the symbol file name {entry!r}; [node, output] of an earlier node is needed")
    return _Reference(entry[0], entry[1])


def _check_covered(nodes: Iterable[_Node]) -> None:
    """UnsupportedOperatorError listing every operator without a record."""
    missing: dict[str, list[str]] = {}
    for node in nodes:
        kind = _uncovered(node)
        if kind:
            missing.setdefault(kind, []).append(node.name)
    if missing:
        found = "; ".join(
            f"{kind} ({len(names)}: {', '.join(names[:_SHOWN_NAMES])}{', …' if len(names) > _SHOWN_NAMES else ''})"
            for kind, names in sorted(missing.items())
        )
        raise UnsupportedOperatorError(f"operators that are not covered: {found}")


def _uncovered(node: _Node) -> str:
    """What of a node is not covered, "" if it is."""
    kind = node.attributes.get("act_type")
    if node.op == "Activation":
        return "" if kind in _ACTIVATIONS else f"Activation act_type={kind}"
    if node.op == "LeakyReLU":
        return "" if kind is None or kind in LeakyReLU.kinds else f"LeakyReLU act_type={kind}"
    if node.op == UpSampling.op:
        sample_type = node.attributes.get("sample_type", "nearest")
        return "" if sample_type == "nearest" else f"UpSampling sample_type={sample_type}"
    return "" if node.op == "null" or node.op in _SPLITS or is_operator(node.op) else node.op


def _check_variables(nodes: Iterable[_Node]) -> None:
    """ModelFileError where a variable shares its name: it could not be told which array is meant."""
    seen: dict[str, bool] = {}
    for node in nodes:
        is_variable = node.op == "null"
        if seen.get(node.name, False) or (is_variable and node.name in seen):
            raise ModelFileError(f"the symbol file has two nodes called {node.name}; a variable's name must be its own")
        seen[node.name] = is_variable
        if is_variable and node.inputs:
            raise ModelFileError(f"variable {node.name} of the symbol file has inputs; it can have none")


def _check_outputs(nodes: list[_Node], heads: list[_Reference]) -> None:
    """UnsupportedOperatorError where more than the first output of an operator is used (a mask, a variance)."""
    for reference in (*heads, *(source for node in nodes for source in node.inputs)):
        node = nodes[reference.place]
        if reference.output and node.op not in _SPLITS:
            raise UnsupportedOperatorError(
                f"{node.name} ({node.op}): output {reference.output} is used; only 0 is covered"
            )


def _read_variable(node: _Node, source: _Source, builder: GraphBuilder) -> Symbol:
    origin = node.attributes.get("__origin__")
    stated = _stated_type(node, source.is_ours)
    is_input = "__input__" in node.attributes
    value = None if is_input else source.parameters.get(node.name)
    if source.is_ours and value is None and not is_input:
        raise ModelFileError(f"parameter {node.name} is missing; {stated} is needed")
    if value is not None:
        if source.is_ours and stated != type_of(value):
            raise ModelFileError(f"parameter {node.name} is {type_of(value)}; the symbol file says {stated}")
        return builder.parameter(node.name, value, origin)
    needed = source.input_types.get(node.name, stated)
    if needed is None:
        raise ModelFileError(
            f"{node.name} is no parameter, and the symbol file holds no shape for it; give its type with input_types"
        )
    return builder.adopt_input(variable(node.name, needed, origin))


def _stated_type(node: _Node, is_ours: bool) -> TensorType | None:
    """The type that a variable carries, None if it carries none or an incomplete one."""
    if "__shape__" not in node.attributes:
        return None
    try:
        shape = parse_attribute(node.attributes["__shape__"], tuple[int, ...], f"{node.name}.__shape__")
        code = parse_attribute(node.attributes.get("__dtype__", "0"), int, f"{node.name}.__dtype__")
    except GraphError as error:
        raise ModelFileError(f"the symbol file is malformed: {error}") from None
    if code not in _DTYPES and code != _UNKNOWN_DTYPE:
        raise ModelFileError(f"{node.name} has __dtype__ {code}; one of {sorted(_DTYPES)} is needed")
    # MXNet writes lengths that it does not know as 0 or -1.
    if min(shape, default=1) < (0 if is_ours else 1):
        return None
    return TensorType(shape, _DTYPES.get(code, "float32"))


def _read_operator(node: _Node, source: _Source, builder: GraphBuilder, inputs: list[Symbol]) -> Symbol:
    try:
        operator = _operator_of(node)
    except GraphError as error:
        raise GraphError(f"{node.name} ({node.op}): {error}") from None
    name = builder.unique(node.name)
    result = apply(operator, inputs, name, node.attributes.get("__origin__"))
    if result.type.rank or source.is_ours:
        return result
    scalar = builder.apply(operator, inputs, f"{name}_scalar", name)
    return apply(Reshape(shape=(1,)), [scalar], name)


def _operator_of(node: _Node) -> Operator:
    if node.op == "Activation":
        return find_operator(node.attributes["act_type"])()
    return parse_operator(node.op, node.attributes)


def _read_part(node: _Node, place: int, inputs: list[Symbol], builder: GraphBuilder) -> Symbol:
    """Output `place` of a SliceChannel: a slice along its axis, without that axis if squeeze_axis says so."""
    what = f"{node.name} ({node.op})"
    known = {"num_outputs": int, "axis": int, "squeeze_axis": bool}
    try:
        given = {key: parse_attribute(node.attributes[key], known[key], key) for key in known if key in node.attributes}
        (data,) = inputs
        axis = normalize_axis(given.get("axis", 1), data.type.rank)
    except (GraphError, ValueError) as error:
        raise GraphError(f"{what}: {error}") from None
    count = given.get("num_outputs", 0)
    if count < 1 or data.shape[axis] % count or not 0 <= place < count:
        raise GraphError(f"{what}: output {place} of {count} of {data.type} along axis {axis} does not exist")
    length = data.shape[axis] // count
    squeezes = given.get("squeeze_axis", False)
    if squeezes and length != 1:
        raise GraphError(f"{what}: outputs are {length} long along axis {axis}; 1 is needed for squeeze_axis")
    name = f"{node.name}_output{place}"
    part = SliceAxis(axis=axis, begin=place * length, end=(place + 1) * length if place + 1 < count else None)
    if not squeezes:
        return builder.apply(part, [data], name)
    return builder.apply(Squeeze(axis=(axis,)), [builder.apply(part, [data], f"{name}_slice")], name)


def _read_joint_up_sampling(node: _Node, inputs: list[Symbol], builder: GraphBuilder) -> Symbol:
    """UpSampling of several images to the size that the first gets: one after the other as channels, or added."""
    what = f"{node.name} ({node.op})"
    mode = node.attributes.get("multi_input_mode", "concat")
    operator = _operator_of(node)
    if mode not in ("concat", "sum") or not isinstance(operator, UpSampling) or {x.type.rank for x in inputs} != {4}:
        raise GraphError(f"{what}: multi_input_mode is {mode}; concat or sum of images (N, C, H, W) are needed")
    height = inputs[0].shape[2] * operator.scale
    parts = [
        builder.apply(UpSampling(scale=height // x.shape[2]), [x], f"{node.name}_arg{index}")
        for index, x in enumerate(inputs)
    ]
    return builder.apply(Concat(dim=1) if mode == "concat" else AddN(), parts, node.name)
