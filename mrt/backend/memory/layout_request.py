"""How a reader asks for its data to lie in memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayoutRequest:
    """What the compute of an operator asks of the memory of one of its inputs; fields as in `Storage`.

    inner: the innermost axis, None if any serves. dtype, offset: an empty dtype if any serves.
    before, after, border: what must stand around the tensor along each axis, nothing if empty.
    """

    inner: int | None
    dtype: str = ""
    offset: int = 0
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    border: float = 0

    @property
    def has_border(self) -> bool:
        return any(self.before) or any(self.after)
