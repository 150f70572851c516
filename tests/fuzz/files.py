"""Damaged files of every format: each is read, or refused by an MRTError of one line."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import mrt
from mrt.config import NpzDataset, load_config
from mrt.datasets import load_dataset
from mrt.errors import MRTError
from mrt.symbol import TensorType
from tests.fuzz import corpus
from tests.fuzz.case import Outcome
from tests.fuzz.draw import Draw
from tests.fuzz.mutation import damaged
from tests.fuzz.protobuf import damaged_model


def read(format: str, path: Path) -> None:
    """Reads a file of a format; raises what its reader does."""
    READERS.get(format, mrt.load_model)(path)


def _dataset(path: Path) -> None:
    dataset = load_dataset(NpzDataset(npz=path, x="x", y="y"), {"x": TensorType((1, 3, 2, 2))}, "data.test")
    for _ in dataset.batches(3):
        pass


def _config(path: Path) -> None:
    os.environ["MRT_DATA"] = "."  # which configurations of real networks ask for
    load_config(path)


READERS: dict[str, Callable[[Path], object]] = {"npz": _dataset, "yaml": _config}
"""What reads a format; `mrt.load_model` the others."""


def fuzz_file(draw: Draw, thorough: bool) -> Outcome:
    found = corpus.examples()
    format = draw.choice(sorted({example.format for example in found}))
    alike = [example for example in found if example.format == format]
    example, other = draw.choice(alike), draw.choice(draw.choice((alike, found)))
    name = draw.choice(sorted(example.files))
    files = dict(example.files)
    if format == "onnx" and draw.chance(0.7):
        files[name] = damaged_model(draw, files[name])
    else:
        files[name] = damaged(draw, files[name], draw.choice(sorted(other.files.values())))
    outcome = Outcome()
    outcome.tried[format] += 1
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            (Path(folder) / file).write_bytes(content)
        outcome.refused.update(
            refusal(lambda: READERS.get(format, mrt.load_model)(Path(folder) / example.main), format)
        )
    return outcome


def refusal(work: Callable[[], object], what: str) -> list[str]:
    """`what` where an MRTError refuses it; whatever else is raised comes through."""
    try:
        work()
    except MRTError as error:
        if not str(error) or "\n" in str(error):
            raise AssertionError(f"the error's text is {str(error)!r}; one line is needed") from error
        return [what]
    return []
