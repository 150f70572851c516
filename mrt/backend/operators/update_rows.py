"""A tensor some of whose rows are others."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.symbol import Array, Interval, Operator, TensorType
from mrt.symbol.operators.selection import Where


@dataclass(frozen=True)
class UpdateRows(Operator):
    """where(condition, rows, held), of the shape of `held`, in whose memory the result is written.

    The condition has as many axes, of which the last ones have the length 1: one element says whether all that lies
    behind them is another. So rows that stay are neither read nor written.
    """

    op = "update_rows"
    input_names = ("condition", "rows", "held")

    def infer(self, condition: TensorType, rows: TensorType, held: TensorType) -> TensorType:
        return Where().infer(condition, rows, held)

    def evaluate(self, condition: Array, rows: Array, held: Array) -> Array:
        return Where().evaluate(condition, rows, held)

    def bounds(self, condition: Interval, rows: Interval, held: Interval) -> Interval:
        return Where().bounds(condition, rows, held)


def rows_along(condition: tuple[int, ...]) -> int:
    """Along how many axes there are rows, by the shape of what says which are others."""
    return max((axis + 1 for axis, length in enumerate(condition) if length > 1), default=0)
