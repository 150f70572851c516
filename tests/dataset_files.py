"""Data for the tests of datasets: arrays in a file, a loader, a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mrt.config import FolderDataset, LoaderDataset, NpzDataset
from mrt.datasets import Dataset
from mrt.symbol import TensorType

IMAGE = {"data": TensorType((1, 3, 4, 5))}
TWO = {"left": TensorType((1, 2)), "right": TensorType((1, 3))}


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def images(count: int = 7) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, 4, 5, 3)).astype(np.uint8)


def gathered(dataset: Dataset, batch_size: int) -> dict[str, np.ndarray]:
    batches = list(dataset.batches(batch_size))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def npz_of(path: Path, **options: Any) -> NpzDataset:
    return NpzDataset.model_validate({"npz": path, **options})


GOOD = np.zeros((2, 3, 4, 5), np.float32)
GOOD_BATCHES = np.arange(4 * 60, dtype=np.float32).reshape(4, 3, 4, 5)
"""What the loaders `alone`, `batches`, `pairs` and `mappings` give."""


LOADER = """
import numpy as np
from beside import LABELS

def good(split, count):
    return np.full((count, 3, 4, 5), len(split)), LABELS[:count]

def named(split):
    return {"left": [[1, 2]], "right": [[1, 2, 3]]}, None

def raises(split):
    raise KeyError("no such split")

BATCHES = np.arange(4 * 60, dtype=np.float32).reshape(4, 3, 4, 5)

def alone():
    return BATCHES

def batches():
    return [BATCHES[:3], BATCHES[3:]]

def pairs():
    return ([BATCHES[n : n + 1], np.array([n])] for n in range(4))

def mappings():
    return [{"data": BATCHES, "labels": np.arange(4)}]

def endless():
    number = 0
    while True:
        yield np.full((2, 3, 4, 5), number)
        number += 1

def three(split):
    return np.zeros(3), 1, 2

def differing(split):
    return [np.zeros((1, 3, 4, 5)), np.zeros((1, 3, 5, 5))]

def ragged(split):
    return [[1], [1, 2]], None

def stops(split):
    raise SystemExit(3)

class Tensor:
    def __array__(self, *_, **__):
        raise RuntimeError("call detach first")

def tensors(split):
    return Tensor(), None

def nothing(split):
    return None, None

def exits(split):
    raise FileNotFoundError(2, "No such file", "x.npz")

number = 3
"""


def loader_of(path: Path, function: str, **options: Any) -> LoaderDataset:
    return LoaderDataset.model_validate({"loader": f"{path}:{function}", **options})


def folder_of(path: Path, **options: Any) -> FolderDataset:
    return FolderDataset.model_validate({"folder": path, **options})
