"""The search for parabolas that give integers which are known to some bits (see `parabolas.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mrt.symbol.interval import Array

SLIGHT = 0.001
"""The weight of a place where no entry follows another one, beside that of a step."""
MOST_FITS, RISES, BENDS = 60, 5, 64
"""How often parabolas are fitted anew, and how far beside a guess numbers are tried."""
SIZES = tuple(2**n for n in range(7, -1, -1) for _ in range(3))
"""Of steps from a parabola to a better one, the largest first."""
WAYS = [(rise, bend) for rise in (-1, 0, 1) for bend in (-4, -2, -1, 0, 1, 2, 4) if (rise, bend) != (0, 0)]
"""In which rises and bends change in a step, rises beside what keeps a parabola where it is mostly."""
FEW_BENDS, HOPELESS = 3, 0.5
"""Of a table of parabolas so few bends serve more than this share of the segments."""
RIDGE = 1e-9
"""A share of what weighs on a parabola that says nothing of it, but where places say too little."""


def parts(places: Array, step: int) -> Array:
    """Which part of its segment a place has behind it."""
    return np.asarray((places & ((1 << step) - 1)) / (1 << step))


def closest(x: Array, values: Array, weights: Array, starts: Array) -> Array:
    """Of each segment the base, rise and bend whose squared distances from values, weighted, are least: (3, segments).

    x: the places, of segments that begin at `starts`. Where two parabolas are as close, that of the smaller numbers.
    """
    powers = [np.add.reduceat(weights * x**n, starts) for n in range(5)]
    products = np.stack([np.add.reduceat(weights * x**n * values, starts) for n in range(3)], axis=-1)
    matrix = np.stack([np.stack([powers[n + m] for n in range(3)], axis=-1) for m in range(3)], axis=-2)
    matrix += RIDGE * powers[0][:, None, None] * np.eye(3)
    return np.asarray(np.linalg.solve(matrix, products[..., None])[..., 0].T)


def rounded(fitted: Array) -> tuple[Array, Array, Array]:
    bases, rises, bends = np.rint(fitted).astype(np.int64)
    return bases, rises, bends


def risen(rise: Array, bend: Array, place: Array, step: int) -> Array:
    """times(rise + times(bend)) at places, whose lower bits are j."""
    within, half = place & ((1 << step) - 1), (1 << step) >> 1
    steepest = rise + ((bend.astype(np.int64) * within + half) >> step)
    return np.asarray((steepest * within + half) >> step)


@dataclass(frozen=True, eq=False)
class Bounds:
    """Between which integers parabolas must be at some places.

    places: these. starts: at which of them each segment begins. step: k.
    """

    places: Array
    starts: Array
    least: Array
    most: Array
    step: int

    @classmethod
    def of(cls, places: Array, least: Array, finer: int, step: int) -> Bounds:
        """Those of integers of which 2^finer are one entry, the least of these given."""
        starts = np.flatnonzero(np.diff(places >> step, prepend=-1))
        return cls(places, starts, least, least + (1 << finer) - 1, step)

    @cached_property
    def counts(self) -> Array:
        """Places of each segment."""
        return np.diff(np.append(self.starts, len(self.places)))

    @cached_property
    def slopes(self) -> Array:
        """Of the lines to which parabolas x^2 are closest: from x0 to x1 that is x0 + x1."""
        x, ends = parts(self.places, self.step), np.append(self.starts[1:], len(self.places)) - 1
        return np.asarray(x[self.starts] + x[ends])

    def only(self, segments: Array) -> Bounds:
        """Those of the segments of which a mask says so."""
        kept = np.repeat(segments, self.counts)
        starts = np.cumsum(self.counts[segments]) - self.counts[segments]
        return Bounds(self.places[kept], starts, self.least[kept], self.most[kept], self.step)

    def room(self, rises: Array, bends: Array) -> tuple[Array, Array]:
        """By how much the base of each segment may vary, less than 0 where there is none; and the least one."""
        numbers = np.repeat(rises, self.counts), np.repeat(bends, self.counts)
        above = risen(*numbers, self.places, self.step)
        least = np.maximum.reduceat(self.least - above, self.starts)
        return np.minimum.reduceat(self.most - above, self.starts) - least, least

    def fitted(self) -> tuple[Array, Array]:
        """Rises and bends that leave the bases of all segments room, as far as they are found.

        They are sought beside two guesses, one by one: numbers that are rounded leave little room.
        """
        rises, bends = self.beside(*self.across())
        lacking = self.room(rises, bends)[0] < 0
        if lacking.any() and lacking.mean() < HOPELESS:
            of = self.only(lacking)
            rises[lacking], bends[lacking] = of.beside(*of.roomier(*of.between()))
        return rises, bends

    def roomier(self, rises: Array, bends: Array) -> tuple[Array, Array]:
        """Those that leave more room, by steps uphill that become smaller."""
        slopes, best = self.slopes, self.room(rises, bends)[0]
        for size in SIZES:
            for rise, bend in WAYS:
                lower = np.rint(size * bend * slopes).astype(np.int64)
                tried = rises + size * rise - lower, bends + size * bend
                room, _ = self.room(*tried)
                rises, bends = (np.where(room > best, a, b) for a, b in zip(tried, (rises, bends), strict=True))
                best = np.maximum(best, room)
        return rises, bends

    def across(self) -> tuple[Array, Array]:
        """Those of parabolas that cross from one entry to the next about where the entries do, by squares."""
        x, middle = parts(self.places, self.step), (self.least + self.most) / 2
        # Neighbours with the same entry, or in another segment, count little: as places where nothing is crossed.
        follows = np.append(np.diff(self.places) == 1, False) & ~np.isin(np.arange(1, len(x) + 1), self.starts)
        is_step = follows & np.append(np.diff(self.least) != 0, False)
        following = np.append(middle[1:], 0.0)
        crossed, at = np.where(is_step, (middle + following) / 2, middle), x + is_step * 2.0 ** -(self.step + 1)
        _, rises, bends = rounded(closest(at, crossed, np.where(is_step, 1.0, SLIGHT), self.starts))
        return rises, bends

    def between(self) -> tuple[Array, Array]:
        """Those of parabolas whose largest distance from the middle is least.

        By weights that grow with the distance (Lawson, "Contributions to the Theory of Linear Least Maximum
        Approximation", 1961).
        """
        x, middle = parts(self.places, self.step), (self.least + self.most) / 2
        counts, weights = self.counts, np.ones_like(x)
        for _ in range(MOST_FITS):
            fitted = closest(x, middle, weights, self.starts)
            base, rise, bend = np.repeat(fitted, counts, axis=1)
            far = np.abs(base + (rise + bend * x) * x - middle)
            weights *= far / np.repeat(np.maximum.reduceat(far, self.starts) + RIDGE, counts) + RIDGE
            weights /= np.repeat(np.maximum.reduceat(weights, self.starts), counts)
        _, rises, bends = rounded(fitted)
        return rises, bends

    def beside(self, rises: Array, bends: Array) -> tuple[Array, Array]:
        """Rises and bends that leave room, the nearest to those given; these where none are found."""
        slopes, found, lacking, of = self.slopes, np.stack([rises, bends]), np.arange(len(rises)), self
        for bend in sorted(range(-BENDS, BENDS + 1), key=abs):
            held = rises[lacking] - np.rint(bend * slopes[lacking]).astype(np.int64), bends[lacking] + bend
            rooms = [of.room(held[0] + rise, held[1])[0] for rise in range(-RISES, RISES + 1)]
            best = np.argmax(rooms, axis=0)
            serves = np.max(rooms, axis=0) >= 0
            found[:, lacking[serves]] = np.stack([held[0] + best - RISES, held[1]])[:, serves]
            lacking, of = lacking[~serves], of.only(~serves) if serves.any() else of
            if not len(lacking) or (abs(bend) >= FEW_BENDS and len(lacking) > HOPELESS * len(rises)):
                break
        return found[0], found[1]
