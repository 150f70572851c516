"""What several records check of their inputs, with one wording."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.errors import GraphError
from mrt.symbol.types import TensorType


def require_float(x: TensorType) -> TensorType:
    """`x` itself; GraphError if it is an integer tensor."""
    if not x.is_float:
        raise GraphError(f"found {x}; the operator has no integer form and needs floats")
    return x


def require_integer(x: TensorType) -> TensorType:
    """`x` itself; GraphError if it is a float tensor."""
    if not x.is_integer:
        raise GraphError(f"found {x}; the operator has no float form and needs integers")
    return x


def per_axis(values: Sequence[int], rank: int, default: int, what: str, least: int) -> tuple[int, ...]:
    """`values`, or `default` for every axis if there are none; GraphError if they are not `rank` ints >= `least`."""
    if not values:
        return (default,) * rank
    if len(values) != rank or min(values) < least:
        raise GraphError(f"{what} is {tuple(values)}; {rank} values of at least {least} are needed")
    return tuple(values)
