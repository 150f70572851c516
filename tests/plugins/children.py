"""Processes that find packages in a folder, as if these were installed."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).parent / "cyclic_shift"


def child_environment(site: Path) -> dict[str, str]:
    """This process's, with the packages of a folder before all others."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
