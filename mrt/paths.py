"""Paths that callers give."""

from __future__ import annotations

import os
from pathlib import Path

from mrt.errors import ModelFileError, MRTError
from mrt.messages import short


def as_path(value: object, name: str, error: type[MRTError] = ModelFileError) -> Path:
    """The path given as the argument `name`; `error` saying what was found where it is none."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str) or not given or "\0" in given:
        raise error(f"{name} is {short(value)}; the path of a file or folder is needed")
    return Path(given)
