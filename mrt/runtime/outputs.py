"""Several outputs of a call, in order and by the names that the network gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from mrt.errors import DataError
from mrt.symbol.interval import Array


class Outputs(list[Any]):
    """A list of arrays that knows their names: `outputs[0]` and `outputs["boxes"]`, `outputs.boxes`, `dict(outputs)`.

    A name that there is none of is a DataError, as an attribute an AttributeError.
    """

    def __init__(self, arrays: Iterable[Array], names: Sequence[str]) -> None:
        super().__init__(arrays)
        self._names = tuple(names)

    def keys(self) -> tuple[str, ...]:
        """The names, in order."""
        return self._names

    def items(self) -> list[tuple[str, Array]]:
        return list(zip(self._names, self, strict=True))

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self._place(key) if isinstance(key, str) else key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"no output is called {name}; the outputs are {', '.join(self.keys())}")
        return self[name]

    def _place(self, name: str) -> int:
        if name not in self._names:
            near = get_close_matches(name, self._names, 1)
            meant = f"did you mean {near[0]}?" if near else f"the outputs are {', '.join(self._names)}"
            raise DataError(f"no output is called {name}; {meant}")
        return self._names.index(name)
