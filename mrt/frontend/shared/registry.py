"""The converters of one format, found by the operator that they convert."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar

from mrt.errors import GraphError
from mrt.plugins import load_plugins

_Converter = TypeVar("_Converter", bound=Callable[..., Any])


class Converters(Generic[_Converter]):
    """One converter for each operator of a format.

    MRT's own are imported before the first is looked up; plug-ins are loaded for an operator that MRT does not cover.
    """

    def __init__(self, title: str, format: str | None = None) -> None:
        """`title`: what errors call the format. format: the folder of mrt/frontend that has the package `converters`,
        which registers MRT's own, and is `converters.FORMAT` to plug-ins; None where whoever makes this registers all.
        """
        self._title, self._format = title, format
        self._has_own = format is None
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
        self._load_own()
        self._load_plugins()
        return frozenset(self._converters)

    def find(self, operator: str) -> _Converter | None:
        """The converter of an operator, None if it is not covered; PluginError where a plug-in fails."""
        self._load_own()
        if operator not in self._converters:
            self._load_plugins()
        return self._converters.get(operator)

    def _load_own(self) -> None:
        if not self._has_own:
            import_module(f"mrt.frontend.{self._format}.converters")
            self._has_own = True

    def _load_plugins(self) -> None:
        if self._format is not None:
            load_plugins(f"converters.{self._format}")
