"""A configuration as plain data, with the line of every key: YAML, overridden keys, the environment's variables."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml

from mrt.errors import ConfigError
from mrt.messages import KeyPath, dotted, short

MOST_BYTES, MOST_VALUES, DEEPEST = 2**17, 30_000, 50
"""The largest configuration: its file, its keys and values with all aliases written out, and how deeply they nest. It
would take PyYAML seconds; overrides of a thousand symbols are half of that."""
_UNUSED_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("binary", "omap", "pairs", "set")}


@dataclass(frozen=True)
class Source:
    """The plain data of a configuration and where each key stands."""

    data: Any
    places: Mapping[KeyPath, str]

    def place(self, path: KeyPath) -> str:
        """Where the key stands, or the nearest key above it that stands anywhere."""
        return next(self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places)

    def named(self, path: KeyPath) -> str:
        """A key with where it stands."""
        return f"{self.place(path)}: {dotted(path) if path else 'the file'}"

    def overridden(self, text: str) -> Source:
        """With one key set by "section.key=value"."""
        where = f"--set {text if len(text) <= 100 else f'{text[:97]}...'}"
        key, equals, value = text.partition("=")
        path: KeyPath = tuple(key.strip().split("."))
        if not equals or not all(path) or len(path) > DEEPEST:
            raise ConfigError(f"{where}: section.key=value is needed")
        parsed, _ = _parsed(value, lambda line: where, where)
        return self._with(path, parsed, where)

    def with_shape(self, text: str) -> Source:
        """With the shape of one input, of whatever name, set by "input=1,3,224,224"."""
        where = f"--shape {text if len(text) <= 100 else f'{text[:97]}...'}"
        name, equals, sizes = text.rpartition("=")
        if not equals or not name or not all(size.strip().isdecimal() for size in sizes.split(",")):
            raise ConfigError(f"{where}: an input with its sizes is needed, such as input=1,3,224,224")
        return self._with(("model", "shapes", name), [int(size[:_DIGITS]) for size in sizes.split(",")], where)

    def with_random_params(self) -> Source:
        """With parameters drawn where the model lacks them."""
        return self._with(("model", "random_params"), True, "--random-params")

    def with_flag(self, key: str, text: str) -> Source:
        """With a key of the file set by the option of the same name, to a text."""
        return self._with((key,), text, f"--{key} {text if len(text) <= 100 else f'{text[:97]}...'}")

    def _with(self, path: KeyPath, parsed: Any, where: str) -> Source:
        kept = {place: line for place, line in self.places.items() if place[: len(path)] != path}
        # A key of the file that this changes may be wrong by either; one that it makes is wrong by this alone.
        above: dict[KeyPath, str] = {
            path[:n]: f"{kept[path[:n]]} with {where}" if path[:n] in kept else where for n in range(1, len(path))
        }
        return Source(_replaced(self.data, path, parsed, where), {**kept, **above, path: where})

    def expanded(self) -> Any:
        """The data with the environment's variables filled in."""
        return _expand(self.data, (), self)


def read_source(file: Path) -> Source:
    """The content of a YAML file; ConfigError where it is none, sets a key twice, or is too large, see MOST_BYTES."""
    data, places = _parsed(_text(file), lambda line: f"{file}:{line}", str(file))
    return Source(data, {(): str(file), **places})


def _text(file: Path) -> str:
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            found = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
            raise ConfigError(f"{file} is {found}; a YAML file is needed")
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{file} has more than {MOST_BYTES} bytes; a configuration is smaller")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not a text file in UTF-8: {error.reason} at byte {error.start}") from None


class _Loader(yaml.SafeLoader):
    """YAML's plain types, no more than MOST_VALUES nested no deeper than DEEPEST, and integers of 64 bits."""

    depth = made = 0
    yaml_constructors: ClassVar = {
        tag: construct for tag, construct in yaml.SafeLoader.yaml_constructors.items() if tag not in _UNUSED_TAGS
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth, self.made = self.depth + 1, self.made + 1
        if self.depth > DEEPEST or self.made > MOST_VALUES:
            problem = f"nested more than {DEEPEST} deep" if self.depth > DEEPEST else f"more than {MOST_VALUES} values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.get_mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        number: int = super().construct_yaml_int(node) if len(node.value) <= 80 else 2**64
        if abs(number) >= 2**63:
            raise yaml.MarkedYAMLError(problem="an integer of more than 64 bits", problem_mark=node.start_mark)
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _parsed(text: str, place: Callable[[int], str], name: str) -> tuple[Any, dict[KeyPath, str]]:
    """The plain data of a YAML text and where each of its keys stands, which `place` tells of a line's number.

    name: what messages call the text; ConfigError where it is no YAML, or too much of it.
    """
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        survey = _Survey(place, name)
        if node is not None:
            survey.note(node, (), [])
        return None if node is None else loader.construct_document(node), survey.places
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{place(line)}: not YAML: character {chr(error.character)!a} is not allowed") from None
    except yaml.MarkedYAMLError as error:
        where = place(error.problem_mark.line + 1) if error.problem_mark else name
        raise ConfigError(f"{where}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not YAML: {_one_line(error)}") from None
    finally:
        if loader is not None:
            loader.dispose()


@dataclass
class _Survey:
    """The places of all keys. It comes before the data is made of the nodes, since aliases may make that endless."""

    place: Callable[[int], str]
    name: str
    places: dict[KeyPath, str] = field(default_factory=dict)
    count: int = 0

    def note(self, node: yaml.Node, path: KeyPath, above: list[yaml.Node]) -> None:
        """Notes all below `node`; ConfigError for a key set twice, what contains itself, and too many values."""
        if any(node is other for other in above):
            raise ConfigError(f"{self._where(node)}: {dotted(path)} contains itself")
        self.count += 1
        if self.count > MOST_VALUES:
            raise ConfigError(f"{self.name} holds more than {MOST_VALUES} values, those of aliases counted each time")
        children: list[tuple[str | int, yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            children = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
        elif isinstance(node, yaml.SequenceNode):
            children = [(index, value, value) for index, value in enumerate(node.value)]
        for name, key, value in children:
            where, child = self._where(key), (*path, name)
            if child in self.places and name != "<<":
                raise ConfigError(f"{where}: {dotted(child)} is set twice, first at {self.places[child]}")
            self.places[child] = where
            self.note(value, child, [*above, node])

    def _where(self, node: yaml.Node) -> str:
        return self.place(node.start_mark.line + 1)


def _replaced(data: Any, path: KeyPath, value: Any, where: str) -> Any:
    """`data` with the value at `path` set; mappings on the way are made."""
    if not path:
        return value
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{where}: {path[0]} would be a key of {short(data)}, which is no mapping")
    below = (data or {}).get(path[0])
    return {**(data or {}), path[0]: _replaced(below, path[1:], value, where)}


_DIGITS = 20
"""Of a size: more are of no tensor, and Python refuses thousands."""
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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
