"""Elementwise hyperbolic functions beside tanh, and the inverse ones of these and of sine, cosine and tangent."""

from __future__ import annotations

import numpy as np

from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import operator
from mrt.symbol.operators.functions import FloatFunction, decreasing, increasing, real, valley


class _Rising(FloatFunction):
    """What the functions that never fall share; outside of [`least`, `most`] they have no value."""

    least = -np.inf
    most = np.inf

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, lambda v: self.evaluate(np.clip(v, self.least, self.most)))


@operator("arcsin")
class Arcsin(_Rising):
    """The angle in radians whose sine is x, elementwise: within a quarter turn of 0; NaN beyond 1. Float only."""

    least, most = -1.0, 1.0

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.arcsin(real(x))


@operator("arccos")
class Arccos(FloatFunction):
    """The angle in radians whose cosine is x, elementwise: from 0 to a half turn; NaN beyond 1. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.arccos(real(x))

    def bounds(self, x: Interval) -> Interval:
        return decreasing(x, lambda v: np.arccos(np.clip(v, -1.0, 1.0)))


@operator("arctan")
class Arctan(_Rising):
    """The angle in radians whose tangent is x, elementwise: within a quarter turn of 0. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.arctan(real(x))


@operator("sinh")
class Sinh(_Rising):
    """(e^x - e^-x) / 2, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.sinh(real(x))


@operator("cosh")
class Cosh(FloatFunction):
    """(e^x + e^-x) / 2, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.cosh(real(x))

    def bounds(self, x: Interval) -> Interval:
        return valley(x, np.cosh, 0.0)


@operator("arcsinh")
class Arcsinh(_Rising):
    """The number whose sinh is x, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.arcsinh(real(x))


@operator("arccosh")
class Arccosh(_Rising):
    """The number of 0 or more whose cosh is x, elementwise; NaN below 1. Float only."""

    least = 1.0

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.arccosh(real(x))


@operator("arctanh")
class Arctanh(_Rising):
    """The number whose tanh is x, elementwise: infinity at 1, NaN beyond. Float only."""

    least, most = -1.0, 1.0

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.arctanh(real(x))
