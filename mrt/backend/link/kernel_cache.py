"""Machine code that was made before, in a folder of the user's: found by a digest of all that it was made of.

An entry is trusted no further than whoever may write into the folder: see docs/trust.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mrt.errors import CompilationError

VARIABLE, BYTES_VARIABLE = "MRT_CACHE", "MRT_CACHE_BYTES"
"""Environment variables: the folder, or OFF; and how many bytes it may hold."""
OFF = "off"
MOST_BYTES = 2**30
KEPT = 0.8
"""The share of what a folder may hold that is left when it held more."""
LOOKS = 64
"""How often a folder is looked through while as much is written as it may hold: a full one has 50,000 files."""
MAGIC = b"MRT kernel 1\n"
DIGEST_BYTES = hashlib.sha256().digest_size
NEW = ".new-"
"""How the names of files begin that are being written."""
ABANDONED_SECONDS = 3600
"""After which nobody is writing a file any more."""
FOREIGN_WRITES = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class KernelCache:
    """A folder of object files, and of all those of a module, by their keys.

    It holds up to `most_bytes` bytes and some hundredths more. Any number of processes may use it at once: files appear
    whole, and one that is gone or damaged is one that is not there. Nothing that fails here makes a compilation fail.
    """

    folder: Path
    most_bytes: int = MOST_BYTES

    @classmethod
    def usual(cls) -> KernelCache | None:
        """The one of the environment, by default in the user's folder of caches; None where there is to be none, or
        the default folder cannot be made.

        CompilationError for a folder that others may write, one that is named and cannot be made, or a size that is
        none.
        """
        named = os.environ.get(VARIABLE, "")
        if named == OFF:
            return None
        cache = cls(Path(named).absolute() if named else _default_folder(), _stated_bytes())
        try:
            cache.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = cache.folder.lstat()
        except OSError as error:
            if not named:
                return None
            raise CompilationError(
                f"{VARIABLE} is {named}, which cannot be made a folder: {error.strerror or error}; name another one, "
                f"or {OFF} to compile without"
            ) from None
        if not stat.S_ISDIR(found.st_mode) or not _is_own(found):
            raise CompilationError(
                f"{cache.folder} may be changed by others, and compiled code is taken from there: make it a folder of "
                f"your own (chmod go-w), name another one by {VARIABLE}, or set {VARIABLE}={OFF}"
            )
        return cache

    def get(self, key: str) -> bytes | None:
        """What was put by this key; None where there is nothing, or not what was put."""
        path = self.folder / key
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode) or not _is_own(found) or found.st_size > self.most_bytes:
                    return None
                held = file.read()
                # Those that are not used are the first to be removed.
                os.utime(descriptor)
        except OSError:
            return None
        start = len(MAGIC) + DIGEST_BYTES
        content = held[start:]
        return content if held[:start] == _head(key, content) else None

    def put(self, key: str, *content: bytes) -> None:
        """Keeps an object file, whose parts follow each other, if that can be done."""
        with contextlib.suppress(OSError):
            descriptor, name = tempfile.mkstemp(prefix=NEW, dir=self.folder)  # readable by the user alone
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.writelines([_head(key, *content), *content])
                os.replace(name, self.folder / key)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
            if self._is_due(key, sum(map(len, content))):
                self.trim()

    def _is_due(self, key: str, size: int) -> bool:
        """Whether to look through the folder after so many bytes were written by this key.

        No process knows what others write. Keys are digests, as good as random: one in so many is due that some LOOKS
        are while `most_bytes` are written, whoever writes them.
        """
        return int(key[:8], 16) * self.most_bytes < 2**32 * LOOKS * size

    def trim(self) -> None:
        """Removes the files that were used longest ago, if there are too many bytes, and those that never got ready."""
        entries: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    found, path = file.stat(follow_symlinks=False), Path(file.path)
                    if not file.name.startswith(NEW):
                        entries.append((found.st_mtime, found.st_size, path))
                    elif time.time() - found.st_mtime > ABANDONED_SECONDS:
                        path.unlink()
        held = sum(size for _, size, _ in entries)
        most = self.most_bytes if held <= self.most_bytes else KEPT * self.most_bytes
        for _, size, path in sorted(entries):
            if held <= most:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                held -= size


def _default_folder() -> Path:
    """Caches lie where the XDG Base Directory Specification has them, which ignores what is no absolute path."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(caches) if os.path.isabs(caches) else Path(os.path.expanduser("~/.cache"))) / "mrt" / "kernels"


def _stated_bytes() -> int:
    text = os.environ.get(BYTES_VARIABLE, "")
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise CompilationError(
            f"the environment variable {BYTES_VARIABLE} is {text!r}; a positive whole number is needed"
        )
    return int(text) if text else MOST_BYTES


def _is_own(found: os.stat_result) -> bool:
    """Whether only this user, and root, may change what was found."""
    return found.st_uid == os.geteuid() and not found.st_mode & FOREIGN_WRITES


def _head(key: str, *content: bytes) -> bytes:
    """What an entry begins with: the digest of its key and content, so that one cannot be taken for another."""
    digest = hashlib.sha256(key.encode())
    for part in content:
        digest.update(part)
    return MAGIC + digest.digest()
