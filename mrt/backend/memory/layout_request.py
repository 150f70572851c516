"""How a reader asks for its data to lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Interval, TensorType
from mrt.symbol.bounds import DTYPE_RANGES


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

    def holds(self, type: TensorType, known: Interval) -> bool:
        """Whether the requested dtype tells all values of a tensor apart. known: what these may be."""
        if not self.dtype or np.dtype(self.dtype).itemsize >= np.dtype(type.dtype).itemsize:
            return True
        lo, hi = DTYPE_RANGES[self.dtype]
        return bool(lo <= known.min + self.offset and known.max + self.offset <= hi)

    @property
    def has_border(self) -> bool:
        return any(self.before) or any(self.after)
