"""Paths that callers give."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from mrt.errors import ModelFileError, MRTError
from mrt.messages import short


def as_path(
    value: object, name: str, error: type[MRTError] = ModelFileError, to_read: bool = False, or_pipe: bool = False
) -> Path:
    """The path passed as argument `name`; nothing need be there.

    Raises `error` saying what was found where it is no path that the system takes or, if it is `to_read`, a pipe or
    device, which might never end. or_pipe: whether a pipe is read, as long as its writer likes.
    """
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str) or not given:
        raise error(f"{name} is {short(value)}; the path of a file or folder is needed")
    try:
        mode = os.stat(given).st_mode
    except ValueError:  # NUL, or what the system's encoding lacks
        raise error(f"{name} is {short(given)}; the path of a file or folder is needed") from None
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return Path(given)  # whoever reads or writes says more
    except OSError as reason:
        if reason.errno == errno.ELOOP:  # a link to itself
            return Path(given)
        raise error(f"{name} is {short(given)}: {reason.strerror or reason}; another path is needed") from None
    if to_read and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (or_pipe and stat.S_ISFIFO(mode))):
        raise error(f"{name} is {given}, a pipe, socket or device; a file is needed")
    return Path(given)
