"""Samples in the arrays of an .npz file."""

from __future__ import annotations

import difflib
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mrt.config import NpzDataset
from mrt.datasets.dataset import Dataset, of_arrays, reason, single_input
from mrt.datasets.preprocessing import keeps_values, preprocess
from mrt.errors import DataError
from mrt.paths import as_path
from mrt.symbol import Array, TensorType


def read_npz(config: NpzDataset, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    """The samples of the slice that is asked for, held in memory as they are stored; preprocessed as they are read."""
    name = f"{name} ({config.npz})"
    sources = config.x if isinstance(config.x, Mapping) else {single_input(inputs, name): config.x}
    if not sources:
        raise DataError(f"{name}: x names no arrays, the network has the inputs {sorted(inputs)}")
    with _opened(config.npz, name) as members:
        x = {key: _member(members, array, name) for key, array in sources.items()}
        y = None if config.y is None else _member(members, config.y, name)
    start, stop = config.slice
    shortest = min(len(array) for array in x.values())
    if max(start + 1, stop or 0) > shortest:
        raise DataError(f"{name}: the slice [{start}, {stop}] is asked for, there are {shortest} samples")
    x, y = {key: array[start:stop] for key, array in x.items()}, None if y is None else y[start:stop]
    raw = of_arrays(x, y, inputs, name)

    def rows(first: int, last: int) -> Mapping[str, Array]:
        return {
            key: preprocess(array, config, name) if inputs[key].is_float else array
            for key, array in raw.rows(first, last).items()
        }

    return replace(raw, rows=rows, integers=raw.integers if keeps_values(config) else {})


_UNREADABLE = (
    *(OSError, ValueError, OverflowError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error),
    *(NotImplementedError, RuntimeError),  # of zipfile: a compression that it lacks, encryption
    *(SyntaxError, tokenize.TokenError),  # of NumPy: the header of an array
)
"""What NumPy and zipfile raise for files that they cannot read."""


@contextmanager
def _opened(path: Path, name: str) -> Iterator[Mapping[str, Any]]:
    as_path(path, name, DataError, to_read=True)
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise DataError(f"{name} holds a single array; an .npz file is needed")
        with file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{name} does not exist") from None
    except _UNREADABLE as error:
        raise DataError(f"{name} is no readable .npz file, or is truncated: {reason(error)}") from None


def _member(file: Mapping[str, Any], key: str, name: str) -> Array:
    if key not in file:
        close = difflib.get_close_matches(key, list(file), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise DataError(f"{name} has no array {key!r}, it has {sorted(file)}{hint}")
    array = np.asarray(file[key])
    if array.ndim == 0:
        raise DataError(f"{name}: the array {key!r} is a single number; axis 0 must be the samples")
    return array
