"""The file of trials: what a process that was killed had finished is taken, what it wrote in part is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrt.errors import DataError
from mrt.search.trials import Record, TrialFile

ORIGINS = {"model": "a", "seed": 0}
RECORDS = [Record({"bits": bits}, {"error": 1 / bits}, 0.5) for bits in (8, 6, 3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of three trials."""
    file = TrialFile(tmp_path / "tune" / "trials.jsonl", ORIGINS)
    for record in RECORDS:
        file.add(record)
    return tmp_path / "tune" / "trials.jsonl"


def test_what_was_written_is_taken_in_order(path: Path) -> None:
    file = TrialFile(path, ORIGINS)
    assert (file.known, file.seconds, file.begun_anew) == (RECORDS, 1.5, "")
    assert [file.take(record.request) for record in RECORDS] == RECORDS
    assert file.take({"bits": 2}) is None


def test_a_file_cut_anywhere_keeps_its_whole_lines_and_grows_to_what_it_would_have_been(path: Path) -> None:
    whole = path.read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        file = TrialFile(path, ORIGINS)
        kept = max(sum(end < cut for end in ends) - 1, 0)
        assert file.known == RECORDS[:kept], cut
        for record in RECORDS[kept:]:
            file.add(record)
        assert path.read_bytes() == whole, cut


def test_a_line_that_was_changed_ends_what_is_taken(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b'"bits":6', b'"bits":5')
    path.write_bytes(b"\n".join(lines))
    assert TrialFile(path, ORIGINS).known == RECORDS[:1]


def test_lines_in_another_order_end_what_is_taken(path: Path) -> None:
    head, first, second, third, end = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([head, second, first, third, end]))
    assert TrialFile(path, ORIGINS).known == []


def test_trials_of_something_else_are_replaced(path: Path) -> None:
    file = TrialFile(path, {**ORIGINS, "seed": 1})
    assert (file.known, file.begun_anew) == ([], "seed")
    assert TrialFile(path, ORIGINS).begun_anew == "seed"


def test_another_question_than_the_known_one_is_an_error(path: Path) -> None:
    file = TrialFile(path, ORIGINS)
    with pytest.raises(DataError, match=r"trials\.jsonl.*remove the file"):
        file.take({"bits": 7})
