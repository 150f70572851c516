"""How a case of a TFLite operator is written: its inputs, its options, what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tflite_files import File, random

Array = np.ndarray
NO_ACTIVATION, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)
SAME, VALID = 0, 1


@dataclass(frozen=True)
class Computed:
    """An input of the model, as opposed to a constant in its file."""

    value: Array


@dataclass(frozen=True)
class Case:
    """One operator: its inputs (None where one is left out), and what it gives of them."""

    kind: str
    inputs: Sequence[Computed | Array | None]
    expected: Array | Sequence[Array]
    options: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5
    custom: bytes = b""

    @property
    def has_kernel(self) -> bool:
        """Whether TensorFlow computes it: its kernels overlook a TANH that is built in, which the schema has."""
        return self.attributes.get("FusedActivationFunction") != TANH and not self.kind.startswith("CUSTOM")

    @property
    def results(self) -> list[Array]:
        return list(self.expected) if isinstance(self.expected, (list, tuple)) else [self.expected]

    def content(self) -> bytes:
        file = File()
        numbers = [self._add(file, given) for given in self.inputs]
        outputs = [file.tensor(result.shape, result.dtype.name) for result in self.results]
        file.operator(self.kind, numbers, outputs, self.options, self.custom, **self.attributes)
        return file.write(outputs)

    @staticmethod
    def _add(file: File, given: Computed | Array | None) -> int:
        if given is None:
            return -1
        if isinstance(given, Computed):
            return file.input(given.value.shape, given.value.dtype.name)
        return file.constant(given)

    @property
    def feeds(self) -> list[Array]:
        return [given.value for given in self.inputs if isinstance(given, Computed)]


def f(values: Any) -> Array:
    """As float32."""
    return np.asarray(values, dtype=np.float32)


def ints(*values: int) -> Array:
    return np.asarray(values, dtype=np.int32)


ACTIVATIONS: dict[int, Callable[[Array], Array]] = {
    NO_ACTIVATION: lambda x: x,
    RELU: lambda x: np.maximum(x, 0),
    RELU_N1_TO_1: lambda x: np.clip(x, -1, 1),
    RELU6: lambda x: np.clip(x, 0, 6),
    TANH: np.tanh,
}


class Cases(dict[str, Case]):
    """Cases by name."""

    def add(self, name: str, *arguments: Any, **fields: Any) -> None:
        assert name not in self
        self[name] = Case(*arguments, **fields)


IMAGE = random(2, 7, 6, 4)

# Elementwise

X, Y = random(2, 3, 4, seed=5), random(2, 3, 4, seed=6)
