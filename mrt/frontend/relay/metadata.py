"""The metadata section of a Relay text, which holds the constants that have no form in the code."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from mrt.errors import ModelFileError
from mrt.frontend.relay.syntax import MetaReference
from mrt.frontend.relay.tensors import parse_tensor
from mrt.symbol import Array

_CONSTANT = "relay.Constant"


class Metadata:
    """The constants of a text, each decoded when it is asked for, once.

    The section is TVM's JSON graph: node `root` is a Map from type keys to Arrays of nodes, and a constant names its
    place in the list b64ndarrays.
    """

    def __init__(self, section: str | None, title: str) -> None:
        """`section`: what follows #[metadata], None where nothing does; `title`: what errors call the text."""
        self._title = title
        self._given = section is not None
        self._read: dict[int, Array] = {}
        self._places: list[int] = []
        self._tensors: list[Any] = []
        if section is not None:
            content = self._parsed(section)
            try:
                self._places = self._constants(content)
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

    def _parsed(self, section: str) -> Any:
        try:
            return json.loads(section)
        except (ValueError, RecursionError):
            raise self._error("its metadata section is no JSON; the text is damaged or truncated") from None

    def _constants(self, content: Any) -> list[int]:
        """The place in b64ndarrays of each constant."""
        nodes = content["nodes"]
        root = nodes[int(content["root"])]
        lists = dict(zip(root.get("keys", []), root.get("data", []), strict=True))
        if _CONSTANT not in lists:
            return []
        return [int(nodes[node]["attrs"]["data"]) for node in nodes[lists[_CONSTANT]].get("data", [])]

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
