"""What is wrong in options, for their author: every wrong key with where it stands and the nearest right one."""

from __future__ import annotations

import difflib
import json
import re
import shlex
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

KeyPath = tuple["str | int", ...]


def messages(
    error: ValidationError, model: type[BaseModel], data: Any, where: Callable[[KeyPath], str]
) -> Iterator[str]:
    """One message for every wrong key; the members of a union share one.

    model: what `data` was validated as. where: how a key, and where it stands, is called; () is the whole.
    """
    details: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        path = _path_in(data, detail["loc"], detail["type"] == "missing")
        details.setdefault(path, []).append(detail)
    for path, found in details.items():
        first = found[0]
        if first["type"] == "extra_forbidden":
            nearest = _nearest(model, first["loc"], path)
            yield f"{where(path)} is not a key (found {short(first['input'])}); {nearest}"
        elif first["type"] == "missing":
            yield f"{where(path)} is missing; it is needed"
        else:
            needs = dict.fromkeys(_need(detail) for detail in found)
            yield f"{where(path)} is {short(first['input'])}: {' or '.join(needs)}"


def counted(count: int, one: str, many: str = "") -> str:
    """A count with its noun, in the plural unless it is 1."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def dotted(path: KeyPath) -> str:
    """A key as people write it; "" for the whole."""
    return ".".join(str(part) or "''" for part in path)


def short(value: Any) -> str:
    """A value as a message shows it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or what is nested as deeply
        return f"a {type(value).__name__} that is too long to print"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _need(detail: ErrorDetails) -> str:
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type", "mapping_type"):
        return "a mapping of keys is needed"
    message = detail["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _path_in(data: Any, location: KeyPath, missing: bool) -> KeyPath:
    """pydantic's location without the names of union members, which the data does not have."""
    path: list[str | int] = []
    for part in location:
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            path.append(part)
    if missing:
        path.append(location[-1])
    return tuple(path)


def _nearest(root: type[BaseModel], location: KeyPath, path: KeyPath) -> str:
    """The key that an unknown one may stand for: a namesake deeper in the section, the nearest there, or elsewhere."""
    kind: Any = root
    for part in location[:-1]:
        kind = _step(kind, part)
    model = next(iter(_models(kind)), root)
    names = _names(model)
    namesakes = [key for key in _all_keys(root, ()) if key[-1] == path[-1]]
    deeper = [key for key in namesakes if key[: len(path) - 1] == path[:-1]]
    close = difflib.get_close_matches(str(path[-1]), names, n=1, cutoff=0.5)
    if close and not deeper:
        return f"did you mean {dotted((*path[:-1], close[0]))}?"
    if namesakes:
        return f"did you mean {' or '.join(dotted(key) for key in (deeper or namesakes)[:3])}?"
    return f"the keys here are {listed(model)}"


def _step(kind: Any, part: str | int) -> Any:
    """The annotation of one part of a location, within an annotation."""
    for option in _members(kind):
        if get_origin(option) is Annotated:
            if any(isinstance(mark, Tag) and mark.tag == part for mark in get_args(option)[1:]):
                return get_args(option)[0]
        elif isinstance(option, type) and issubclass(option, BaseModel):
            for name, field in option.model_fields.items():
                if part in (name, field.alias):
                    return field.annotation
        elif get_origin(option) is not None and len(get_args(option)) == 2:
            return get_args(option)[1]
    return None


def _members(kind: Any) -> list[Any]:
    """The members of nested unions; an annotated member keeps its tag."""
    if get_origin(kind) in (Union, types.UnionType):
        return [member for part in get_args(kind) for member in _members(part)]
    if get_origin(kind) is Annotated and not any(isinstance(mark, Tag) for mark in get_args(kind)[1:]):
        return _members(get_args(kind)[0])
    return [kind]


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    for option in _members(kind):
        inner = get_args(option)[0] if get_origin(option) is Annotated else option
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield inner


def _all_keys(model: type[BaseModel], path: KeyPath) -> Iterator[KeyPath]:
    for name, field in model.model_fields.items():
        here = (*path, field.alias or name)
        yield here
        for inner in _models(field.annotation):
            yield from _all_keys(inner, here)


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def listed(model: type[BaseModel]) -> str:
    """The keys of a section."""
    return ", ".join(_names(model))


def split_option(names: Sequence[str]) -> str:
    """What is to be written to end a model before the operators of these names: in Python, YAML and a shell, in this
    order; many names stand in the last alone."""
    shown = ", ".join(name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in names)
    is_short = len(names) <= _NAMES_REPEATED
    python, written = (str(list(names)), f"[{shown}]") if is_short else ("[…]", "[…]")
    return (
        f"in Python preparation=mrt.PreparationConfig(split={python}), in a configuration "
        f"prepare: {{split: {written}}}, on the command line --set {shlex.quote(f'prepare.split=[{shown}]')}"
    )


_NAMES_REPEATED = 2


def inputs_option(name: str) -> str:
    """What declares the integers of an input: in a configuration, and in Python."""
    return f"quantize.inputs.{name}, in Python mrt.QuantizationConfig(inputs={{{name!r}: {{…}}}})"


_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n|~)$)[A-Za-z_/][\w./-]*", re.IGNORECASE)
"""What YAML takes for a text without quotes."""
