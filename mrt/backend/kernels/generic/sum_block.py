"""What a block of sums of products reads, before it is scheduled or within its loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mrt.backend.tir.expressions import Expression, constant, ravel, substitute


class SumBlock:
    """A block that adds products of data and weights to `sums`.

    variables, lengths: its axes. data, weights: the loads that are multiplied, before they are widened.
    """

    def __init__(self, block: Any) -> None:
        self.variables = [variable.var for variable in block.iter_vars]
        self.lengths = [int(variable.dom.extent) for variable in block.iter_vars]
        self.sums = block.body.buffer
        factors = block.body.value.b
        self.data, self.weights = (cast.value for cast in (factors.a, factors.b))
        self._pitches: dict[int, int] = {}

    def index(self, load: Any, at: Sequence[Expression]) -> list[Expression]:
        """Where `load` reads for an index of the block's axes."""
        return substitute(load.indices, self.variables, at)

    def pitch(self, axis: int) -> int:
        """The elements of data between neighbours along an axis of the block."""
        if axis not in self._pitches:
            self._pitches[axis] = self._pitch(axis)
        return self._pitches[axis]

    def _pitch(self, axis: int) -> int:
        zeros = [constant(0, "int32")] * len(self.variables)
        unit = [*zeros[:axis], constant(1, "int32"), *zeros[axis + 1 :]]
        first, second = (ravel(self.index(self.data, at), self.data.source.shape) for at in (zeros, unit))
        return int(second) - int(first)
