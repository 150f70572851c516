"""What tests of several readers take."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that PyTorch saved."""
    import torch_archives  # which skips where PyTorch is absent

    path = tmp_path_factory.mktemp("saved") / "network.pt2"
    torch_archives.save(path)
    return path
