"""Shifts round half up in every form that bounds allow."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from compiled import Bundle
from layers import runnable

from mrt.backend import TvmRunner
from mrt.backend.te.rounding import Rounding, choose_rounding
from mrt.symbol import Interval

INT32 = np.iinfo(np.int32)
CPUS = [cpu for cpu in ("x86-64", "x86-64-v3", "cascadelake") if cpu in runnable()]


def half_up(x: int, s: int) -> int:
    return x if s == 0 else floor(Fraction(x, 2**s) + Fraction(1, 2))


@pytest.mark.parametrize(
    ("lo", "hi", "shift", "form"),
    [
        (0, INT32.max, [0, 1, 31], Rounding.UNSIGNED),
        (-1, INT32.max - 2**30, [31], Rounding.ADDED),
        (-1, INT32.max - 2**30 + 1, [31], Rounding.TWO_SHIFTS),
        (INT32.min, INT32.max - 1, [0, 1], Rounding.ADDED),
        (INT32.min, INT32.max, [0], Rounding.ADDED),
        (INT32.min, INT32.max, [1], None),
        (INT32.min, INT32.max, [2, 31], Rounding.TWO_SHIFTS),
    ],
)
def test_the_cheapest_exact_form_is_chosen(lo: int, hi: int, shift: list[int], form: Rounding | None) -> None:
    assert choose_rounding(Interval.of(lo, hi, (5,)), np.array(shift, np.int8)) is form


def test_the_form_is_chosen_by_the_bounds_of_each_channel() -> None:
    bounds = Interval.of(np.full((2, 1), -5), np.array([[INT32.max - 1], [INT32.max - 2**30]]), (2, 3))
    assert choose_rounding(bounds, np.array([[1], [31]])) is Rounding.ADDED
    assert choose_rounding(bounds, np.array([[31], [1]])) is None


@pytest.mark.parametrize("cpu", CPUS)
def test_every_form_rounds_at_the_ends_of_32_bits(cpu: str) -> None:
    """Data is clipped to where a form is just exact; the oracle is floor(x / 2^s + 1/2) in fractions."""
    ends = [INT32.min, INT32.min + 1, -(2**30) - 1, -3, -2, -1, 0, 1, 2, 3, 2**30, INT32.max - 1, INT32.max]
    bundle, expected = Bundle(), []
    x = bundle.input(np.array(ends, np.int32))
    for s in (1, 2, 7, 30, 31):
        for lo, hi in ((0, INT32.max), (INT32.min, INT32.max - 2 ** (s - 1)), (INT32.min, INT32.max)):
            held = bundle.hidden("clip", x, a_min=lo, a_max=hi)
            bundle.add("right_shift", held, bundle.parameter(np.full(1, s, np.int8)))
            expected.append([half_up(min(max(v, lo), hi), s) for v in ends])
    found = TvmRunner({"kind": "llvm", "mcpu": cpu}).prepare(bundle.graph())(bundle.feeds)
    assert [values.tolist() for values in found] == expected
