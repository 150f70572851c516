"""Measuring in turns: whose turn it is, what is made of the times, and files that are made once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loaded import load_benchmark

in_turns = load_benchmark("in_turns")
ChildError = in_turns.ChildError


class Fake:
    """An engine whose calls take no time. fails_at: the turn in which it ends."""

    def __init__(self, name: str, log: list[str], fails_at: int = -1) -> None:
        self.name, self.log, self.fails_at, self.turns = name, log, fails_at, 0

    def measure(self, seconds: float) -> list[float]:
        self.log.append(self.name)
        self.turns += 1
        if self.turns == self.fails_at:
            raise ChildError("out of memory")
        return [self.turns + seconds] * 2


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_turns, "PAUSE", 0)


def test_turns_go_round_and_back() -> None:
    log: list[str] = []
    found = in_turns.race({name: Fake(name, log) for name in "abc"}, rounds=3, seconds=0.5)
    assert "".join(log) == "abccbaabc"
    assert found == {name: [1.5, 1.5, 2.5, 2.5, 3.5, 3.5] for name in "abc"}


def test_what_fails_has_no_further_turn() -> None:
    log: list[str] = []
    runners = {"a": Fake("a", log), "b": Fake("b", log, fails_at=2), "c": Fake("c", log)}
    found = in_turns.race(runners, rounds=4, seconds=0.5)
    assert "".join(log) == "abccbaacca"
    assert isinstance(found["b"], ChildError) and len(found["a"]) == len(found["c"]) == 8


def test_the_figure_is_the_median_of_all_calls() -> None:
    measured = in_turns.Measured([0.004, 0.001, 0.003, 0.002, 0.5], np.zeros(1))
    assert measured.milliseconds == pytest.approx(3)
    case = in_turns.Case("resnet8", 2, 16)
    facts = {"model": "resnet8", "engine": "ort-f32", "threads": 2, "batch": 16, "runs": 5}
    figures = {"median_ms": 3.0, "tenth_ms": 1.4, "nine_tenths_ms": 301.6}
    assert json.loads(json.dumps(case.facts(measured, engine="ort-f32"))) == pytest.approx(facts | figures)
    assert str(case) == "resnet8, 2 threads, batch 16" and str(in_turns.Case("m", 1, 1)) == "m, 1 thread, batch 1"


def test_cases_are_all_combinations() -> None:
    found = [(case.model, case.threads, case.batch) for case in in_turns.cases(["a", "b"], [1, 2], [16])]
    assert found == [("a", 1, 16), ("a", 2, 16), ("b", 1, 16), ("b", 2, 16)]


def test_the_cosine_is_of_all_outputs_together() -> None:
    a, b = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[4.0, 3.0], [0.0, 0.0]])
    assert in_turns.cosine(a, b) == pytest.approx(24 / 25)
    assert in_turns.cosine(a, -2 * a) == pytest.approx(-1)
    assert np.isnan(in_turns.cosine(a, np.zeros((2, 2))))
    assert np.isnan(in_turns.cosine(a, np.full((2, 2), np.nan)))


@contextmanager
def made_by_hand(log: list[Any], asked: dict[str, Any], environment: object) -> Iterator[Any]:
    """In place of a process: writes a file, or fails for one that is called wrong."""

    class Child:
        def reply(self, limit: float | None) -> dict[str, float]:
            log.append(asked)
            Path(asked["folder"], "file").write_text("half")
            if asked["arguments"].get("name") == "wrong":
                raise ChildError(f"{asked['folder']}/file: no such network")
            return {"seconds": 1.5}

    yield Child()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []
    monkeypatch.setattr(in_turns, "running", partial(made_by_hand, asked))
    return asked


def test_files_are_made_once_and_again_for_other_arguments(tmp_path: Path, log: list[Any]) -> None:
    store = in_turns.Store(tmp_path / "work")
    folders = [store.get("network", name=name, spread=1.0) for name in ("a", "a", "b")]
    assert folders[0] == folders[1] != folders[2] and len(log) == 2
    assert (folders[0] / "file").read_text() == "half" and in_turns.making_time(folders[0]) == 1.5
    later = in_turns.Store(tmp_path / "work")
    assert later.get("network", spread=1.0, name="a") == folders[0] and len(log) == 2
    one, other = (later.get("ort-int8", network=folder) for folder in (folders[0], folders[2]))
    assert one != other and log[-1]["arguments"] == {"network": str(folders[2])}


def test_names_do_not_depend_on_where_the_store_is(tmp_path: Path, log: list[Any]) -> None:
    found = []
    for place in ("here", "there"):
        store = in_turns.Store(tmp_path / place)
        found.append(store.get("ort-int8", network=store.get("network", name="a", spread=1.0)).name)
    assert found[0] == found[1]


def test_other_packages_or_sources_make_other_files(
    tmp_path: Path, log: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = in_turns.Store(tmp_path)
    first = store.get("network", name="a", spread=1.0)
    monkeypatch.setattr(in_turns, "version_of", lambda package: "999")
    second = store.get("network", name="a", spread=1.0)
    monkeypatch.setattr(in_turns, "_digest", lambda sources: "0" * 64)
    assert len({first, second, store.get("network", name="a", spread=1.0)}) == 3


def test_what_cannot_be_made_is_not_tried_again_and_leaves_nothing(tmp_path: Path, log: list[Any]) -> None:
    store = in_turns.Store(tmp_path)
    for _ in range(2):
        with pytest.raises(ChildError, match=r"^\.network\.\w+/file: no such network$"):
            store.get("network", name="wrong", spread=1.0)
    assert len(log) == 1 and list(tmp_path.iterdir()) == []


def test_a_process_that_fails_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ChildError) as error:
        in_turns.Store(tmp_path).get("network", name="resnet9", spread=1.0)
    assert str(error.value) == "KeyError: 'resnet9'"


def test_the_machine_is_told_with_its_instructions() -> None:
    found = in_turns.machine()
    assert "processors" in found and ("amx_int8 yes" in found or "amx_int8 no" in found)
    assert in_turns.version_of("numpy") == np.__version__ and in_turns.version_of("no-such-package") == ""


def test_what_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(in_turns, "SCRIPT", tmp_path / "slow.py")
    with in_turns.running({}, {}) as child, pytest.raises(ChildError, match="more than 0.2 seconds"):
        child.reply(0.2)
