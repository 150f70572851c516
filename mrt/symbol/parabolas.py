"""Long tables whose entries lie on parabolas, so that a vector of places needs no memory but three short tables.

The places of a table, from the first to the last one whose entry differs from its neighbours', are cut into at most 64
segments of 2^k each. At place j of segment s stands

    least + ((base[s] + times(rise[s] + times(bend[s]))) >> finer),   times(x) = round(x j / 2^k), halves up,

in numbers of 16 bits; places before the first one and behind the last have the entries of these. A smooth function is
such a table but for a part of a step of its output (`near_parabolas`); one whose entries are bytes mostly is one as it
is.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import blake2b
from threading import Lock

import numpy as np

from mrt.symbol.interval import Array
from mrt.symbol.parabola_search import Bounds, closest, parts, risen, rounded

SEGMENT_BITS, WORD = 6, 16
"""Of the number of a segment, and of the numbers of a table."""
SEGMENTS = 1 << SEGMENT_BITS
"""So many a table has at most."""
PRECISION = 14
"""2^-PRECISION of what entries span they may be moved."""
SURE = 0.25
"""How close to an entry a function is where all places beyond have that entry."""
KEPT = 4096
"""Of so many tables what was found is kept, by digest: a recurrent layer that is written out has some for each step,
and a network is expanded a few times before it is compiled."""
BETWEEN, MOST_ROUNDS = 4, 4
"""2^BETWEEN places of each segment are looked at in any case; how often those are added that turn out to be missed, as
what is rounded goes up and down by one."""


@dataclass(frozen=True)
class Frame:
    """What of a table parabolas cover: the places from `first` to `last`, whose entries are `levels` integers from
    `lowest` on."""

    first: int
    last: int
    lowest: int
    levels: int

    @classmethod
    def of(cls, table: Array) -> Frame:
        lowest, changes = int(table.min()), np.flatnonzero(table[1:] != table[:-1])
        first, last = (int(changes[0]), int(changes[-1]) + 1) if changes.size else (0, 0)
        return cls(first, last, lowest, int(table.max()) - lowest + 1)

    def within(self, serve: Array) -> Frame:
        """The same to the next places outwards that serve, as far as there are any."""
        before, behind = np.flatnonzero(serve[: self.first + 1]), np.flatnonzero(serve[self.last :])
        first = int(before[-1]) if before.size else 0
        return replace(self, first=first, last=self.last + int(behind[0]) if behind.size else len(serve) - 1)

    @property
    def step(self) -> int:
        """k."""
        step = 0
        while (self.last >> step) - (self.first >> step) >= SEGMENTS:
            step += 1
        return step

    @property
    def origin(self) -> int:
        """Where the first segment begins: at a multiple of 2^k, so that segments stay where they are if ends move."""
        return self.first >> self.step << self.step

    @property
    def finer(self) -> int:
        """Bits by which bases are finer than entries."""
        return min(WORD - (self.levels - 1).bit_length(), max(self.step, 1))

    @property
    def least(self) -> int:
        """What stands for bases of 0: so far below the entries that 16 bits have as much room above them."""
        return self.lowest - ((1 << WORD - self.finer) - self.levels) // 2

    @property
    def places(self) -> Array:
        """All that are covered, from the origin on."""
        return np.arange(self.first, self.last + 1) - self.origin

    @property
    def starts(self) -> Array:
        """At which of them segments begin."""
        return np.flatnonzero(np.diff(self.places >> self.step, prepend=-1))


@dataclass(frozen=True, eq=False)
class Parabolas:
    """frame: what of the table they cover. bases, rises, bends: of each segment, uint16 and int16; sums of them are
    formed modulo 2^16."""

    frame: Frame
    bases: Array
    rises: Array
    bends: Array

    def entries(self, size: int) -> Array:
        """The table of `size` entries, int64."""
        frame = self.frame
        place = np.clip(np.arange(size), frame.first, frame.last) - frame.origin
        segment = place >> frame.step
        above = self.bases[segment] + risen(self.rises[segment], self.bends[segment], place, frame.step)
        return np.asarray((above % (1 << WORD) >> frame.finer) + frame.least)


def parabolas_of(table: Array) -> Parabolas | None:
    """Parabolas on which all entries of a table (N,) of integers lie; None where none are found."""
    table = np.ascontiguousarray(table, np.int64)
    digest = blake2b(table.data, digest_size=16).digest()
    with _LOCK:
        if digest in _KNOWN:
            _KNOWN.move_to_end(digest)
            return _KNOWN[digest]
    found = _sought(table)
    with _LOCK:
        _KNOWN[digest] = found
        if len(_KNOWN) > KEPT:
            _KNOWN.popitem(last=False)
    return found


_KNOWN: OrderedDict[bytes, Parabolas | None] = OrderedDict()
"""By the digest of a table what was found, that which was asked for last behind the others."""
_LOCK = Lock()


def _sought(table: Array) -> Parabolas | None:
    frame = Frame.of(table)
    if frame.levels > 1 << WORD:
        return None
    covered = table[frame.first : frame.last + 1] - frame.least
    asked = _telling(frame, covered)
    for _ in range(MOST_ROUNDS):
        bounds = Bounds.of(frame.places[asked], covered[asked] << frame.finer, frame.finer, frame.step)
        rises, bends = bounds.fitted()
        room, bases = bounds.room(rises, bends)
        made = None if (room < 0).any() else _in_words(frame, bases, rises, bends)
        if made is None:
            return None
        differs = made.entries(len(table)) != table
        if not differs.any():
            return made
        asked = asked | differs[frame.first : frame.last + 1]
    return None


def _telling(frame: Frame, covered: Array) -> Array:
    """Whether places say between which parabolas must be: where an entry or a segment begins or ends, and some more, as
    parabolas turn between these."""
    segment = frame.places >> frame.step
    changes = (covered[1:] != covered[:-1]) | (segment[1:] != segment[:-1])
    some = frame.places & ((1 << frame.step >> BETWEEN) - 1) == 0
    return np.asarray(np.append(changes, True) | np.append(True, changes) | some)


def near_parabolas(steps: Array, entries: Array) -> Array:
    """Entries (N,) that lie on parabolas close to a function, or those given: where these do lie on some, or where none
    serve, as of functions that jump.

    Each is at most 1/2 + 2^-PRECISION times what `entries` span from the function.
    steps: the function itself at each place, in steps of the output, float64. entries: it rounded.
    """
    frame = Frame.of(entries)
    if frame.levels > 1 << WORD or parabolas_of(entries) is not None:
        return entries
    frame = frame.within(np.abs(steps - entries) <= SURE)
    # Where 16 bits have no room beside the entries, what is rounded needs some.
    margin = 1 if frame.finer == 0 else 0
    held = np.clip(steps, frame.lowest + margin, frame.lowest + frame.levels - 1 - margin)
    exact = (held[frame.first : frame.last + 1] - frame.least) * 2.0**frame.finer
    bases, rises, bends = rounded(_fitted(frame, exact))
    parabolas = _in_words(frame, bases + ((1 << frame.finer) >> 1), rises, bends)
    if parabolas is None:
        return entries
    made = parabolas.entries(len(entries))
    is_near = np.abs(made - steps).max() <= 0.5 + frame.levels * 2.0**-PRECISION
    is_within = entries.min() <= made.min() and made.max() <= entries.max()
    return made if is_near and is_within and parabolas_of(made) is not None else entries


def _fitted(frame: Frame, values: Array) -> Array:
    """Of each segment the base, rise and bend whose parabola is closest to the values, by squares: (3, segments)."""
    places = frame.places
    return closest(parts(places, frame.step), values, np.ones_like(values), frame.starts)


def _in_words(frame: Frame, bases: Array, rises: Array, bends: Array) -> Parabolas | None:
    """The parabolas if 16 bits hold rises wherever they are."""
    if max(np.abs(rises).max(), np.abs(bends).max(), np.abs(rises + bends).max()) >= 1 << (WORD - 1):
        return None
    return Parabolas(frame, (bases % (1 << WORD)).astype(np.uint16), rises.astype(np.int16), bends.astype(np.int16))
