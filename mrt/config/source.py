"""A configuration as plain data, with the line of every key: YAML, overridden keys, the environment's variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mrt.errors import ConfigError

KeyPath = tuple["str | int", ...]


@dataclass(frozen=True)
class Source:
    """The plain data of a configuration and where each key stands."""

    data: Any
    places: Mapping[KeyPath, str]

    def place(self, path: KeyPath) -> str:
        """Where the key stands, or the nearest key above it that stands anywhere."""
        return next(self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places)

    def overridden(self, text: str) -> Source:
        """With one key set by "section.key=value"."""
        where = f"--set {text}"
        key, equals, value = text.partition("=")
        path = tuple(key.strip().split("."))
        if not equals or not all(path):
            raise ConfigError(f"{where}: section.key=value is needed")
        try:
            parsed = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: the value is not YAML: {_one_line(error)}") from None
        kept = {place: line for place, line in self.places.items() if place[: len(path)] != path}
        return Source(_replaced(self.data, path, parsed, where), {**kept, path: where})

    def expanded(self) -> Any:
        """The data with the environment's variables filled in."""
        return _expand(self.data, (), self)


def read_source(file: Path) -> Source:
    """The content of a YAML file; ConfigError where it is none, or sets a key twice."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not a text file in UTF-8: {error.reason} at byte {error.start}") from None
    places: dict[KeyPath, str] = {(): str(file)}
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _note_places(node, (), file, places, [])
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{file}{line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not YAML: {_one_line(error)}") from None
    finally:
        loader.dispose()
    return Source(data, places)


def _note_places(
    node: yaml.Node, path: KeyPath, file: Path, places: dict[KeyPath, str], above: list[yaml.Node]
) -> None:
    if any(node is other for other in above):
        raise ConfigError(f"{file}:{node.start_mark.line + 1}: {dotted(path)} contains itself")
    children: list[tuple[str | int, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        children = [(index, value, value) for index, value in enumerate(node.value)]
    for name, key, value in children:
        line = f"{file}:{key.start_mark.line + 1}"
        child = (*path, name)
        if child in places and name != "<<":
            raise ConfigError(f"{line}: {dotted(child)} is set twice, first at {places[child]}")
        places[child] = line
        _note_places(value, child, file, places, [*above, node])


def _replaced(data: Any, path: KeyPath, value: Any, where: str) -> Any:
    """`data` with the value at `path` set; mappings on the way are made."""
    if not path:
        return value
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{where}: {path[0]} would be a key of {data!r}, which is no mapping")
    below = (data or {}).get(path[0])
    return {**(data or {}), path[0]: _replaced(below, path[1:], value, where)}


_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)\}")


def _expand(value: Any, path: KeyPath, source: Source) -> Any:
    if isinstance(value, dict):
        return {key: _expand(item, (*path, key), source) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, (*path, index), source) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        if name not in os.environ:
            raise ConfigError(
                f"{source.place(path)}: {dotted(path)}: the environment variable {name or '(empty name)'} is not set "
                f"(found {value!r}); set it, or write $${{{name}}} for the text itself"
            )
        # What a shell's user writes into a variable is relative to where they stand, not to the configuration.
        starts_path = match.start() == 0 and value[match.end() :].startswith("/")
        return os.path.abspath(os.environ[name]) if starts_path else os.environ[name]

    return _VARIABLE.sub(fill, value)


def dotted(path: KeyPath) -> str:
    """A key as people write it."""
    return ".".join(map(str, path)) or "the file"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
