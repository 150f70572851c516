"""Trials on a chunk of samples, and the energies of what they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mrt.calibration.stream import Chunk
from mrt.symbol import Array


@dataclass(frozen=True, eq=False)
class OnChunk:
    """Trials, by their numbers, to be run on a chunk.

    exact: the float network's outputs, reference: those that errors are taken from, where outputs are compared.
    """

    place: int
    trials: tuple[int, ...]
    chunk: Chunk
    exact: Sequence[Array] = ()
    reference: Sequence[Array] = ()


def energies_of(chunk: Chunk, signals: Sequence[Array], references: Sequence[Array], found: Sequence[Array]) -> Array:
    """(2, tensors): of signals, and of what is found less its reference."""
    rows = (map(partial(real_samples, chunk=chunk), each) for each in (signals, references, found))
    pairs = [(energy(signal), energy(wanted - value)) for signal, wanted, value in zip(*rows, strict=True)]
    return np.array(pairs).reshape(-1, 2).T


def length_of(chunk: Chunk) -> int:
    """How many samples it has room for."""
    return len(next(iter(chunk.arrays.values()))) if chunk.arrays else 1


def real_samples(value: Array, chunk: Chunk) -> Array:
    """A tensor without the samples that only fill the chunk up."""
    return value[: chunk.count] if value.shape[:1] == (length_of(chunk),) else value


def energy(values: Array) -> float:
    """The sum of the squares."""
    return float(np.square(values, dtype=np.float64).sum())
