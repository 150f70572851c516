"""What other packages know of operators, found by the class of the record: an expansion, a compute, an exporter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from mrt.errors import GraphError
from mrt.plugins import load_plugins
from mrt.symbol.operator import Operator

_Entry = TypeVar("_Entry")


class ByRecord(Generic[_Entry]):
    """One entry for each record's class. A record without one of its own has that of the nearest of its bases.

    Whoever looks one up has those of plug-ins loaded before: `find`, `in` and iteration raise PluginError where one
    fails.
    """

    def __init__(self, what: str, part: str | None = None) -> None:
        """`what`: what errors call an entry, such as "expansion". part: the part of `mrt.plugins` that adds entries."""
        self._what, self._part = what, part
        self._entries: dict[type[Operator], _Entry] = {}

    def add(self, record: type[Operator], entry: _Entry) -> None:
        """Adds the entry of a record; GraphError where that record has one, or is none."""
        if not isinstance(record, type) or not issubclass(record, Operator):
            raise GraphError(f"{self._what} of {record!r}: a record is needed, a class derived from Operator")
        if record in self._entries:
            raise GraphError(f"{record.__name__} ({record.op}) has two entries of the kind {self._what}; one is needed")
        self._entries[record] = entry

    def find(self, record: type[Operator]) -> _Entry | None:
        """The entry of a record, or of the nearest of its bases that has one; None where none has."""
        self._load_plugins()
        for base in record.__mro__:
            if base in self._entries:
                return self._entries[base]
        return None

    def __contains__(self, record: type[Operator]) -> bool:
        return self.find(record) is not None

    def __iter__(self) -> Iterator[type[Operator]]:
        """The records that have an entry of their own, in the order in which they came."""
        self._load_plugins()
        return iter(self._entries)

    def _load_plugins(self) -> None:
        if self._part is not None:
            load_plugins(self._part)
