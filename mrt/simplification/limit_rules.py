"""Limits and roundings: dropped where they are idle, merged, and clips brought behind the rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.simplification.chain import Add, Clip, Multiply, Relu, Round, Step, Sum, fractions, shared
from mrt.simplification.rule import Known, Outcome, Rule
from mrt.symbol import Array


def as_clip(step: Step, rank: int) -> Clip | None:
    """A clip or a relu as a clip; None for other steps."""
    if isinstance(step, Relu):
        return Clip(fractions(0, rank), None)
    return step if isinstance(step, Clip) else None


@dataclass(frozen=True)
class DropIdleClip(Rule):
    """A clip, or a relu, whose limits the bounds do not exceed is dropped."""

    def apply(self, known: Known, at: int) -> Outcome:
        clip, interval = as_clip(known.steps[at], known.chain.rank), known.intervals[at]
        if clip is None or interval is None:
            return None
        if any(shared(limit) is None for limit in clip.limits):
            above = clip.lo is None or bool((clip.lo <= interval.lo).all())
            below = clip.hi is None or bool((clip.hi >= interval.hi).all())
        else:
            above = clip.lo is None or clip.lo.flat[0] <= interval.min
            below = clip.hi is None or clip.hi.flat[0] >= interval.max
        return known.chain.replaced(at, at + 1, ()) if above and below else None


@dataclass(frozen=True)
class MergeClips(Rule):
    """A clip of a clip, one of them maybe a relu, is one clip: its limits are those of the first, clipped."""

    def apply(self, known: Known, at: int) -> Outcome:
        if at + 1 >= len(known.steps):
            return None
        first, second = (as_clip(step, known.chain.rank) for step in known.steps[at : at + 2])
        if first is None or second is None:
            return None
        return known.chain.replaced(at, at + 2, (merged(first, second),))


def merged(first: Clip, second: Clip) -> Clip:
    """The one clip that does what `first` and then `second` do."""
    lo = second.lo if first.lo is None else second(first.lo)
    hi = second.hi if first.hi is None else second(first.hi)
    return Clip(lo, hi)


@dataclass(frozen=True)
class DropRelu(Rule):
    """A relu is dropped where a clip follows whose lower limit is at or above what 0 becomes on the way.

    The way may hold products with factors that are not negative, sums with constants, roundings and clips: they keep
    the order, so that what the relu cuts off comes out below the limit.
    """

    def apply(self, known: Known, at: int) -> Outcome:
        if not isinstance(known.steps[at], Relu):
            return None
        zero = fractions(0, known.chain.rank)
        for place, step in enumerate(known.steps[at + 1 :], at + 1):
            if isinstance(step, Sum):
                return None
            if isinstance(step, Multiply) and any(value < 0 for value in step.factor.flat):
                return "a factor is negative"
            if isinstance(step, Clip) and step.lo is not None and bool((zero <= step.lo).all()):
                return known.chain.replaced(at, place + 1, known.steps[at + 1 : place + 1])
            zero = step(zero)
        return None


@dataclass(frozen=True)
class ClipBehindAdd(Rule):
    """clip(x + A, l, h) + B becomes clip(x + A + B, l + B, h + B), whose two sums are one: B is often −A, a zero point
    that is taken off again."""

    def apply(self, known: Known, at: int) -> Outcome:
        match known.steps[at : at + 3]:
            case (Add(term=before), Clip() as clip, Add(term=after) as last):
                moved = Clip(_through((last,), clip.lo), _through((last,), clip.hi))
                if clip.is_per_tensor and not moved.is_per_tensor:
                    return "its limits would be by channel"
                return known.chain.replaced(at, at + 3, (Add(np.asarray(before + after, object)), moved))
        return None


@dataclass(frozen=True)
class ClipBehindRound(Rule):
    """round(clip(x, l, h) * A + B) becomes clip(round(x * A + B), round(l A + B), round(h A + B)) for A > 0.

    It is done where limits by channel become one for the tensor, or where the clip then joins the next.
    """

    def apply(self, known: Known, at: int) -> Outcome:
        steps, clip = known.steps, known.steps[at]
        if not isinstance(clip, Clip) or (at and isinstance(steps[at - 1], Clip)):
            return None
        first = at + 1
        while first < len(steps) and isinstance(following := steps[first], Clip):
            clip, first = merged(clip, following), first + 1
        stop = first
        while stop < len(steps) and isinstance(steps[stop], (Multiply, Add)):
            stop += 1
        if stop == len(steps) or stop == first or not isinstance(steps[stop], Round):
            return None
        way = steps[first : stop + 1]
        if any(isinstance(step, Multiply) and any(value <= 0 for value in step.factor.flat) for step in way):
            return "a factor is not positive"
        moved = Clip(_through(way, clip.lo), _through(way, clip.hi))
        next_clip = as_clip(steps[stop + 1], known.chain.rank) if stop + 1 < len(steps) else None
        if next_clip is not None:
            return known.chain.replaced(at, stop + 2, (*way, merged(moved, next_clip)))
        if clip.is_per_tensor:
            return None
        return (
            known.chain.replaced(at, stop + 1, (*way, moved)) if moved.is_per_tensor else "its limits stay by channel"
        )


def _through(steps: tuple[Step, ...], limit: Array | None) -> Array | None:
    if limit is None:
        return None
    for step in steps:
        limit = step(limit)
    return limit


@dataclass(frozen=True)
class DropRound(Rule):
    """The rounding of what is an integer already is dropped, with the factor of 1 of a shift by 0."""

    def apply(self, known: Known, at: int) -> Outcome:
        steps = known.steps
        if not isinstance(steps[at], Round) or not known.holds_integers(at):
            return None
        before = steps[at - 1] if at else None
        idle = isinstance(before, Multiply) and shared(before.factor) == 1
        return known.chain.replaced(at - idle, at + 1, ())
