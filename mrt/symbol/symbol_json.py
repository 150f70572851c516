"""What stands in MXNet's symbol JSON, of every version: nodes with attributes as texts, variables' types, outputs."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mrt.errors import GraphError, ModelFileError
from mrt.symbol.operator import parse_attribute
from mrt.symbol.strict_json import parse_json

VARIABLE = "null"
"""The operator of a variable: an input, a parameter or an auxiliary state."""

DTYPE_CODES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "uint8": 3,
    "int32": 4,
    "int8": 5,
    "int64": 6,
    "bool": 7,
    "int16": 8,
    "bfloat16": 12,
}
"""MXNet's number of each dtype."""

_DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}
_UNKNOWN_DTYPE = -1


@dataclass(frozen=True)
class Reference:
    """An output of the node at a place in `nodes`."""

    place: int
    output: int


@dataclass(frozen=True)
class JsonNode:
    """One entry of `nodes`. Its inputs are outputs of earlier nodes."""

    op: str
    name: str
    attributes: dict[str, str]
    inputs: tuple[Reference, ...]

    @property
    def is_variable(self) -> bool:
        return self.op == VARIABLE

    def stated_shape(self) -> tuple[int, ...] | None:
        """The shape that a variable carries as `__shape__`, None if it carries none; ModelFileError for no shape."""
        shape: tuple[int, ...] | None = self._stated("__shape__", tuple[int, ...])
        return shape

    def stated_dtype(self) -> str:
        """The dtype that a variable carries as `__dtype__`, float32 if it carries none or an unknown one."""
        code = self._stated("__dtype__", int)
        if code is None or code == _UNKNOWN_DTYPE:
            return "float32"
        if code not in _DTYPES:
            raise ModelFileError(f"{self.name} has __dtype__ {code}; one of {sorted(_DTYPES)} is needed")
        return _DTYPES[code]

    def _stated(self, key: str, kind: Any) -> Any:
        if key not in self.attributes:
            return None
        try:
            return parse_attribute(self.attributes[key], kind, f"{self.name}.{key}")
        except GraphError as error:
            raise ModelFileError(f"the symbol file is malformed: {error}") from None


@dataclass(frozen=True)
class SymbolJson:
    """A symbol JSON: nodes, each after its inputs; the graph's outputs; the graph's own attributes."""

    nodes: tuple[JsonNode, ...]
    heads: tuple[Reference, ...]
    attributes: dict[str, Any]


def read_symbol_json(text: str) -> SymbolJson:
    """The content of a symbol JSON; ModelFileError where the text is none.

    Nodes may read earlier ones only, so there are no cycles. A variable's name is its own; operators may share one.
    """
    try:
        content = parse_json(text)
    except ModelFileError as error:
        raise ModelFileError(f"the symbol file is no symbol JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelFileError("the symbol file is no symbol JSON: an object is needed at the top")
    nodes = tuple(_read_node(entry, place) for place, entry in enumerate(_list_of(content, "nodes")))
    heads = tuple(_reference(entry, len(nodes), "heads") for entry in _list_of(content, "heads"))
    _check_variables(nodes)
    attributes = content.get("attrs", {})
    return SymbolJson(nodes, heads, attributes if isinstance(attributes, dict) else {})


def _list_of(content: dict[str, Any], key: str) -> list[Any]:
    found = content.get(key)
    if not isinstance(found, list):
        raise ModelFileError(f"the symbol file is no symbol JSON: a list {key} is needed")
    return found


def _read_node(entry: Any, place: int) -> JsonNode:
    where = f"nodes[{place}] of the symbol file"
    if not isinstance(entry, dict):
        raise ModelFileError(f"{where} is {reprlib.repr(entry)}; an object is needed")
    op, name, inputs = entry.get("op"), entry.get("name"), entry.get("inputs", [])
    if not isinstance(op, str) or not isinstance(name, str):
        raise ModelFileError(f"{where} has op {reprlib.repr(op)} and name {reprlib.repr(name)}; two texts are needed")
    where = f"{where} ({reprlib.repr(name)[1:-1]})"
    if not isinstance(inputs, list):
        raise ModelFileError(f"{where} has inputs {reprlib.repr(inputs)}; a list is needed")
    # MXNet 0.x writes the operator's parameters as `param`, and then the user's attributes as `attr`.
    keys = ("param",) if "param" in entry and op != VARIABLE else ("attr", "attrs")
    attributes: dict[str, str] = {}
    for key in keys:
        found = entry.get(key) or {}
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ModelFileError(f"{where} has {key} {reprlib.repr(found)}; texts by name are needed")
        attributes |= found
    return JsonNode(op, name, attributes, tuple(_reference(item, place, f"inputs of {name}") for item in inputs))


def _reference(entry: Any, end: int, where: str) -> Reference:
    """What [node, output] or [node, output, version] names; the node must be one before `end`."""
    is_reference = isinstance(entry, list) and len(entry) in (2, 3) and all(type(item) is int for item in entry)
    if not is_reference or not 0 <= entry[0] < end or entry[1] < 0:
        raise ModelFileError(
            f"{where} of the symbol file name {reprlib.repr(entry)}; [node, output] of an earlier node is needed"
        )
    return Reference(entry[0], entry[1])


def _check_variables(nodes: Iterable[JsonNode]) -> None:
    """ModelFileError where two variables have one name: it would be unknown which array is meant."""
    seen: dict[str, bool] = {}
    for node in nodes:
        if seen.get(node.name, False) or (node.is_variable and node.name in seen):
            raise ModelFileError(f"the symbol file has two nodes called {node.name}; a variable's name must be its own")
        seen[node.name] = node.is_variable
        if node.is_variable and node.inputs:
            raise ModelFileError(f"variable {node.name} of the symbol file has inputs; it can have none")
