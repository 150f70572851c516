"""Products and sums with constants: left out where they do nothing, folded where no rounding stands between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.simplification.chain import Add, Clip, Multiply, Relu, Round, Step, Store, Sum, are_integers, shared
from mrt.simplification.rule import Known, Outcome, Rule
from mrt.symbol import Array

BETWEEN = "a rounding stands between"


def is_rounded(steps: tuple[Step, ...], at: int) -> bool:
    """Whether step `at` is the factor of a shift, which a rounding follows."""
    return at + 1 < len(steps) and isinstance(steps[at + 1], Round)


def _is_shift(factor: Array) -> bool:
    """Whether every factor is a power of two from 1 to 2^-31."""
    return all(value.numerator == 1 and value.denominator.bit_count() == 1 for value in factor.flat)


@dataclass(frozen=True)
class SkipIdentity(Rule):
    """x * 1 and x + 0 are x; so is what is stored narrow only to be read by arithmetic, which gives 32 bits again."""

    def apply(self, known: Known, at: int) -> Outcome:
        steps = known.steps
        match steps[at]:
            case Multiply(factor=values) if not is_rounded(steps, at):
                idle = shared(values) == 1
            case Add(term=values):
                idle = shared(values) == 0
            case Store():
                idle = at + 1 < len(steps) and isinstance(steps[at + 1], (Multiply, Add))
            case _:
                return None
        return known.chain.replaced(at, at + 1, ()) if idle else None


@dataclass(frozen=True)
class MergeProducts(Rule):
    """(x * A) * C becomes x * (A C). A shift is such a product where A C is a power of two."""

    def apply(self, known: Known, at: int) -> Outcome:
        steps = known.steps
        match steps[at : at + 2]:
            case Multiply(factor=first), Multiply(factor=second):
                factor = np.asarray(first * second, object)
                if is_rounded(steps, at + 1) and not _is_shift(factor):
                    return None
                return known.chain.replaced(at, at + 2, (Multiply(factor),))
        return None


@dataclass(frozen=True)
class MergeSums(Rule):
    """(x + B) + D becomes x + (B + D)."""

    def apply(self, known: Known, at: int) -> Outcome:
        match known.steps[at : at + 2]:
            case Add(term=first), Add(term=second):
                return known.chain.replaced(at, at + 2, (Add(np.asarray(first + second, object)),))
        return None


@dataclass(frozen=True)
class FoldProduct(Rule):
    """(x * A + B) * C becomes x * (A C) + B C, only where no rounding stands between."""

    def apply(self, known: Known, at: int) -> Outcome:
        steps = known.steps
        match steps[at : at + 3]:
            case Multiply(factor=a), Add(term=b), Multiply(factor=c) if not is_rounded(steps, at + 2):
                folded = (Multiply(np.asarray(a * c, object)), Add(np.asarray(b * c, object)))
                return known.chain.replaced(at, at + 3, folded)
            case Round(), Add(), Multiply() if not is_rounded(steps, at + 2):
                return BETWEEN
        return None


@dataclass(frozen=True)
class ScaleBeforeRelu(Rule):
    """relu(x) * C becomes relu(x * C) for C > 0, where the product then joins the one before: (x * A + B) * C."""

    def apply(self, known: Known, at: int) -> Outcome:
        steps = known.steps
        match steps[at : at + 4]:
            case Multiply(factor=a), Relu(), Multiply(factor=c), *_ if not is_rounded(steps, at + 2):
                made: tuple[Step, ...] = (Multiply(np.asarray(a * c, object)), Relu())
                count = 3
            case Multiply(factor=a), Add(term=b), Relu(), Multiply(factor=c) if not is_rounded(steps, at + 3):
                made = (Multiply(np.asarray(a * c, object)), Add(np.asarray(b * c, object)), Relu())
                count = 4
            case Round(), Relu(), Multiply(), *_ if not is_rounded(steps, at + 2):
                return BETWEEN
            case _:
                return None
        if not all(value > 0 for value in c.flat):
            return "a factor is not positive"
        return known.chain.replaced(at, at + count, made)


@dataclass(frozen=True)
class ScaleBeforeSum(Rule):
    """(x * A + y * B) * C becomes x * (A C) + y * (B C): a product less, where no rounding stands between."""

    def apply(self, known: Known, at: int) -> Outcome:
        steps = known.steps
        match steps[at : at + 3]:
            case Multiply(factor=a), Sum(other=other, factor=b), Multiply(factor=c) if not is_rounded(steps, at + 2):
                if shared(b) == 1:
                    return "the other operand is no product"
                made = (Multiply(np.asarray(a * c, object)), Sum(other, np.asarray(b * c, object)))
                return known.chain.replaced(at, at + 3, made)
            case Round(), Sum(), Multiply() if not is_rounded(steps, at + 2):
                return BETWEEN
        return None


@dataclass(frozen=True)
class CarryShift(Rule):
    """round(x) + k becomes round(x + k) for integers k, limits between them moved by k, to join an earlier sum.

    Before a product it is k / f where that is an integer, else the earlier sum comes behind the product:
    (x + B) * f + k = x * f + (B f + k).
    """

    def apply(self, known: Known, at: int) -> Outcome:
        steps = known.steps
        step = steps[at]
        if not isinstance(step, Add):
            return None
        place = at - 1
        limits: list[Step] = []
        while place >= 0 and isinstance(steps[place], (Clip, Relu)):
            limits.insert(0, _moved(steps[place], step.term))
            place -= 1
        if place < 1 or not isinstance(steps[place], Round) or not isinstance(shift := steps[place - 1], Multiply):
            return None
        if not are_integers(step.term):
            return "what is added behind the rounding is no integer"
        term = np.asarray(step.term / shift.factor, object)
        rounded = (shift, steps[place], *limits)
        match steps[max(place - 3, 0) : place - 1]:
            case (*_, Add(term=b)):
                return known.chain.replaced(place - 2, at + 1, (Add(np.asarray(b + term, object)), *rounded))
            case Add(term=b), Multiply(factor=f):
                return known.chain.replaced(place - 3, at + 1, (*_before_product(b, f, term), *rounded))
        return "no sum stands before the rounding that could take it"


def _moved(step: Step, by: Array) -> Clip:
    """A limit that stood between a rounding and a sum, moved behind the sum."""
    lo, hi = (step.lo, step.hi) if isinstance(step, Clip) else (np.asarray(0 * by, object), None)
    return Clip(
        None if lo is None else np.asarray(lo + by, object), None if hi is None else np.asarray(hi + by, object)
    )


def _before_product(b: Array, f: Array, term: Array) -> tuple[Step, Step]:
    if all(f.flat):
        within = np.asarray(b + term / f, object)
        if are_integers(within):
            return Add(within), Multiply(f)
    return Multiply(f), Add(np.asarray(b * f + term, object))
