"""Elementwise functions that repeat themselves: sine, cosine, tangent and remainders."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import operator
from mrt.symbol.operators.functions import FloatFunction, Function, real

_SLACK = 1e-12
"""By how much more than float64 rounds, an end of an interval may be beyond a half turn."""


def _half_turns(x: Interval, offset: float) -> tuple[Array, Array]:
    """The first of the places (k + offset) pi within float bounds, as k, and how many more of them there are.

    A negative count, -1 or less, means that there is none; NaN that the bounds are infinite.
    """
    lo, hi = real(x.lo), real(x.hi)
    with np.errstate(all="ignore"):
        first = np.ceil(lo / np.pi - offset - _SLACK * (1 + np.abs(lo)))
        return first, np.floor(hi / np.pi - offset + _SLACK * (1 + np.abs(hi))) - first


class _Wave(FloatFunction):
    """What sine and cosine share: between -1 and 1, reached at half turns by turns."""

    offset: ClassVar[float]
    """Half turns from 0 to the first place where the function is 1."""

    def bounds(self, x: Interval) -> Interval:
        function: Function = self.evaluate
        ends = tuple(np.nan_to_num(function(end), nan=1.0) for end in (real(x.lo), real(x.hi)))
        first, turns = _half_turns(x, self.offset)
        is_odd = first % 2 == 1
        is_whole = ~np.isfinite(turns) | (turns >= 1)
        falls, rises = is_whole | ((turns == 0) & is_odd), is_whole | ((turns == 0) & ~is_odd)
        return Interval(np.where(falls, -1.0, np.minimum(*ends)), np.where(rises, 1.0, np.maximum(*ends)), x.shape)


@operator("cos")
class Cos(_Wave):
    """The cosine of x in radians, elementwise; NaN at infinity. Float only."""

    offset = 0.0

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.cos(real(x))


@operator("sin")
class Sin(_Wave):
    """The sine of x in radians, elementwise; NaN at infinity. Float only."""

    offset = 0.5

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.sin(real(x))


@operator("tan")
class Tan(FloatFunction):
    """The tangent of x in radians, elementwise; NaN at infinity. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.tan(real(x))

    def bounds(self, x: Interval) -> Interval:
        """It rises between its poles, beside which it is without bound."""
        _, poles = _half_turns(x, 0.5)
        has_pole = ~np.isfinite(poles) | (poles >= 0)
        lo, hi = self.evaluate(x.lo), self.evaluate(x.hi)
        return Interval(np.where(has_pole, -np.inf, lo), np.where(has_pole, np.inf, hi), x.shape)


@operator("_mod_scalar", "_ModScalar")
class ModScalar(FloatFunction):
    """What is left of x divided by `scalar`, not 0, elementwise: of the divisor's sign, or, where the quotient is
    truncated, of the sign of x, as C's fmod. Float only.
    """

    scalar: float
    truncates: bool = False

    ignored = frozenset({"is_int"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.scalar) or self.scalar == 0:
            raise GraphError(f"{self.op}.scalar is {self.scalar}; a finite divisor other than 0 is needed")

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return (np.fmod if self.truncates else np.mod)(real(x), self.scalar)

    def bounds(self, x: Interval) -> Interval:
        """Where both ends lie in one period the remainders of the ends, else every remainder."""
        lo, hi, size = real(x.lo), real(x.hi), abs(self.scalar)
        with np.errstate(all="ignore"):
            rounded = np.trunc if self.truncates else np.floor
            is_one = np.isfinite(lo) & np.isfinite(hi) & (rounded(lo / size) == rounded(hi / size))
            ends = self.evaluate(lo), self.evaluate(hi)
        # A quotient is rounded: an end within a rounding of a multiple may lie on its other side.
        is_one &= np.abs(ends[1] - ends[0] - (hi - lo)) <= 1e-9 * size
        if self.truncates:
            least, most = np.maximum(np.minimum(lo, 0), -size), np.minimum(np.maximum(hi, 0), size)
        else:
            least, most = (np.minimum(0.0, self.scalar), np.maximum(0.0, self.scalar))
        return Interval(np.where(is_one, ends[0], least), np.where(is_one, ends[1], most), x.shape)
