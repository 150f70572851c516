"""Work at once is the same work one after the other: results, errors and what is drawn."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mrt.workers import DEEP_STACK, cores, in_order, on_deep_stack


@pytest.fixture(params=[1, 2, 4])
def count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many cores there seem to be."""
    monkeypatch.setattr("mrt.workers.cores", lambda: request.param)
    return int(request.param)


def test_results_come_in_the_order_of_the_items(count: int) -> None:
    assert list(in_order(lambda n: n * n, range(50))) == [n * n for n in range(50)]
    assert list(in_order(str, [])) == []


def test_as_many_work_at_once_as_there_are_cores_or_fewer_are_asked_for(count: int) -> None:
    for most in (None, 1, 3):
        wanted = count if most is None else min(count, most)
        together = threading.Barrier(wanted, timeout=20)
        # Each waits for the others: it ends only where so many are at work at once.
        assert len({*in_order(lambda _, b=together: b.wait(), range(wanted), most)}) == wanted


def test_no_more_is_drawn_than_is_needed(count: int) -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for n in range(100):
            drawn.append(n)
            yield n

    for place, found in enumerate(in_order(lambda n: n, items())):
        assert found == place and len(drawn) <= place + 1 + count
    assert len(drawn) == 100


def test_errors_come_in_the_place_of_their_results(count: int) -> None:
    def items() -> Iterator[int]:
        yield from (1, 2, 0)
        raise KeyError("drawn")

    results = in_order(lambda n: 6 // n, items())
    assert [next(results), next(results)] == [6, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)
    results = in_order(lambda n: n, items())
    assert [next(results) for _ in range(3)] == [1, 2, 0]
    with pytest.raises(KeyError, match="drawn"):
        next(results)


def test_there_is_a_core() -> None:
    assert cores() >= 1


def test_a_deep_stack_is_had_by_that_work_alone() -> None:
    usual = threading.stack_size()
    here = threading.get_ident()
    assert on_deep_stack(threading.get_ident) != here
    assert threading.stack_size() == usual != DEEP_STACK
    with pytest.raises(ZeroDivisionError):
        on_deep_stack(lambda: 1 // 0)
