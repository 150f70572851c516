"""A folder of results that one process writes at a time, and whose files are replaced together.

1. `held` locks the folder for one process. The lock ends with the process, however that ends.
2. New files are made in a folder inside of it, beside those that are there and hold.
3. `commit` renames that folder to `FINISHED`. This is the moment from which the new files hold.
4. Each of them is moved to its place, and what they make untrue is removed.

A process that ends before 3 has changed nothing. One that ends later is finished by whoever opens the folder next:
every step of 4 may be repeated (`settle`). So all readers of such a folder call `settle` first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mrt.errors import BusyError, ModelFileError
from mrt.symbol.files import atomic_write_all, check_replaceable

LOCK = ".lock"
FINISHED = ".finished"
SAVING = ".saving"
REMOVED = "removed.json"
"""In `FINISHED`, the names of the files that its others make untrue."""
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""What file systems say that know no locks."""
PATIENCE = 60.0
"""Seconds that a reader waits for a process that is moving files."""


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Keeps other processes from writing into `folder`, which is there; gives whether its file system has locks.

    Raises BusyError at once where another process, or another thread, holds it; OSError where it cannot be written.
    """
    path = folder / LOCK
    descriptor, has_locks = _locked(path)
    try:
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, f"{os.getpid():<20}".encode(), 0)
        yield has_locks
    finally:
        try:
            with contextlib.suppress(OSError):
                path.unlink()
        finally:
            os.close(descriptor)


def _locked(path: Path) -> tuple[int, bool]:
    """A descriptor of the file at `path`, locked, and whether that is possible."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            has_locks = _lock(descriptor)
            if _is_at(descriptor, path):
                return descriptor, has_locks
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            process = f"process {holder}" if holder.isdigit() else "another process"
            raise BusyError(
                f"{path.parent} is being written by {process}; wait until that ends or choose another folder"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Locks a file; False where its file system cannot. BlockingIOError where another descriptor holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is that at `path`, and none that its former holder has removed since."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def settle(directory: str | os.PathLike[str]) -> None:
    """Ends what a crash left of a `commit` in `directory`; nearly always there is nothing to do.

    Waits where another process is at it. Raises ModelFileError where the folder cannot be written.
    """
    folder, ends = Path(directory), time.monotonic() + PATIENCE
    while (folder / FINISHED).is_dir():
        try:
            with held(folder):
                finish(folder)
        except BusyError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.02)
        except OSError as error:
            raise ModelFileError(
                f"{folder} holds new files that are not in place yet, and cannot be written: "
                f"{error.strerror or error}; open it once as a user who may write there"
            ) from None


def commit(folder: Path, made: Path, removed: Iterable[str] = ()) -> None:
    """Replaces files of `folder`, which is held, by those in `made`, a folder inside of it, which is gone then.

    removed: names of files that these make untrue. OSError or ModelFileError where that fails; the folder then holds
    the former files, or the new ones once `settle` has been called.
    """
    names = [str(path.relative_to(made)) for path in _files_in(made)]
    for name in names:
        check_replaceable(folder / name)
    atomic_write_all({made / REMOVED: json.dumps(sorted(set(removed) - set(names))).encode()})
    for path in {path.parent for path in _files_in(made)}:
        _sync(path)
    made.rename(folder / FINISHED)
    _sync(folder)
    finish(folder)


def finish(folder: Path) -> None:
    """Step 4, in a folder that is held."""
    finished = folder / FINISHED
    if not finished.is_dir():
        return
    for name in _removed(finished / REMOVED):
        (folder / name).unlink(missing_ok=True)
    for path in _files_in(finished):
        if path.name != REMOVED:
            target = folder / path.relative_to(finished)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
    _sync(folder)
    shutil.rmtree(finished)


def save_all(folder: Path, files: Mapping[str, bytes], removed: Iterable[str] = ()) -> None:
    """Replaces files of `folder`, which is made if it is missing, all or none; removes those called `removed`.

    Raises BusyError where another process writes there, ModelFileError where nobody can.
    """
    made = folder / SAVING
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder):
            finish(folder)
            if made.exists():
                shutil.rmtree(made)
            made.mkdir()
            try:
                atomic_write_all({made / name: content for name, content in files.items()})
                commit(folder, made, removed)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
    except OSError as error:
        raise ModelFileError(
            f"{folder} cannot be written: {error.strerror or error}; make room, mend its permissions or name "
            f"another folder"
        ) from None


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def _removed(path: Path) -> list[str]:
    """The names in `REMOVED`, none of which leads out of the folder."""
    try:
        names = json.loads(path.read_bytes())
    except FileNotFoundError:  # nothing but the folder itself was left to remove
        return []
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and _is_inside(name) for name in names):
        raise ModelFileError(f"{path} is no list of files of that folder; remove {path.parent}")
    return names


def _is_inside(name: str) -> bool:
    return bool(name) and not os.path.isabs(name) and ".." not in Path(name).parts


def _sync(folder: Path) -> None:
    """Has names that were changed in a folder outlast a loss of power; no error where a file system cannot."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, *NO_LOCKS):
            raise
    finally:
        os.close(descriptor)
