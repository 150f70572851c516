"""A saved program of PyTorch, and changes of its records."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_programs import export, random, randomized

torch = pytest.importorskip("torch")
nn = torch.nn

PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"


class Network(nn.Module):
    """A little of all: parameters, of which one is a part of another, statistics, constants."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = randomized(nn.BatchNorm2d(4))
        self.linear = nn.Linear(4, 3)
        self.register_buffer("scale", random(3), persistent=False)
        self.register_buffer("none", torch.zeros(0, 4))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        with torch.no_grad():
            y = self.linear(y) * self.scale
        return y + torch.tensor([1.0, 2, 3]), y.argmax(1)


NETWORK = Network().eval()
IMAGES = random(2, 3, 6, 6)


def save(path: Path) -> None:
    torch.export.save(export(NETWORK, IMAGES, dynamic_shapes=({0: torch.export.Dim("batch")},)), path)


def records_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def changed(path: Path, target: Path, **options: Any) -> Callable[[Callable[[dict[str, bytes]], None]], Path]:
    """Writes an archive whose records were changed in place by a function."""

    def write(change: Callable[[dict[str, bytes]], None]) -> Path:
        records = records_of(path)
        change(records)
        with zipfile.ZipFile(target, "w", **options) as archive:
            for name, content in records.items():
                archive.writestr(f"network/{name}", content)
        return target

    return write


def edited(records: dict[str, bytes], name: str, edit: Callable[[Any], None]) -> None:
    """Edits a record that is JSON."""
    document = json.loads(records[name])
    edit(document)
    records[name] = json.dumps(document).encode()
