"""The sample of a test's cases: one in n, on a diagonal of its parameters."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiers import exhaustive


class Item:
    """As much of a test's case as says its tier."""

    parent, originalname = None, "test"

    def __init__(self, params: dict[str, Any], marks: list[pytest.Mark]) -> None:
        self.callspec, self.marks = SimpleNamespace(params=params), marks

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(iter(self.iter_markers(name)), None)


def run(cases: list[dict[str, Any]], *marks: pytest.MarkDecorator) -> list[dict[str, Any]]:
    """The cases that are not of the exhaustive tier."""
    items: list[Any] = [Item(case, [mark.mark for mark in marks]) for case in cases]
    left_out = exhaustive(items)
    return [item.callspec.params for item in items if item not in left_out]


CPUS, DTYPES = ["avx2", "avx512", "vnni", "neon"], ["uint8", "int8"]


def test_every_value_of_each_parameter_is_in_the_sample() -> None:
    cases = [{"cpu": cpu, "dtype": dtype} for cpu, dtype in product(CPUS, DTYPES)]
    kept = run(cases, pytest.mark.sampled(2), pytest.mark.parametrize("dtype", DTYPES))
    assert [(case["cpu"], case["dtype"]) for case in kept] == list(zip(CPUS, DTYPES * 2, strict=True))


def test_parameters_that_are_given_together_are_one() -> None:
    cases = [{"a": a, "b": b} for a, b in zip(CPUS, CPUS[::-1], strict=True)]
    kept = run(cases, pytest.mark.sampled(2), pytest.mark.parametrize(("a", "b"), []))
    assert [case["a"] for case in kept] == [CPUS[0], CPUS[2]]


def test_other_tests_are_run_whole_or_not_at_all() -> None:
    cases: list[dict[str, Any]] = [{"cpu": cpu} for cpu in CPUS]
    assert run(cases) == cases
    assert run(cases, pytest.mark.exhaustive) == []
