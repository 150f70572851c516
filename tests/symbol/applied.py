"""Applies one operator: to arrays as a graph would, and to intervals with everything that a proof says of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrt.symbol import Interval, Operator, TensorType, apply, variable
from mrt.symbol.graph import evaluate_symbol
from mrt.symbol.types import type_of

Array = np.ndarray[Any, Any]


def run(operator: Operator, *inputs: Array) -> Array:
    """The operator's value, checked against the shape and dtype that it infers."""
    variables = [variable(f"x{index}", type_of(value)) for index, value in enumerate(inputs)]
    symbol = apply(operator, variables, "y")
    value = evaluate_symbol(symbol, list(inputs))
    assert (value.shape, value.dtype.name) == (symbol.shape, symbol.dtype)
    return value


def infer(operator: Operator, *types: TensorType) -> TensorType:
    return apply(operator, [variable(f"x{index}", type) for index, type in enumerate(types)], "y").type


def random_interval(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> Interval:
    """Random bounds in [low, high] that vary along some of the axes."""
    varies = [n if rng.integers(2) else 1 for n in shape]
    a, b = rng.integers(low, high, varies, endpoint=True), rng.integers(low, high, varies, endpoint=True)
    return Interval(np.minimum(a, b), np.maximum(a, b), shape)


def draw(rng: np.random.Generator, interval: Interval) -> Array:
    """A tensor of the interval: half of its elements at a bound."""
    full = interval.expanded()
    inside = rng.integers(full.lo, full.hi, endpoint=True)
    choice = rng.integers(4, size=interval.shape)
    return np.where(choice == 0, full.lo, np.where(choice == 1, full.hi, inside))


def holds(interval: Interval, value: Array) -> bool:
    """Whether a tensor lies in the interval, whose own form must be right."""
    assert interval.shape == value.shape
    for bound in (interval.lo, interval.hi):
        assert bound.ndim == value.ndim
        assert all(n in (1, length) for n, length in zip(bound.shape, value.shape, strict=True))
    return bool((interval.lo <= value).all() and (value <= interval.hi).all())
