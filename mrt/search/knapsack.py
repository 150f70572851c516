"""Which option each item takes: the least error for a cost, and the least cost for an error.

Costs and errors of items add up. By Lagrange's multiplier every assignment that minimises error + λ · cost is one of
least error for what it costs; as λ falls from infinity to 0 these form a path from the cheapest assignment to the most
accurate one, on which one item changes at a time. (H. Everett, "Generalized Lagrange multiplier method for solving
problems of optimum allocation of resources", 1963.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Option:
    """One of the ways to do something. choice: what it is, such as bits."""

    choice: int
    cost: float
    error: float


@dataclass(frozen=True)
class Assignment:
    """The choice of every item, with the sums of their costs and errors."""

    choices: tuple[int, ...]
    cost: float
    error: float


def hull(options: Sequence[Option]) -> tuple[Option, ...]:
    """The options that are best for some λ > 0, by rising cost and falling error: the lower convex hull.

    Of options of the same cost and error the first is taken.
    """
    found: list[Option] = []
    for option in sorted(options, key=lambda option: (option.cost, option.error)):
        if found and option.error >= found[-1].error:
            continue
        while len(found) > 1 and _gain(found[-2], found[-1]) <= _gain(found[-2], option):
            found.pop()
        found.append(option)
    return tuple(found)


def lagrange_path(items: Sequence[Sequence[Option]]) -> tuple[Assignment, ...]:
    """The assignments that are best for some λ, from the cheapest to the most accurate one.

    items: the options of each, at least one. Of equal gains the first item's comes first, so that the path depends on
    its arguments alone.
    """
    hulls = [hull(options) for options in items]
    steps = sorted(
        (-_gain(low, high), item, place)
        for item, found in enumerate(hulls)
        for place, (low, high) in enumerate(pairwise(found))
    )
    taken = [0] * len(hulls)
    path = [_assigned(hulls, taken)]
    for _, item, _ in steps:
        taken[item] += 1
        path.append(_assigned(hulls, taken))
    return tuple(path)


def least_error(items: Sequence[Sequence[Option]], budget: float) -> Assignment | None:
    """The assignment of the path that costs at most `budget` and has the least error; None where none costs so little.

    It is the best of all for what it costs; what is left of the budget may buy more than the path shows.
    """
    return next((found for found in reversed(lagrange_path(items)) if found.cost <= budget), None)


def least_cost(items: Sequence[Sequence[Option]], error: float) -> Assignment | None:
    """The cheapest assignment of the path whose error is at most `error`; None where none has so little."""
    return next((found for found in lagrange_path(items) if found.error <= error), None)


def _gain(low: Option, high: Option) -> float:
    """How much error the dearer option saves for each unit that it costs more."""
    return (low.error - high.error) / (high.cost - low.cost)


def _assigned(hulls: Sequence[Sequence[Option]], taken: Sequence[int]) -> Assignment:
    chosen = [found[place] for found, place in zip(hulls, taken, strict=True)]
    return Assignment(
        tuple(option.choice for option in chosen),
        sum(option.cost for option in chosen),
        sum(option.error for option in chosen),
    )
