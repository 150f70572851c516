"""The converters of one format, found by the operator that they convert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mrt.errors import GraphError

_Converter = TypeVar("_Converter", bound=Callable[..., Any])


class Converters(Generic[_Converter]):
    """One converter for each operator of a format."""

    def __init__(self, title: str) -> None:
        """`title`: what errors call the format."""
        self._title = title
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
        """The operators that have a converter."""
        return frozenset(self._converters)

    def find(self, operator: str) -> _Converter | None:
        """The converter of an operator, None if it is not covered."""
        return self._converters.get(operator)
