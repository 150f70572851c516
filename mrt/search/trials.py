"""The trials of a search in a file that only grows: what a search that was killed has found is taken by the next.

    {"format_version": 1, "origins": {...}, "sha256": "..."}
    {"request": {...}, "result": {...}, "seconds": 1.25, "sha256": "..."}

One JSON object a line. The first says what the trials were made from; each other holds what was asked, what was found,
and the time that it took. `sha256` is of the rest of the line and of the line before, so that lines are whole and in
order up to the first that does not fit; what a process that was killed wrote in part is dropped with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from mrt.errors import DataError, ModelFileError
from mrt.symbol.strict_json import parse_json

FORMAT_VERSION = 1
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """One question and its answer."""

    request: Json
    result: Json
    seconds: float


class TrialFile:
    """The records of a search, in order. known: those that an earlier process wrote and this one has yet to ask."""

    def __init__(self, path: Path, origins: Json) -> None:
        """Takes what `path` holds if it was made from the same origins, else begins it anew.

        begun_anew: what of the origins differs, where there was such a file; "" otherwise.
        """
        self._path = path
        head = {"format_version": FORMAT_VERSION, "origins": dict(origins)}
        lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
        entries, kept, self._chain = _whole(lines)
        self.begun_anew = "" if not lines else _difference(entries[0] if entries else {}, head)
        if not entries or self.begun_anew:
            self.known: list[Record] = []
            self._chain = ""
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            self._append(head)
        else:
            self.known = [Record(each["request"], each["result"], each["seconds"]) for each in entries[1:]]
            os.truncate(path, kept)

    @property
    def seconds(self) -> float:
        """The time that the known trials took."""
        return sum(record.seconds for record in self.known)

    def take(self, request: Json) -> Record | None:
        """The next known record, if there is one; DataError where it answers another question."""
        if not self.known:
            return None
        record = self.known.pop(0)
        if _text(record.request) != _text(request):
            raise DataError(
                f"{self._path}: the trials there are not those that this search makes; remove the file to begin anew"
            )
        return record

    def add(self, record: Record) -> None:
        """Writes a record behind the others, to the disk."""
        self._append({"request": record.request, "result": record.result, "seconds": round(record.seconds, 3)})

    def _append(self, entry: Json) -> None:
        self._chain = _digest(entry, self._chain)
        with self._path.open("ab") as file:
            file.write(_text({**entry, "sha256": self._chain}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _whole(lines: list[bytes]) -> tuple[list[dict[str, Any]], int, str]:
    """The entries up to the first that is damaged, the bytes that they take, and the digest of the last."""
    entries: list[dict[str, Any]] = []
    size, chain = 0, ""
    for line in lines:
        try:
            entry = parse_json(line)
            found = entry.pop("sha256")
            if found != _digest(entry, chain) or (entries and set(entry) != {"request", "result", "seconds"}):
                break
        except (ModelFileError, AttributeError, KeyError, TypeError):
            break
        entries.append(entry)
        size, chain = size + len(line) + 1, found
    return entries, size, chain


def _difference(found: Json, wanted: Json) -> str:
    """The first of the origins that differs; "" where none does."""
    if found.get("format_version") != wanted["format_version"]:
        return "format_version"
    had, needed = found["origins"], wanted["origins"]
    return next((name for name in {**had, **needed} if had.get(name) != needed.get(name)), "")


def _digest(entry: Json, chain: str) -> str:
    return sha256((chain + _text(entry)).encode()).hexdigest()


def _text(entry: Json) -> str:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False)
