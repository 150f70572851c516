"""The discrete Fourier transform of constant length: matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from mrt.symbol import Array


def waves(length: int, count: int, inverse: bool = False) -> tuple[Array, Array]:
    """Real and imaginary parts (count, length) of exp(-2 pi i j k / length), of its conjugate if inverse."""
    # The products are reduced before the quotient, which keeps the angles exact.
    turns = np.outer(np.arange(count), np.arange(length)) % length / length
    angles = 2 * np.pi * turns
    return np.cos(angles), np.sin(angles) if inverse else -np.sin(angles)


def real_synthesis(length: int) -> tuple[Array, Array]:
    """What the real and the imaginary parts of length // 2 + 1 coefficients give to a real signal of this length, each
    (length, length // 2 + 1), without a factor: every coefficient but the first, and the middle one, stands for two.
    """
    count = length // 2 + 1
    cosines, sines = waves(length, count, inverse=True)
    times = np.full((count, 1), 2.0)
    times[0] = 1.0
    if length % 2 == 0:
        times[-1] = 1.0
    return (cosines * times).T, (-sines * times).T
