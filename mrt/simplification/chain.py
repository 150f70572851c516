"""The elementwise chain behind an operator: what is done to each element, with exact fractions as coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from mrt.symbol import Array, Symbol

_exact: Callable[[Any], Array] = np.frompyfunc(Fraction, 1, 1)
_half_up: Callable[[Any], Array] = np.frompyfunc(lambda v: Fraction(math.floor(v + Fraction(1, 2))), 1, 1)


def fractions(values: Any, rank: int) -> Array:
    """Numbers as an object array of fractions, of a tensor's rank: each axis 1 or full, as they broadcast to it."""
    array = np.asarray(values)
    # Many channels have the same value, of which one fraction is made.
    distinct, places = np.unique(array.reshape(-1), return_inverse=True)
    exact = np.asarray(_exact(distinct.astype(object)), object)[places]
    return exact.reshape((1,) * (rank - array.ndim) + array.shape)


def shared(values: Array) -> Any | None:
    """The fraction that all `values` equal, None where they differ."""
    first = values.flat[0]
    return first if (values == first).all() else None


def are_integers(values: Array) -> bool:
    return all(value.denominator == 1 for value in values.flat)


@dataclass(frozen=True, eq=False)
class Step:
    """What is done to an element. Every step but Sum keeps the order of elements, if no factor is negative."""

    def __call__(self, x: Array) -> Array:
        """The step of an object array of fractions; TypeError for a Sum, which takes a second tensor."""
        raise TypeError(f"{type(self).__name__} is no step of one tensor alone")


@dataclass(frozen=True, eq=False)
class Multiply(Step):
    """x * factor."""

    factor: Array

    def __call__(self, x: Array) -> Array:
        return x * self.factor


@dataclass(frozen=True, eq=False)
class Add(Step):
    """x + term."""

    term: Array

    def __call__(self, x: Array) -> Array:
        return x + self.term


@dataclass(frozen=True, eq=False)
class Round(Step):
    """The nearest integer, halves up, as right shifts round."""

    def __call__(self, x: Array) -> Array:
        return np.asarray(_half_up(x), object)


@dataclass(frozen=True, eq=False)
class Clip(Step):
    """x held to [lo, hi]; None is no limit on that side."""

    lo: Array | None
    hi: Array | None

    def __call__(self, x: Array) -> Array:
        held = x if self.lo is None else np.maximum(x, self.lo)
        return held if self.hi is None else np.minimum(held, self.hi)

    @property
    def limits(self) -> list[Array]:
        return [limit for limit in (self.lo, self.hi) if limit is not None]

    @property
    def is_per_tensor(self) -> bool:
        return all(shared(limit) is not None for limit in self.limits)


@dataclass(frozen=True, eq=False)
class Relu(Step):
    """max(x, 0)."""

    def __call__(self, x: Array) -> Array:
        return np.asarray(np.maximum(x, fractions(0, x.ndim)), object)


@dataclass(frozen=True, eq=False)
class Sum(Step):
    """x + factor * other, a tensor of the same shape."""

    other: Symbol
    factor: Array


@dataclass(frozen=True, eq=False)
class Store(Step):
    """The same integers in another dtype, which holds them."""

    dtype: str

    def __call__(self, x: Array) -> Array:
        return x


@dataclass(frozen=True, eq=False)
class Link:
    """A step, and the symbol whose values the chain has after it; None where no symbol of the graph has them."""

    step: Step
    symbol: Symbol | None


@dataclass(frozen=True, eq=False)
class Chain:
    """Steps on the elements of a tensor, one or more."""

    source: Symbol
    links: tuple[Link, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(link.step for link in self.links)

    @property
    def rank(self) -> int:
        return self.source.type.rank

    @property
    def end(self) -> Symbol:
        """The symbol whose values the chain gives."""
        return self.links[-1].symbol or self.source

    def symbol_at(self, index: int) -> Symbol:
        """The first symbol of the graph at or behind step `index`: what a message about the step names."""
        return next((link.symbol for link in self.links[index:] if link.symbol is not None), self.end)

    def replaced(self, start: int, stop: int, steps: Sequence[Step]) -> Chain:
        """The chain with other steps in place of start to stop - 1; only the values between them may differ.

        Without steps the values before are those after: the chain before then ends in the later symbol.
        """
        last = self.links[stop - 1].symbol
        before = list(self.links[:start])
        if steps:
            made = [*(Link(step, None) for step in steps[:-1]), Link(steps[-1], last)]
        else:
            made = []
            if before and stop == len(self.links):
                before[-1] = Link(before[-1].step, last)
        return Chain(self.source, (*before, *made, *self.links[stop:]))

    def __call__(self, x: Array) -> Array:
        """The chain of an object array of fractions; it may hold no Sum."""
        for step in self.steps:
            x = step(x)
        return x
