"""What a network keeps from one call to the next."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.types import TensorType


@operator("assign")
class Assign(Operator):
    """Y = value, an output of the graph that its input `state` holds in the next call; in the first it is `initial`.

    value and state are of one type, initial is a parameter of
    their dtype and rank, each axis full or 1. So the pair of an input and an
    output stands in the graph itself, through all that is made of it.
    """

    input_names = ("value", "state", "initial")
    keeps_scale = True

    def infer(self, value: TensorType, state: TensorType, initial: TensorType) -> TensorType:
        if value != state:
            raise GraphError(f"the state is {state}, what it is to hold next {value}; one type is needed")
        fits = all(n in (1, m) for n, m in zip(initial.shape, state.shape, strict=False))
        if not fits or initial != state.with_shape(initial.shape) or initial.rank != state.rank:
            raise GraphError(f"the initial value is {initial}; {state} is needed, or 1 as the length of an axis")
        return value

    def evaluate(self, value: Array, state: Array, initial: Array) -> Array:
        return value

    def bounds(self, value: Interval, state: Interval, initial: Interval) -> Interval:
        return value

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return axis if index == 0 else None

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        """None: the next call would get the factor too."""
        return ()
