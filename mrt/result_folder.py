"""A folder of results that one process writes at a time, and whose files are replaced together.

1. `held` locks the folder for one process. The lock ends with the process, however that ends.
2. New files are made in a folder inside of it, beside those that are there and hold.
3. `commit` renames that folder to `FINISHED`. This is the moment from which the new files hold.
4. Each of them is moved to its place, and what they make untrue is removed.

A process that ends before 3 has changed nothing. What one leaves that ends later is finished by whoever writes next:
every step of 4 may be repeated (`finish`). Readers change nothing, so that any folder may be read: they look for each
file where it lies now (`current`), and read again where files were moved meanwhile (`settled`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from mrt.errors import BusyError, ModelFileError, MRTError
from mrt.symbol.files import atomic_write_all, check_replaceable, read_file
from mrt.symbol.limits import JSON_BYTES
from mrt.symbol.strict_json import parse_json

LOCK = ".lock"
FINISHED = ".finished"
SAVING = ".saving"
REMOVED = "removed.json"
"""In `FINISHED`, the names of the files that its others make untrue."""
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""What file systems say that know no locks."""
Result = TypeVar("Result")
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
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
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
    """Whether an open file is still the one at `path`: a former holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def current(folder: Path, name: str) -> Path:
    """Where the file `name` of a folder lies now: in `FINISHED` while a commit is not at its end, or was cut short.

    It need not be there. Raises ModelFileError where `FINISHED` is not as `commit` makes it.
    """
    finished = folder / FINISHED
    if finished.is_symlink() or not finished.is_dir():
        return folder / name
    moved = finished / name
    return moved if os.path.lexists(moved) or name in _removed(finished / REMOVED) else folder / name


def settled(folder: Path, read: Callable[[], Result]) -> Result:
    """What `read` gives, read again where files of the folder were moved meanwhile.

    Raises what it raises, once no other process is at it, or after a minute.
    """
    ends = time.monotonic() + PATIENCE
    while True:
        before = _changed(folder)
        try:
            return read()
        except MRTError:
            is_moving = (folder / FINISHED).is_dir() and _is_held(folder)
            if time.monotonic() > ends or not (is_moving or before != _changed(folder)):
                raise
        time.sleep(0.02)


def _changed(folder: Path) -> int:
    """When a name in the folder was changed last."""
    try:
        return folder.stat().st_mtime_ns
    except (OSError, ValueError):
        return 0


def _is_held(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def commit(folder: Path, made: Path, removed: Iterable[str] = ()) -> None:
    """Replaces files of `folder`, which is held, by those in `made`, a folder inside of it, which is gone then.

    removed: names of files that these make untrue. OSError or ModelFileError where that fails; the folder then holds
    the former files, or the new ones, which readers find by `current`.
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
        _inside(folder, folder / name).unlink(missing_ok=True)
    for path in _files_in(finished):
        if path.name != REMOVED:
            target = _inside(folder, folder / path.relative_to(finished))
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


def _inside(folder: Path, path: Path) -> Path:
    """`path`; ModelFileError where a link leads from the folder to it elsewhere."""
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise ModelFileError(f"{path.parent} leads out of {folder}; remove that link")
    return path


def _removed(path: Path) -> list[str]:
    """The names in `REMOVED`, none of which leads out of the folder."""
    if not os.path.lexists(path):  # nothing but the folder itself was left to remove
        return []
    try:
        names = parse_json(read_file(path, JSON_BYTES))
    except ModelFileError as error:
        raise ModelFileError(f"{path} is no list of files of that folder ({error}); remove {path.parent}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) and _is_inside(name) for name in names):
        raise ModelFileError(f"{path} is no list of files of that folder; remove {path.parent}")
    return names


def _is_inside(name: str) -> bool:
    return bool(name) and not os.path.isabs(name) and ".." not in Path(name).parts


def _sync(folder: Path) -> None:
    """Makes changed names of a folder survive a loss of power; no error where a file system cannot."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, *NO_LOCKS):
            raise
    finally:
        os.close(descriptor)
