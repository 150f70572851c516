"""Reading an MXNet symbol JSON with its parameters into a float Graph: variables, then node by node."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mrt.errors import GraphError, ModelFileError, UnsupportedOperatorError
from mrt.frontend.mxnet.converters.heads import HEADS
from mrt.frontend.mxnet.node import Node, Scope, Value, find_converter
from mrt.frontend.mxnet.params import read_params, without_prefixes
from mrt.frontend.shared.channels_first import channels_first
from mrt.frontend.shared.inputs import ReadOptions, Shapes, StatedInput, Values, fixed_inputs, read_options
from mrt.frontend.shared.refusals import list_uncovered
from mrt.frontend.shared.split import FileOperator, read_with_split
from mrt.messages import short
from mrt.paths import as_path
from mrt.symbol import Array, Graph, Symbol, TensorType
from mrt.symbol.arrays import as_array
from mrt.symbol.operator import find_operator, is_operator
from mrt.symbol.operators.normalization import Identity
from mrt.symbol.symbol_json import JsonNode, Reference, SymbolJson, read_symbol_json
from mrt.symbol.types import FLOAT_DTYPES

_SYMBOL_SUFFIX = "-symbol.json"
EXPORTED = "mrt.format_version"
"""The attribute of files that MRT exported, whose float64 hold integers."""
_EXPORTED_NODE = "__mrt_format_version__"
"""The attribute of their outputs, which MXNet keeps."""
_PARAMETER_ROLES = frozenset({"weight", "bias", "gamma", "beta", "moving_mean", "moving_var"})
"""Inputs of records that are parameters, never data."""
_USER_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope")
"""What users note on nodes, at the end of a key. MXNet 1.x puts these between double underscores."""


def from_mxnet(
    symbol: str | os.PathLike[str],
    params: str | os.PathLike[str] | bytes | Mapping[str, Array],
    shapes: Shapes | None = None,
    batch: int = 1,
    keep_float64: bool | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
) -> Graph:
    """The float graph of an MXNet model of any version, without MXNet.

    symbol: the path of a symbol JSON, or its text. params: the path of a `.params` file, its content, or arrays by
    name, with or without "arg:" and "aux:". shapes: the shapes of inputs by name; where none is given the symbol
    file's own is taken, with `batch` for a first length that it does not know. values, split: as `load_model` takes
    them.

    Inputs are the variables that have no array, in the file's order, labels of training heads left out. Floats become
    float32; with keep_float64 variables of float64 stay it, as networks need that compute with integers of up to 53
    bits. None: they stay it in a file that MRT exported. Symbols are called as the file's nodes; what no output needs
    is dropped.

    Raises ModelFileError where a file is missing or malformed, a parameter is missing or of another shape than the
    symbol file says; UnsupportedOperatorError where operators, or attributes of an operator, are not covered
    (operators all at once); GraphError where an input's shape is not known, or an operator does not fit.
    """
    return _read(symbol, params, read_options(batch, shapes, values, split), keep_float64)


def _read(
    symbol: str | os.PathLike[str],
    params: str | os.PathLike[str] | bytes | Mapping[str, Array],
    options: ReadOptions,
    keep_float64: bool | None,
) -> Graph:
    text, title = _text_of(symbol)
    content = read_symbol_json(text)
    if "format_version" in content.attributes:
        raise ModelFileError(f"{title} was written by MRT; mrt.load reads the folder that it lies in")
    _check_names(content, title)
    operators = _described(content)
    return read_with_split(
        lambda heads: _read_heads(replace(content, heads=tuple(heads)), title, params, options, keep_float64),
        operators,
        content.heads,
        options.split,
    )


def _described(content: SymbolJson) -> list[FileOperator]:
    live = _live_nodes(content)
    used = _used(content, live)
    return [
        FileOperator(node.name, node.op, _needed(node), [Reference(place, output) for output in used[place]])
        for place, node in ((place, content.nodes[place]) for place in live)
        if not node.is_variable
    ]


def _read_heads(
    content: SymbolJson,
    title: str,
    params: str | os.PathLike[str] | bytes | Mapping[str, Array],
    options: ReadOptions,
    keep_float64: bool | None,
) -> Graph:
    live = _live_nodes(content)
    _check_covered(content, live, title)
    is_exact = _is_exported(content) if keep_float64 is None else keep_float64
    scope = Scope((node.name for node in content.nodes), _arrays_of(params), is_exact)
    _read_variables(content, live, scope, options)
    used = _used(content, live)
    for place in live:
        if not content.nodes[place].is_variable:
            _read_node(place, content.nodes[place], used[place], scope)
    outputs = [_output(head, content.nodes[head.place], scope) for head in content.heads]
    return channels_first(scope.builder.graph(outputs))


def _is_exported(content: SymbolJson) -> bool:
    return EXPORTED in content.attributes or any(_EXPORTED_NODE in node.attributes for node in content.nodes)


def read_checkpoint(path: str | os.PathLike[str], options: ReadOptions) -> Graph:
    """The graph of NAME-symbol.json, with the parameters of the NAME-NNNN.params beside it of the highest number."""
    path = as_path(path, "path", to_read=True)
    name = path.name.removesuffix(_SYMBOL_SUFFIX)
    if name == path.name:
        raise ModelFileError(f"{path} is an MXNet symbol file, but not called NAME{_SYMBOL_SUFFIX}; use mrt.from_mxnet")
    numbered = re.compile(rf"{re.escape(name)}-(\d+)\.params")
    found = {
        int(match[1]): entry
        for entry in sorted(path.parent.iterdir())
        if (match := numbered.fullmatch(entry.name)) is not None
    }
    if not found:
        raise ModelFileError(f"{path}: no parameters called {name}-0000.params (or another number) lie beside it")
    return _read(path, found[max(found)], options, None)


def _text_of(symbol: str | os.PathLike[str]) -> tuple[str, str]:
    """The text of a symbol JSON, and what to call it in errors."""
    if isinstance(symbol, str) and symbol.lstrip()[:1] in ("{", "["):
        return symbol, "the symbol JSON"
    try:
        return _content_of(symbol, "symbol JSON").decode("utf-8-sig"), str(symbol)
    except UnicodeDecodeError:
        raise ModelFileError(f"{symbol} is no symbol JSON: it is no UTF-8 text") from None


def _arrays_of(params: str | os.PathLike[str] | bytes | Mapping[str, Array]) -> Mapping[str, Array]:
    if isinstance(params, Mapping):
        if not all(isinstance(name, str) for name in params):
            raise ModelFileError(f"params has the keys {short([*params])}; arrays by name are needed")
        plain = without_prefixes([*params], "params")
        return {name: as_array(array, f"params: {name}") for name, array in zip(plain, params.values(), strict=True)}
    if isinstance(params, bytes):
        return read_params(params, "the parameter file")
    return read_params(_content_of(params, "parameter file"), str(params))


def _content_of(path: str | os.PathLike[str], kind: str) -> bytes:
    file = as_path(path, kind, to_read=True)
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{str(file)!r} cannot be read: {error.strerror}; an MXNet {kind} is needed") from None


def _check_names(content: SymbolJson, title: str) -> None:
    """ModelFileError where a name is no text on one line that can be shown and stored."""
    for node in content.nodes:
        for word in (node.op, node.name):
            if not word or not word.isprintable():
                raise ModelFileError(f"{title} holds the name {word[:40]!r}; names of printable characters are needed")


def _live_nodes(content: SymbolJson) -> list[int]:
    """The places of the nodes that an output needs, in order. A training head needs its data alone."""
    live: set[int] = set()
    pending = [head.place for head in content.heads]
    while pending:
        place = pending.pop()
        if place not in live:
            live.add(place)
            pending += [source.place for source in _needed(content.nodes[place])]
    return sorted(live)


def _needed(node: JsonNode) -> tuple[Reference, ...]:
    return node.inputs[:1] if node.op in HEADS else node.inputs


def _check_covered(content: SymbolJson, live: Sequence[int], title: str) -> None:
    """UnsupportedOperatorError listing every operator without a converter."""
    uncovered: dict[str, list[str]] = {}
    for node in (content.nodes[place] for place in live):
        if not node.is_variable and find_converter(node.op) is None:
            uncovered.setdefault(node.op, []).append(node.name)
    if uncovered:
        advice = "replace them, or cut the network before them with get_internals"
        raise UnsupportedOperatorError(list_uncovered(title, uncovered, advice, _described(content), content.heads))


def _read_variables(content: SymbolJson, live: Sequence[int], scope: Scope, options: ReadOptions) -> None:
    roles = _roles(content, live)
    variables = [(place, content.nodes[place]) for place in live if content.nodes[place].is_variable]
    named = {node.name for node in content.nodes if node.is_variable}
    inputs = []
    for place, node in variables:
        if node.name in scope.parameters:
            _check_parameter(node, scope.parameters[node.name], options.shapes)
        elif place in roles and node.name not in options.shapes:
            raise ModelFileError(
                f"parameter {node.name}, the {roles[place]}, is missing; it must stand in the parameter file"
            )
        else:
            inputs.append(_stated_input(node, scope, options))
    names = {stated.name for stated in inputs}
    # Shapes may be given for parameters and labels too, as MXNet's own binding takes them.
    others = {name for name in options.shapes if name in named - names}
    shapes = {name: shape for name, shape in options.shapes.items() if name not in others}
    fixed = {item.name: item for item in fixed_inputs(inputs, replace(options, shapes=shapes))}
    for place, node in variables:
        if node.name not in fixed:
            scope.define(Reference(place, 0), scope.parameters[node.name], node.name)
            continue
        found, stated = fixed[node.name], node.stated_dtype()
        dtype = scope.float_dtype(stated) if stated in FLOAT_DTYPES | {"bfloat16"} else stated
        if found.value is None:
            scope.input(Reference(place, 0), node.name, TensorType(found.shape, dtype))
        else:
            scope.define(Reference(place, 0), found.value, node.name)


def _stated_input(node: JsonNode, scope: Scope, options: ReadOptions) -> StatedInput:
    """What the symbol file says of an input; MXNet writes lengths that it does not know as 0 or -1.

    A shape that is given holds whatever the file says: there it is what the network was once run with.
    """
    stated, dtype = node.stated_shape(), node.stated_dtype()
    if stated and min(stated) < -1:
        raise ModelFileError(f"{node.name} has __shape__ {stated}; lengths are needed")
    is_given = node.name in options.shapes or node.name in options.values
    if not stated and not is_given:
        raise GraphError(
            f"{node.name} has no array in the parameter file, and no shape in the symbol file; "
            f"give it by --shape {node.name}=1,3,224,224 (or model.shapes, or shapes= in Python) with its own sizes"
        )
    sizes = tuple(size if size > 0 else None for size in stated) if stated and not is_given else None
    return StatedInput(node.name, sizes, scope.float_dtype(dtype) if dtype == "bfloat16" else dtype)


def _roles(content: SymbolJson, live: Sequence[int]) -> dict[int, str]:
    """What each variable that can only be a parameter is, such as "weight of conv0"."""
    roles: dict[int, str] = {}
    for place in live:
        node = content.nodes[place]
        names = find_operator(node.op).input_names if is_operator(node.op) else ()
        for source, role in zip(node.inputs, names, strict=False):
            if role in _PARAMETER_ROLES and content.nodes[source.place].is_variable:
                roles.setdefault(source.place, f"{role} of {node.name}")
    return roles


def _check_parameter(node: JsonNode, array: Array, shapes: Shapes) -> None:
    """ModelFileError where a parameter has not the shape that is given for it or that the symbol file says."""
    if node.name in shapes and tuple(shapes[node.name]) != array.shape:
        raise ModelFileError(
            f"parameter {node.name} has shape {array.shape}; {tuple(shapes[node.name])} is given for it"
        )
    stated = node.stated_shape()
    if not stated:
        return
    # MXNet writes lengths that it does not know as 0 or -1.
    fits = len(stated) == array.ndim and all(
        said < 1 or said == length for said, length in zip(stated, array.shape, strict=True)
    )
    if not fits:
        raise ModelFileError(f"parameter {node.name} has shape {array.shape}; the symbol file says {stated}")


def _used(content: SymbolJson, live: Sequence[int]) -> dict[int, list[int]]:
    """The outputs of each live node that are read, in order."""
    found: dict[int, set[int]] = {place: set() for place in live}
    read = (source for place in live for source in _needed(content.nodes[place]))
    for reference in (*content.heads, *read):
        found[reference.place].add(reference.output)
    return {place: sorted(outputs) for place, outputs in found.items()}


def _read_node(place: int, entry: JsonNode, used: Sequence[int], scope: Scope) -> None:
    """Defines the outputs of a node that are in use."""
    node = Node(entry.name, scope, entry, _operator_attributes(entry), used)
    convert = find_converter(entry.op)
    if convert is None:
        raise UnsupportedOperatorError(f"{node.label}: the operator is not covered")
    result = convert(node)
    values = result if isinstance(result, Mapping) else {0: result}
    for output in used:
        if output not in values:
            raise node.unsupported(f"output {output}", "used", "a node of which only output 0 is used")
    for output, value in values.items():
        suffix = f"output{output}" if isinstance(result, Mapping) else ""
        scope.define(Reference(place, output), _own(value, node, suffix), entry.name)


def _operator_attributes(node: JsonNode) -> dict[str, str]:
    """Those of the operator itself. Of a key between double underscores MXNet 1.x knows that it is none."""
    return {
        key: text
        for key, text in node.attributes.items()
        if not key.strip("_").endswith(_USER_KEYS) and not (key.startswith("__") and key.endswith("__"))
    }


def _own(value: Value, node: Node, suffix: str) -> Value:
    """The value as one of the node: where the converter gave what it read, since there was nothing to do, a copy."""
    if not isinstance(value, Symbol):
        return value
    inputs = [node.scope.value(source) for source in node.json.inputs]
    is_read = value.is_variable or any(value is read for read in inputs)
    return node.apply(Identity(), [value], suffix) if is_read else value


def _output(reference: Reference, node: JsonNode, scope: Scope) -> Symbol:
    if scope.value(reference) is None:
        raise ModelFileError(
            f"output {reference.output} of {node.name} is a head of the symbol file; there is none but 0"
        )
    return scope.symbol(reference)
