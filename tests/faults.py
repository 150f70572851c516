"""Disks that take no more, and processes that end, at any change of a folder."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.symlink", "os.link")
"""What Python calls the changes of a folder, besides opening a file to be written."""


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Within it no file of this process or its children takes more bytes: it stands for a full disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


class Killed(BaseException):
    """The process has ended: nothing is changed any more, whatever is tried."""


class _Watch:
    """Counts the changes of a folder, and lets one of them fail, or that and all that follow.

    error: an error number, or None for the end of the process.
    """

    folder: str | None = None

    def arm(self, folder: Path, fails_at: int, error: int | None) -> None:
        self.folder, self.fails_at, self.error, self.count = str(folder), fails_at, error, 0

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.change(arguments[0])
        elif event in CHANGES:
            # Where a folder is given by its number, as when a tree is removed, the name says nothing.
            by_number = any(isinstance(each, int) and each > 2 for each in arguments[1:] if event != "os.mkdir")
            self.change(self.folder if by_number else arguments[0])

    def change(self, path: Any) -> None:
        if self.folder is None or not isinstance(path, (str, bytes, os.PathLike)):
            return
        if not os.fsdecode(path).startswith(self.folder):
            return
        self.count += 1
        if self.error is None and self.count >= self.fails_at:
            raise Killed
        if self.count == self.fails_at:
            raise OSError(self.error, os.strerror(self.error or 0), os.fsdecode(path))


_WATCH = _Watch()
_hooked = False


@contextmanager
def failing(folder: Path, fails_at: int = 0, error: int | None = 0) -> Iterator[_Watch]:
    """Within it the change of `folder` of that number, counted from 1, fails by that error, or by the end of all."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_WATCH.hook)
        _hooked = True
    with pytest.MonkeyPatch.context() as patch:
        sync = os.fsync

        def counted(descriptor: int) -> None:
            _WATCH.change(os.readlink(f"/proc/self/fd/{descriptor}"))
            sync(descriptor)

        patch.setattr("os.fsync", counted)
        _WATCH.arm(folder, fails_at, error)
        try:
            yield _WATCH
        finally:
            _WATCH.folder = None
