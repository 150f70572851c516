"""What NumPy's BLAS gives does not depend on how many threads it would take."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from mrt.blas import _libraries, one_blas_thread

FACTORIZED = """
import hashlib, sys
import numpy as np
from mrt.blas import one_blas_thread

def digest() -> str:
    x = np.random.default_rng(0).normal(size=(400, 384))
    matrix = x.T @ x + 384 * np.eye(384)
    found = np.linalg.cholesky(matrix), np.linalg.solve(matrix, x.T)
    return hashlib.sha256(b"".join(np.ascontiguousarray(each).data for each in found)).hexdigest()

with one_blas_thread():
    with one_blas_thread():
        pass
    print(digest())
"""


def factorized(threads: int) -> str:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}
    return subprocess.run(
        [sys.executable, "-c", FACTORIZED], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_factors_have_the_bits_of_one_thread() -> None:
    assert factorized(1) == factorized(3)


def test_the_number_of_threads_is_what_it_was_behind_the_last_block() -> None:
    before = [library.get() for library in _libraries()]

    def inside(_: int) -> list[int]:
        with one_blas_thread():
            return [library.get() for library in _libraries()]

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(inside, range(40)))
    assert counts == [[1] * len(before)] * 40
    assert [library.get() for library in _libraries()] == before
