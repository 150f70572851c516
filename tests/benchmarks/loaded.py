"""The scripts of `benchmarks`, which are no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # as where a script is run: they import one another


def load_benchmark(name: str) -> ModuleType:
    """The module of benchmarks/`name`.py."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up the names of annotations
    spec.loader.exec_module(module)
    return module
