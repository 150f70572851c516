"""Algorithms by the option that names them: `calibrate.method: mse` is the algorithm `mse` of that option."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import AfterValidator

from mrt.errors import ConfigError
from mrt.plugins import load_plugins

OWN = "mrt.quantization.algorithms.built_in"
"""The module that imports all algorithms of MRT itself, by name: options stand below them."""


class Named(Protocol):
    """What is registered. option: the key of the configuration whose value is the name."""

    option: ClassVar[str]


_Class = TypeVar("_Class", bound=type[Named])
_Kind = TypeVar("_Kind", bound=Named)

_ALGORITHMS: dict[str, dict[str, Any]] = {}
"""By option and name; each made once, since none has a state."""


def algorithm(name: str) -> Callable[[_Class], _Class]:
    """Registers a class as what `name` means as the value of its option; ConfigError where the name is taken."""

    def register(made: _Class) -> _Class:
        known = _ALGORITHMS.setdefault(made.option, {})
        if name in known:
            other, new = (f"{each.__module__}.{each.__qualname__}" for each in (type(known[name]), made))
            raise ConfigError(f"{made.option}: {name} is both {other} and {new}; rename one")
        known[name] = made()
        return made

    return register


def find_algorithm(kind: type[_Kind], name: str) -> _Kind:
    """The algorithm of a kind; ConfigError listing the names that there are."""
    if name not in names_of(kind.option):
        raise ConfigError(f"{kind.option} is {name!r}: {_needed(names_of(kind.option))}")
    found: _Kind = _ALGORITHMS[kind.option][name]
    return found


def algorithms_of(kind: type[_Kind]) -> tuple[_Kind, ...]:
    """All algorithms of a kind, in the order of their names."""
    return tuple(find_algorithm(kind, name) for name in names_of(kind.option))


def names_of(option: str) -> tuple[str, ...]:
    """The names that algorithms of an option have, those of plug-ins among them."""
    _load()
    return tuple(sorted(_ALGORITHMS.get(option, {})))


def naming(option: str, *more: str) -> AfterValidator:
    """Has pydantic check that a value of `option` is the name of an algorithm, or one of `more`."""

    def check(name: str) -> str:
        known = (*more, *names_of(option))
        if name not in known:
            raise ValueError(_needed(known))
        return name

    return AfterValidator(check)


def _needed(names: tuple[str, ...]) -> str:
    if not names:
        return "there is no such algorithm; install a package that brings one"
    *first, last = (repr(name) for name in names)
    return f"{', '.join(first)} or {last} is needed" if first else f"{last} is needed"


def _load() -> None:
    importlib.import_module(OWN)
    load_plugins("algorithms")
