"""The dataset that a configuration describes, and the digest of what it is read from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from mrt.config import DatasetConfig, FolderDataset, NpyDataset, NpzDataset
from mrt.datasets.dataset import Dataset
from mrt.datasets.folder import images_of, read_folder
from mrt.datasets.loader import read_loader
from mrt.datasets.npz import read_npy, read_npz
from mrt.errors import DataError
from mrt.paths import as_path
from mrt.symbol import TensorType
from mrt.symbol.files import sha256_of


def load_dataset(config: DatasetConfig, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    """The dataset that a configuration describes, for a network with these inputs.

    name: the key of the configuration, such as data.test; its last part is the split that a loader is asked for.
    Raises DataError saying what is missing or does not fit.
    """
    if isinstance(config, NpzDataset):
        dataset = read_npz(config, inputs, name)
    elif isinstance(config, NpyDataset):
        dataset = read_npy(config, inputs, name)
    elif isinstance(config, FolderDataset):
        dataset = read_folder(config, inputs, name)
    else:
        dataset = read_loader(config, inputs, name)
    if dataset.size == 0:
        raise DataError(f"{dataset.name} holds no samples")
    return replace(dataset, again=_Described(config, inputs, name)).first(config.samples)


@dataclass(frozen=True, eq=False)
class _Described:
    """Gives a dataset anew, where it is read from files that must hold what they hold here.

    expected: the digest of that, in another process than the one that described it.
    """

    config: DatasetConfig
    inputs: Mapping[str, TensorType]
    name: str
    expected: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Described, (self.config, dict(self.inputs), self.name, self.expected or self._found)

    @cached_property
    def _found(self) -> str:
        return quick_digest(self.config, self.name)

    def __call__(self) -> Dataset:
        """The whole; read once in a process. DataError where the files hold something else."""
        with _LOCK:
            if self.expected not in _READ:
                if self.expected != self._found:
                    raise DataError(f"{self.name} does not hold the samples that it holds where the run was started")
                _READ.clear()
                _READ[self.expected] = load_dataset(self.config, self.inputs, self.name)
            return _READ[self.expected]


_LOCK = Lock()
_READ: dict[str, Dataset] = {}
"""What was read last for another process, by digest."""


def quick_digest(config: DatasetConfig, name: str) -> str:
    """SHA-256 of what a dataset is read from and how, other than by `content_digest` of images only names and sizes."""
    if isinstance(config, FolderDataset):
        images, labels = images_of(config, f"{name} ({config.folder})")
        found: Any = [
            [[str(path.relative_to(config.folder)), path.stat().st_size] for path in images],
            None if labels is None else labels.tolist(),
        ]
    else:
        found = content_digest(config, name)
    facts = [config.model_dump(mode="json"), name, found]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def content_digest(config: DatasetConfig, name: str, samples: int | None = None) -> str:
    """SHA-256 of the content of the files that the dataset is read from, which does not depend on where they lie.

    Of arrays those are their files; of a folder the images of at most the first `samples` samples, in order, and
    their labels; of a loader its Python file and the `files` that it is said to read. Raises DataError naming what
    cannot be read.
    """
    labels: list[int] | None = None
    if isinstance(config, NpzDataset):
        files = [config.npz]
    elif isinstance(config, NpyDataset):
        files = [config.npy, *([] if config.labels is None else [config.labels])]
    elif isinstance(config, FolderDataset):
        images, classes = images_of(config, f"{name} ({config.folder})")
        count = min(n for n in (samples, config.samples, len(images)) if n is not None)
        files, labels = images[:count], None if classes is None else classes[:count].tolist()
    else:
        files = [Path(config.loader.rpartition(":")[0]), *_files_in(config.files)]
    for path in files:
        as_path(path, name, DataError, to_read=True)
    try:
        facts = [(path.stat().st_size, sha256_of(path)) for path in files]
    except FileNotFoundError as error:
        raise DataError(f"{name} ({error.filename}) does not exist") from None
    except OSError as error:
        raise DataError(f"{name}: {error.filename} cannot be read: {error.strerror or error}") from None
    return hashlib.sha256(json.dumps([facts, labels]).encode()).hexdigest()


def _files_in(paths: Sequence[Path]) -> list[Path]:
    """Files as they are, and all files below folders in the order of their names."""
    return [
        file
        for path in paths
        for file in (sorted(below for below in path.rglob("*") if below.is_file()) if path.is_dir() else [path])
    ]
