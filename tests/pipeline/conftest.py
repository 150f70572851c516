"""A finished run, and a copy of it that a test may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.runs import QUICK, copied, run, save_data, save_network


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the whole pipeline was run; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("run")
    save_network(folder / "net.onnx")
    save_data(folder / "data.npz")
    (folder / "config.yaml").write_text(QUICK)
    run(folder)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """The same files under the same paths as seen by the configuration, in a folder of the test's own."""
    return copied(finished, tmp_path / "run")
