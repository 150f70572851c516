"""Readers of trained networks: each turns a model of another program into a float Graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mrt.errors import ModelFileError
from mrt.frontend.onnx import from_onnx
from mrt.symbol import Graph

__all__ = ["from_onnx", "load_model"]

_READERS: dict[str, Callable[[Path, int], Graph]] = {".onnx": from_onnx}
"""The reader of each suffix; takes a path and the batch size."""


def load_model(path: str | os.PathLike[str], batch: int = 1) -> Graph:
    """The float graph of a model file, its kind told by the suffix.

    `batch` is the size that a dynamic batch dimension is fixed to. Raises ModelFileError where the file is missing,
    is a folder, or has a suffix that no reader knows, and whatever the reader of the kind raises.
    """
    path, known = Path(path), ", ".join(_READERS)
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder; a model file is needed ({known})")
    if not path.exists():
        raise ModelFileError(f"{path} does not exist; give the path of a model file ({known})")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ModelFileError(f"{path} has the suffix {path.suffix!r}; these are read: {known}")
    return reader(path, batch)
