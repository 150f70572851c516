"""Entries by record: found along its bases, one for each record."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mrt.errors import GraphError
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.functions import Exp, FloatFunction, Square
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.registry import ByRecord


@dataclass(frozen=True)
class Steeper(Exp):
    op = "steeper"


def test_an_entry_serves_records_derived_from_its_own() -> None:
    entries: ByRecord[str] = ByRecord("colour")
    entries.add(FloatFunction, "red")
    assert [entries.find(record) for record in (FloatFunction, Exp, Steeper, Square)] == ["red", "red", "red", None]
    assert Steeper in entries
    assert Square not in entries


def test_the_nearest_base_counts_in_any_order_of_registration() -> None:
    for order in ([(FloatFunction, "red"), (Exp, "blue")], [(Exp, "blue"), (FloatFunction, "red")]):
        entries: ByRecord[str] = ByRecord("colour")
        for record, entry in order:
            entries.add(record, entry)
        assert entries.find(Steeper) == "blue"
        assert list(entries) == [record for record, _ in order]


def test_an_own_entry_takes_the_place_of_the_base() -> None:
    entries: ByRecord[str] = ByRecord("colour")
    entries.add(BatchDot, "red")
    assert entries.find(Dot) == "red"
    entries.add(Dot, "blue")
    assert entries.find(Dot) == "blue"
    assert entries.find(BatchDot) == "red"


def test_a_record_has_one_entry() -> None:
    entries: ByRecord[str] = ByRecord("colour")
    entries.add(Exp, "red")
    with pytest.raises(GraphError, match=r"Exp \(exp\).*colour"):
        entries.add(Exp, "red")
