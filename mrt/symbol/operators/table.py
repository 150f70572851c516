"""Look-up tables: any function of one integer tensor, elementwise."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_integer
from mrt.symbol.types import INT32_MAX, INT32_MIN, TensorType

MAX_ENTRIES = 2**16
_MOST_SLICES = 2**12
"""Slices of the table that bounds are looked up in one by one; where there are more, one serves all."""


@operator("table_lookup")
class TableLookup(Operator):
    """table[data + offset], elementwise. Integers only; the result has the table's dtype.

    table: rank 1, at most 65,536 entries. An index outside of it is an error: data is proven to lie within.
    """

    family = "lookup"

    offset: int = 0

    input_names = ("data", "table")

    def infer(self, x: TensorType, table: TensorType) -> TensorType:
        require_integer(x)
        require_integer(table)
        if table.rank != 1 or not 1 <= table.size <= MAX_ENTRIES:
            raise GraphError(f"the table is {table}; rank 1 and 1 to {MAX_ENTRIES} entries are needed")
        if not INT32_MIN <= self.offset <= INT32_MAX:
            raise GraphError(f"offset is {self.offset}; an integer of 32 bits is needed")
        return x.with_dtype(table.dtype)

    def evaluate(self, x: Array, table: Array) -> Array:
        index = x.astype(np.int64) + self.offset
        if index.size:
            self._check(int(index.min()), int(index.max()), table.size)
        return table[index]

    def bounds(self, x: Interval, table: Interval) -> Interval:
        """The extremes of the entries that can be reached, for each of the data's bounds."""
        entries = table.expanded()
        first, last = np.broadcast_arrays(x.lo + self.offset, x.hi + self.offset)
        if not first.size:
            return x.map(lambda v: v.astype(np.int64))
        self._check(int(first.min()), int(last.max()), entries.lo.size)
        pairs, place = np.unique(np.stack([first.ravel(), last.ravel()]).astype(np.int64), axis=1, return_inverse=True)
        if pairs.shape[1] > _MOST_SLICES:
            lo, hi = int(first.min()), int(last.max()) + 1
            return Interval.of(entries.lo[lo:hi].min(), entries.hi[lo:hi].max(), x.shape)
        lows = np.array([entries.lo[a : b + 1].min() for a, b in pairs.T])
        highs = np.array([entries.hi[a : b + 1].max() for a, b in pairs.T])
        at = place.reshape(first.shape)
        return Interval(lows[at], highs[at], x.shape)

    def _check(self, first: int, last: int, size: int) -> None:
        if first < 0 or last >= size:
            raise GraphError(f"the index lies in [{first}, {last}]; the table has {size} entries, 0 to {size - 1}")
