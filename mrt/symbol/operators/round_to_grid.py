"""Rounding of a float tensor to a grid that is an input, so that one compiled graph serves every grid."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.types import TensorType

NUMBERS = 4
"""Of a grid: the reciprocal of its step, the least and the greatest multiple of the step, and the step."""


@operator("round_to_grid")
class RoundToGrid(Operator):
    """clip(rint(data * inverse), least, greatest) * step in float32, rint rounding half to even.

    grid: (4, 1), one for the tensor, or (4, channels), one for each of its channels along `axis`; its rows are inverse,
    least, greatest and step. It is what a tensor's quantizer does to real values, for networks that are tried with
    several.
    """

    axis: int = 1

    input_names = ("data", "grid")
    is_elementwise = True

    def infer(self, data: TensorType, grid: TensorType) -> TensorType:
        require_float(data)
        require_float(grid)
        channels = data.shape[self.axis] if 0 <= self.axis < data.rank else 1
        if grid.rank != 2 or grid.shape[0] != NUMBERS or grid.shape[1] not in (1, channels):
            raise GraphError(
                f"the grid is {grid}; shape ({NUMBERS}, 1) or ({NUMBERS}, {channels}) is needed for {data}"
            )
        return data

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return axis if index == 0 else None

    def evaluate(self, data: Array, grid: Array) -> Array:
        across = tuple(-1 if axis == self.axis else 1 for axis in range(data.ndim)) if grid.shape[1] > 1 else ()
        inverse, least, greatest, step = (np.asarray(row, np.float32).reshape(across) for row in grid)
        with np.errstate(over="ignore"):
            steps = np.rint(np.asarray(data, np.float32) * inverse)
        return np.asarray(np.clip(steps, least, greatest) * step)

    def bounds(self, data: Interval, grid: Interval) -> Interval:
        """All that the limits of any channel allow."""
        known = grid.expanded()
        corners = [limit * step for limit in (known.lo[1:3], known.hi[1:3]) for step in (known.lo[3], known.hi[3])]
        return Interval.of(min(c.min() for c in corners), max(c.max() for c in corners), data.shape)
