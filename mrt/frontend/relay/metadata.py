"""The metadata section of a Relay text, which holds the constants and attributes that have no form in the code."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from mrt.errors import ModelFileError
from mrt.frontend.relay.syntax import AttributeValue, MetaReference
from mrt.frontend.relay.tensors import parse_tensor
from mrt.symbol import Array

_CONSTANT = "relay.Constant"

_ATTRIBUTES = frozenset({"relay.attrs.ScatterElementsAttrs"})
"""Attributes that are read: every one of theirs is an object. In others the text does not tell objects from numbers."""


class Metadata:
    """The constants of a text, each decoded when it is asked for, once.

    The section is TVM's JSON graph: node `root` is a Map from type keys to Arrays of nodes. A constant names its place
    in the list b64ndarrays, attributes name their nodes.
    """

    def __init__(self, section: str | None, title: str) -> None:
        """`section`: what follows #[metadata], None where nothing does; `title`: what errors call the text."""
        self._title = title
        self._given = section is not None
        self._read: dict[int, Array] = {}
        self._nodes: list[Any] = []
        self._lists: dict[str, list[int]] = {}
        self._places: list[int] = []
        self._tensors: list[Any] = []
        if section is not None:
            content = self._parsed(section)
            try:
                self._nodes = list(content["nodes"])
                self._lists = self._entries(content)
                self._places = [int(self._nodes[node]["attrs"]["data"]) for node in self._lists.get(_CONSTANT, [])]
                self._tensors = list(content["b64ndarrays"]) if self._places else []
            except (KeyError, IndexError, TypeError, ValueError):
                raise self._error("its metadata section is not one that TVM writes") from None

    def constant(self, reference: MetaReference) -> Array:
        """The array of meta[relay.Constant][index]; ModelFileError where it is absent or malformed."""
        place = f"meta[{reference.key}][{reference.index}], line {reference.line}"
        if not self._given:
            raise self._error(f"{place}: there is no metadata section; print with astext(show_meta_data=True)")
        if reference.key != _CONSTANT:
            raise self._error(f"{place}: only {_CONSTANT} is read from the metadata")
        if not 0 <= reference.index < len(self._places):
            raise self._error(f"{place}: the metadata section holds {len(self._places)} constants")
        number = self._places[reference.index]
        if number not in self._read:
            self._read[number] = self._decoded(number, place)
        return self._read[number]

    def attributes(self, reference: MetaReference) -> dict[str, AttributeValue]:
        """The attributes of meta[relay.attrs.…][index]; ModelFileError where they are absent, or of a kind not read."""
        place = f"meta[{reference.key}][{reference.index}], line {reference.line}"
        if reference.key not in _ATTRIBUTES:
            raise self._error(f"{place}: of attributes only {', '.join(_ATTRIBUTES)} are read from the metadata")
        nodes = self._lists.get(reference.key, [])
        if not 0 <= reference.index < len(nodes):
            raise self._error(f"{place}: the metadata section holds {len(nodes)} of these")
        try:
            found = dict(self._nodes[nodes[reference.index]]["attrs"])
            return {str(name): self._value(int(node)) for name, node in found.items()}
        except (KeyError, IndexError, TypeError, ValueError):
            raise self._error(f"{place}: its attributes are not ones that TVM writes") from None

    def _value(self, number: int) -> AttributeValue:
        """An integer or a text; the first node is nothing."""
        node = self._nodes[number]
        if not node["type_key"]:
            return None
        return str(node["repr_str"]) if node["type_key"] == "runtime.String" else int(node["attrs"]["value"])

    def _parsed(self, section: str) -> Any:
        try:
            return json.loads(section)
        except (ValueError, RecursionError):
            raise self._error("its metadata section is no JSON; the text is damaged or truncated") from None

    def _entries(self, content: Any) -> dict[str, list[int]]:
        """The nodes of the entries of each key."""
        root = self._nodes[int(content["root"])]
        lists = dict(zip(root.get("keys", []), root.get("data", []), strict=True))
        return {str(key): [int(node) for node in self._nodes[place].get("data", [])] for key, place in lists.items()}

    def _decoded(self, number: int, place: str) -> Array:
        if not 0 <= number < len(self._tensors):
            raise self._error(f"{place}: tensor {number} is asked for, {len(self._tensors)} are there")
        try:
            content = base64.b64decode(self._tensors[number], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise self._error(f"{place}: its value is no base64; the text is damaged") from None
        return parse_tensor(content, f"{self._title}, {place}")

    def _error(self, found: str) -> ModelFileError:
        return ModelFileError(f"{self._title}: {found}")
