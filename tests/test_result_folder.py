"""Folders whose files are replaced together: locks that end with their process, and crashes that are made good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mrt.errors import BusyError, ModelFileError
from mrt.result_folder import FINISHED, LOCK, REMOVED, current, held, save_all, settled
from mrt.symbol.files import read_file

HOLD = """
import sys, time
from pathlib import Path
from mrt.result_folder import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def interrupted(folder: Path, files: dict[str, bytes], removed: object) -> None:
    """A folder as a crash leaves it right after the moment from which new files hold."""
    for name, content in {**files, REMOVED: json.dumps(removed).encode()}.items():
        path = folder / FINISHED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    with pytest.raises(BusyError, match=f"process {child.pid}"), held(tmp_path):
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert (tmp_path / LOCK).exists()
    with held(tmp_path) as has_locks:
        assert has_locks
    assert list(tmp_path.iterdir()) == []


def test_one_at_a_time_holds_a_folder(tmp_path: Path) -> None:
    """Also while those who are done remove the lock's file."""
    inside, most, done = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        ends = time.monotonic() + 1
        while time.monotonic() < ends:
            try:
                with held(tmp_path):
                    inside += 1
                    most = max(most, inside)
                    done += 1
                    time.sleep(0)
                    inside -= 1
            except BusyError:
                time.sleep(0)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert most == 1 and done > 20


def test_what_a_crash_left_is_read_where_it_lies_and_ended_by_who_writes_next(tmp_path: Path) -> None:
    save_all(tmp_path, {"a": b"old", "b": b"old", "c": b"old"})
    interrupted(tmp_path, {"a": b"new", "below/d": b"new"}, ["b", "absent"])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    found = {name: current(tmp_path, name) for name in ("a", "b", "c", "below/d", "absent")}
    assert {name: path.read_bytes() for name, path in found.items() if path.exists()} == {
        "a": b"new",
        "c": b"old",
        "below/d": b"new",
    }
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, "who reads changes nothing"
    save_all(tmp_path, {"e": b"newer"})
    assert contents(tmp_path) == {"a": b"new", "c": b"old", "below/d": b"new", "e": b"newer"}
    assert not (tmp_path / FINISHED).exists()


def test_a_reader_reads_again_what_is_moved_meanwhile(tmp_path: Path) -> None:
    interrupted(tmp_path, {"a": b"new"}, [])
    entered = threading.Event()

    def move() -> None:
        with held(tmp_path):
            (tmp_path / FINISHED / "a").replace(tmp_path / "aside")
            entered.set()
            time.sleep(0.2)
            (tmp_path / "aside").replace(tmp_path / "a")

    other = threading.Thread(target=move)
    other.start()
    entered.wait()
    assert settled(tmp_path, lambda: read_file(current(tmp_path, "a"), 10)) == b"new"
    other.join()


def test_a_link_leads_nobody_out_of_the_folder(tmp_path: Path) -> None:
    """Whoever made the folder may have put links there."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    (outside / "kept").write_bytes(b"here")
    interrupted(folder, {"stages/new": b"new"}, ["stages/kept"])
    (folder / "stages").symlink_to(outside)
    with pytest.raises(ModelFileError, match="stages leads out of .*folder; remove that link"):
        save_all(folder, {"a": b"new"})
    assert contents(outside) == {"kept": b"here"}
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / LOCK).symlink_to(outside / "kept")
    with pytest.raises(ModelFileError, match="cannot be written"):
        save_all(aside, {"a": b"new"})
    assert contents(outside) == {"kept": b"here"}


@pytest.mark.parametrize("names", [["../outside"], ["/etc/passwd"], ["below/../../outside"], [""], [1], {}])
def test_nothing_outside_of_the_folder_is_removed(tmp_path: Path, names: object) -> None:
    (tmp_path / "outside").write_bytes(b"here")
    interrupted(tmp_path / "folder", {"a": b"new"}, names)
    with pytest.raises(ModelFileError, match=r"removed\.json is no list of files of that folder; remove"):
        save_all(tmp_path / "folder", {"a": b"newer"})
    assert (tmp_path / "outside").read_bytes() == b"here"


def test_files_that_do_not_fit_leave_the_former_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_all(tmp_path / "model", {"a": b"old", "b": b"old"})
    synced: list[int] = []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch, pytest.raises(ModelFileError, match="No space left"):
        patch.setattr("os.fsync", full)
        save_all(tmp_path / "model", {"a": b"new", "b": b"new"}, ["c"])
    assert contents(tmp_path / "model") == {"a": b"old", "b": b"old"}
    (tmp_path / "model" / "c").mkdir()
    with pytest.raises(ModelFileError, match="Is a directory"):
        save_all(tmp_path / "model", {"a": b"new", "c": b"new"})
    assert contents(tmp_path / "model") == {"a": b"old", "b": b"old"}
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelFileError, match="Not a directory"):
        save_all(tmp_path / "file" / "model", {"a": b"new"})
