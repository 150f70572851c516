"""The converters of one format, found by the operator that they convert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mrt.errors import GraphError
from mrt.plugins import load_plugins

_Converter = TypeVar("_Converter", bound=Callable[..., Any])


class Converters(Generic[_Converter]):
    """One converter for each operator of a format. Plug-ins are asked for those of operators that MRT has none for."""

    def __init__(self, title: str, part: str | None = None) -> None:
        """`title`: what errors call the format. part: the part of `mrt.plugins` that adds converters."""
        self._title, self._part = title, part
        self._converters: dict[str, _Converter] = {}

    def register(self, *operators: str) -> Callable[[_Converter], _Converter]:
        """Makes a function the converter of these operators; GraphError where one of them has a converter."""

        def register(function: _Converter) -> _Converter:
            for name in operators:
                if name in self._converters:
                    raise GraphError(f"two converters for the {self._title} operator {name}")
                self._converters[name] = function
            return function

        return register

    @property
    def operators(self) -> frozenset[str]:
        """The operators that have a converter, those of plug-ins included; PluginError where one fails."""
        self._load_plugins()
        return frozenset(self._converters)

    def find(self, operator: str) -> _Converter | None:
        """The converter of an operator, None if it is not covered; PluginError where a plug-in fails."""
        if operator not in self._converters:
            self._load_plugins()
        return self._converters.get(operator)

    def _load_plugins(self) -> None:
        if self._part is not None:
            load_plugins(self._part)
