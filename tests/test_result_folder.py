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

from mrt.errors import BusyError, ModelFileError, VerificationError
from mrt.result_folder import FINISHED, LOCK, REMOVED, current, finish, held, save_all, settled

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


def test_what_a_crash_left_is_read_as_it_holds_and_ended_by_the_next_writer(tmp_path: Path) -> None:
    save_all(tmp_path, {"a": b"old", "b": b"old", "c": b"old"})
    interrupted(tmp_path, {"a": b"new", "below/d": b"new"}, ["b", "absent"])
    before = contents(tmp_path)

    def read(name: str) -> bytes | None:
        path = current(tmp_path, name)
        return path.read_bytes() if path.exists() else None

    assert [read(name) for name in ("a", "b", "c", "below/d")] == [b"new", None, b"old", b"new"]
    assert contents(tmp_path) == before
    with held(tmp_path):
        finish(tmp_path)
        finish(tmp_path)
    assert contents(tmp_path) == {"a": b"new", "c": b"old", "below/d": b"new"}


def test_a_reader_waits_for_a_process_that_moves_files(tmp_path: Path) -> None:
    """It met two files of different runs, and reads again."""
    (tmp_path / "a").write_bytes(b"old")
    entered = threading.Event()
    seen: list[bytes] = []

    def move() -> None:
        with held(tmp_path):
            interrupted(tmp_path, {"a": b"new"}, [])
            entered.set()
            time.sleep(0.2)
            finish(tmp_path)

    def read() -> bytes:
        seen.append((tmp_path / "a").read_bytes())
        if seen[-1] == b"old":
            raise VerificationError("it is not the new one")
        return seen[-1]

    other = threading.Thread(target=move)
    other.start()
    entered.wait()
    assert settled(tmp_path, read) == b"new" and len(seen) > 1
    other.join()


def test_an_error_of_a_folder_at_rest_is_raised_at_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def read() -> None:
        calls.append(1)
        raise VerificationError("wrong")

    with pytest.raises(VerificationError, match="wrong"):
        settled(tmp_path, read)
    assert len(calls) == 1


@pytest.mark.parametrize("names", [["../outside"], ["/etc/passwd"], ["below/../../outside"], [""], [1], {}])
def test_nothing_outside_of_the_folder_is_removed(tmp_path: Path, names: object) -> None:
    (tmp_path / "outside").write_bytes(b"here")
    interrupted(tmp_path / "folder", {"a": b"new"}, names)
    with held(tmp_path / "folder"), pytest.raises(ModelFileError, match=r"removed\.json is no list of files"):
        finish(tmp_path / "folder")
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
