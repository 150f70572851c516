"""Samples in the arrays of an .npz or .npy file."""

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

from mrt.config import NpyDataset, NpzDataset
from mrt.datasets.choice import chosen
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
    return of_source(x, y, config, inputs, name)


def names_in(path: Path, name: str) -> list[str]:
    """The names of the arrays of an .npz file; DataError where it is none."""
    with _opened(path, name) as members:
        return list(members)


def read_npy(config: NpyDataset, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    """The samples that are asked for of a single array, which stays in its file until they are read."""
    name = f"{name} ({config.npy})"
    x = {single_input(inputs, name): _array_in(config.npy, name)}
    y = None if config.labels is None else _array_in(config.labels, f"{name}: labels {config.labels}")
    return of_source(x, y, config, inputs, name)


def of_source(
    x: Mapping[str, Array],
    y: Array | None,
    config: NpzDataset | NpyDataset,
    inputs: Mapping[str, TensorType],
    name: str,
) -> Dataset:
    """What is asked for of arrays by input name, preprocessed as it is read."""
    sizes = {len(array) for array in (*x.values(), *(() if y is None else (y,)))}
    places = chosen(config, min(sizes), name)
    if config.shuffle is not None and len(sizes) > 1:
        raise DataError(
            f"{name}: arrays of {sorted(sizes)} samples cannot be shuffled together; make them of one length"
        )
    raw = of_arrays({key: array[places] for key, array in x.items()}, None if y is None else y[places], inputs, name)

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
            raise DataError(f"{name} holds a single array, which is read by the key npy; an .npz file is needed")
        with file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{name} does not exist") from None
    except _UNREADABLE as error:
        raise DataError(f"{name} is no readable .npz file, or is truncated: {reason(error)}") from None


def _array_in(path: Path, name: str) -> Array:
    """The array of an .npy file, not yet read."""
    as_path(path, name, DataError, to_read=True)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{name} does not exist") from None
    except _UNREADABLE as error:
        raise DataError(f"{name} is no readable .npy file, or is truncated: {reason(error)}") from None
    if isinstance(array, np.lib.npyio.NpzFile):
        array.close()
        raise DataError(f"{name} holds several arrays; they are read by the key npz")
    return _of_samples(array, name)


def _of_samples(array: Array, what: str) -> Array:
    if array.ndim == 0:
        raise DataError(f"{what} is a single number; axis 0 must be the samples")
    return array


def _member(file: Mapping[str, Any], key: str, name: str) -> Array:
    if key not in file:
        close = difflib.get_close_matches(key, list(file), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise DataError(f"{name} has no array {key!r}, it has {sorted(file)}{hint}")
    return _of_samples(np.asarray(file[key]), f"{name}: the array {key!r}")
