"""The text of a value that is made of plain data, the same in every process."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

OWN = "mrt."
"""How the names of modules begin whose classes are known."""


def plain_text(value: Any) -> str | None:
    """A text that values which differ do not share; None for one that holds anything but plain data.

    Plain are numbers, strings, truth values, None, tuples and dictionaries of them, and MRT's own dataclasses and
    enumerations: what a class of another package means may change while its name stays.
    """
    try:
        return _text(value)
    except TypeError:
        return None


def is_own(value: Any) -> bool:
    """Whether the class of a value is MRT's own."""
    return type(value).__module__.startswith(OWN)


def _text(value: Any) -> str:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return repr(value)
    if kind is float:
        return f"{value.hex()}"
    if kind is tuple:
        return f"({','.join(map(_text, value))})"
    if kind is dict:
        return f"{{{','.join(f'{_text(key)}:{_text(held)}' for key, held in value.items())}}}"
    if isinstance(value, Enum) and is_own(value):
        return f"{kind.__module__}.{kind.__qualname__}.{value.name}"
    if is_dataclass(value) and is_own(value):
        held = ",".join(f"{field.name}={_text(getattr(value, field.name))}" for field in fields(value))
        return f"{kind.__module__}.{kind.__qualname__}({held})"
    raise TypeError(f"a {kind.__name__} is no plain data")
