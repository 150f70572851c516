"""Tables on parabolas: what they stand for, when they are found, and how far entries are moved to lie on some."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.symbol import Array, parabolas
from mrt.symbol.parabolas import PRECISION, SEGMENTS, near_parabolas, parabolas_of

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "falling": lambda x: -np.exp(x / 4),
}


def sampled(name: str, reach: float, places: int, levels: int) -> tuple[Array, Array]:
    """A function in steps of the output, `levels` of them from its least to its greatest value, and rounded."""
    values = FUNCTIONS[name](np.linspace(-reach, reach, places))
    steps = (values - values.min()) / np.ptp(values) * (levels - 1)
    return steps, np.rint(steps).astype(np.int64)


@pytest.mark.parametrize("name", ["silu", "gelu", "sigmoid", "tanh", "softplus"])
@pytest.mark.parametrize("reach", [2.0, 5.0, 8.0])
def test_bytes_of_4096_places_lie_on_parabolas_as_they_are(name: str, reach: float) -> None:
    _, entries = sampled(name, reach, 4095, 256)
    found = parabolas_of(entries)
    assert found is not None and len(found.bases) <= SEGMENTS
    np.testing.assert_array_equal(found.entries(len(entries)), entries)


@pytest.mark.parametrize("levels", [256, 4096, 2**14, 2**16])
@pytest.mark.parametrize("name", ["silu", "sigmoid", "softplus", "falling"])
def test_entries_of_many_places_are_moved_by_little(name: str, levels: int) -> None:
    steps, entries = sampled(name, 5.0, 2**16, levels)
    near = near_parabolas(steps, entries)
    found = parabolas_of(near)
    assert found is not None
    np.testing.assert_array_equal(found.entries(len(near)), near)
    assert np.abs(near - steps).max() <= 0.5 + levels * 2.0**-PRECISION
    assert entries.min() <= near.min() and near.max() <= entries.max()
    # Numbers of 16 bits are rounded themselves where entries have as many.
    share = 1.5 if levels <= 2**14 else 3.0
    assert np.square(near - steps).mean() <= share * np.square(entries - steps).mean()


def test_one_that_saturates_keeps_its_ends() -> None:
    steps, _ = sampled("silu", 8.0, 2**16, 2**13)
    steps = np.minimum(steps, 2**12 - 1)
    near = near_parabolas(steps, np.rint(steps).astype(np.int64))
    assert parabolas_of(near) is not None
    assert (near[steps == 2**12 - 1] == 2**12 - 1).all()


def test_what_jumps_or_is_drawn_is_left_alone() -> None:
    x = np.linspace(-4, 4, 2**16)
    drawn = np.random.default_rng(0).integers(-(2**15), 2**15, 2**16)
    for steps in (np.floor(x) * 1000, np.where(x > 0.1, 20_000.0, -20_000.0) + 500 * x, drawn.astype(np.float64)):
        entries = np.rint(steps).astype(np.int64)
        assert near_parabolas(steps, entries) is entries
    assert parabolas_of(drawn) is None
    assert parabolas_of(np.array([0, 2**20])) is None


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=3), st.integers(1, 40))
def test_tables_of_few_entries(values: list[int], times: int) -> None:
    """Found or not, what is found is the table."""
    table = np.repeat(values, times)
    found = parabolas_of(table)
    if found is not None:
        np.testing.assert_array_equal(found.entries(len(table)), table)
    if max(values) - min(values) < 2**16:
        assert found is not None


def test_the_formula() -> None:
    """In Python's integers, at every place: sums are formed modulo 2^16, products are not."""
    _, entries = sampled("gelu", 6.0, 2**16, 4096)
    found = parabolas_of(near_parabolas(sampled("gelu", 6.0, 2**16, 4096)[0], entries))
    assert found is not None
    frame = found.frame
    half = 2**frame.step // 2
    for place in (0, frame.first, 20_000, 32_768, 40_001, frame.last, 2**16 - 1):
        segment, j = divmod(min(max(place, frame.first), frame.last) - frame.origin, 2**frame.step)
        steepest = int(found.rises[segment]) + ((int(found.bends[segment]) * j + half) >> frame.step)
        above = (int(found.bases[segment]) + ((steepest * j + half) >> frame.step)) % 2**16
        assert found.entries(2**16)[place] == (above >> frame.finer) + frame.least


def test_what_was_found_of_a_table_is_not_sought_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there are parabolas or none, of any dtype of the same entries, as long as so many tables are kept."""
    sought, seek = [], parabolas._sought
    monkeypatch.setattr(parabolas, "_KNOWN", type(parabolas._KNOWN)())
    monkeypatch.setattr(parabolas, "_sought", lambda table: sought.append(table) or seek(table))
    monkeypatch.setattr(parabolas, "KEPT", 2)
    smooth, jumping, other = sampled("silu", 5.0, 4095, 256)[1], np.resize([0, 60_000], 4095), np.arange(300)
    first = parabolas_of(smooth)
    assert first is not None and parabolas_of(jumping) is None
    assert parabolas_of(smooth.astype(np.int32)) is first and parabolas_of(jumping) is None
    assert len(sought) == 2
    parabolas_of(smooth)
    parabolas_of(other)  # in place of the one that was asked for before the others
    assert parabolas_of(smooth) is first and len(sought) == 3
    parabolas_of(jumping)
    assert len(sought) == 4
