"""One thread for NumPy's BLAS: bits do not depend on how many it would take, nor time on who else has the cores.

OpenBLAS cuts a factorization into other blocks where it has several threads, and so adds in another order. Where other
work keeps all cores busy, each product by several threads waits until the last of them gets one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np

LIBRARY = "openblas"
"""In the name of the libraries that are asked."""
NAMES = tuple(f"{first}openblas_{{}}_num_threads{last}" for first in ("scipy_", "") for last in ("64_", ""))
"""What the functions are called, as OpenBLAS is built."""


@dataclass(frozen=True)
class _Library:
    get: Callable[[], int]
    set: Callable[[int], object]


_lock = Lock()
_inside = 0
_before: list[int] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within the block OpenBLAS takes one thread, whoever calls it, until the last of all such blocks ends.

    Where NumPy has another BLAS nothing changes.
    """
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = [library.get() for library in _libraries()]
            _set([1] * len(_before))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set(_before)


def _set(counts: list[int]) -> None:
    for library, count in zip(_libraries(), counts, strict=True):
        library.set(count)


@lru_cache(maxsize=1)
def _libraries() -> tuple[_Library, ...]:
    """Those that this process has loaded; none where the system does not tell."""
    np.linalg.cholesky(np.eye(2))  # whereby they are
    maps = Path("/proc/self/maps")
    lines = maps.read_text("utf-8", "replace").splitlines() if maps.is_file() else []
    paths = dict.fromkeys(fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6)
    found = (_library(path) for path in paths if LIBRARY in Path(path).name)
    return tuple(library for library in found if library is not None)


def _library(path: str) -> _Library | None:
    try:
        loaded = ctypes.CDLL(path)
    except OSError:
        return None
    for name in NAMES:
        get, set = (getattr(loaded, name.format(what), None) for what in ("get", "set"))
        if get is not None and set is not None:
            return _Library(get, set)
    return None
