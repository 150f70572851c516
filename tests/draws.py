"""The random numbers of tests: each test, and each fixture, draws its own, whichever ran before it.

Modules of tests share a generator. Whoever ran first would decide what the others draw, and processes that share the
tests take them in an order of their own: a test that fails for some numbers would fail now and then.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from zlib import crc32

import numpy as np

TESTS = Path(__file__).parent


class Draws:
    """The generators of all modules of tests that are loaded."""

    def __init__(self) -> None:
        self._of_modules: dict[str, list[tuple[str, np.random.Generator]]] = {}
        """By module, each with its name there. One that several modules know stands with the first."""
        known: set[int] = set()
        for module in list(sys.modules.values()):
            for name, value in _globals(module):
                if isinstance(value, np.random.Generator) and id(value) not in known:
                    known.add(id(value))
                    self._of_modules.setdefault(module.__name__, []).append((name, value))
        self._shared = [each for name in self._of_modules if not _is_of_tests(name) for each in self._of_modules[name]]

    def begin(self, module: str, reader: str) -> None:
        """Sets what may be drawn in a module of tests. reader: the name of the test or fixture that draws next."""
        for name, generator in (*self._of_modules.get(module, ()), *self._shared):
            bits = generator.bit_generator
            bits.state = type(bits)(crc32(f"{module} {name} {reader}".encode())).state


def _globals(module: ModuleType) -> list[tuple[str, object]]:
    path = getattr(module, "__file__", None)
    return list(vars(module).items()) if path and TESTS in Path(path).parents else []


def _is_of_tests(module: str) -> bool:
    """Whether a module holds tests, and not what they share."""
    return module.rpartition(".")[2].startswith("test_")
