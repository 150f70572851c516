"""Samples for a network, read batch by batch and checked against its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mrt.errors import DataError
from mrt.symbol import Array, TensorType

Rows = Callable[[int, int], Mapping[str, Array]]
"""The arrays by input name of the samples from one to another."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples for a network, read batch by batch.

    name: the key of the configuration, for messages. size: the number of samples. labels: int64 [size], or None.
    inputs: the type of each input of the network; axis 0 is the batch, whatever its length there.
    rows: the arrays by input name of the samples [start, stop). integers: the dtype of what is integers in the source
    and given to a float input as it is, by input. again: gives the whole dataset in another process, where its files
    are read anew when the first samples are; None where it was made of arrays, which go there instead. Labels stay
    here. start: the number of the first sample in the whole.
    """

    name: str
    size: int
    labels: Array | None
    inputs: Mapping[str, TensorType]
    rows: Rows
    integers: Mapping[str, str] = field(default_factory=dict)
    again: Callable[[], Dataset] | None = None
    start: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        if self.again is not None:
            return _elsewhere, (self.name, self.size, dict(self.inputs), self.again, self.start)
        return _of_whole_arrays, (self.name, self.size, dict(self.inputs), dict(self.rows(0, self.size)))

    def first(self, count: int | None) -> Dataset:
        """The first `count` samples (None: all); DataError if there are fewer."""
        if count is None:
            return self
        if count > self.size:
            raise DataError(f"{self.name}: {count} samples are asked for, there are {self.size}")
        return replace(self, size=count, labels=None if self.labels is None else self.labels[:count])

    def after(self, count: int) -> Dataset:
        """The samples behind the first `count`, of which there must be at least so many."""
        labels = None if self.labels is None else self.labels[count:]
        rows: Rows = lambda start, stop: self.rows(start + count, stop + count)  # noqa: E731
        return replace(self, size=self.size - count, labels=labels, rows=rows, start=self.start + count)

    def batches(self, batch_size: int) -> Iterator[dict[str, Array]]:
        """Arrays by input name, in the inputs' dtypes; the last batch may be shorter.

        Raises DataError where values are NaN, infinite or not what the input's dtype holds.
        """
        for start in range(0, self.size, batch_size):
            yield self.batch(start, min(start + batch_size, self.size))

    def batch(self, start: int, stop: int) -> dict[str, Array]:
        """The arrays of the samples [start, stop), as `batches` gives them. Called from several threads at once."""
        arrays = self.rows(start, stop)
        return {name: self._checked(name, type, arrays[name], start) for name, type in self.inputs.items()}

    def _checked(self, name: str, type: TensorType, array: Array, start: int) -> Array:
        if array.shape[1:] != type.shape[1:]:
            raise DataError(
                f"{self.name}: samples for input {name} have shape {list(array.shape[1:])}, "
                f"the network needs {list(type.shape[1:])}; see layout"
            )
        if type.is_float:
            with np.errstate(over="ignore"):
                value = array.astype(type.dtype, copy=False)
            finite = np.isfinite(value).reshape(len(value), -1).all(axis=1)
            if not finite.all():
                sample = start + int(np.argmin(finite))
                raise DataError(f"{self.name}: sample {sample} holds NaN or infinity in input {name}; clean the data")
            return value
        if array.dtype.kind == "f" and not np.array_equal(array, np.rint(array)):
            raise DataError(f"{self.name}: input {name} is {type.dtype}, the data are no integers; see scale")
        limits = np.iinfo(type.dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise DataError(
                f"{self.name}: input {name} is {type.dtype}, the data go from {array.min()} to {array.max()}"
            )
        return array.astype(type.dtype, copy=False)


def of_arrays(x: Mapping[str, Array], y: Array | None, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    """The dataset of whole arrays, by input name, and labels; DataError where they do not fit the inputs."""
    if set(x) != set(inputs):
        raise DataError(f"{name} gives the inputs {sorted(map(str, x))}, the network has {sorted(inputs)}")
    for key, array in x.items():
        kinds = "fiub" if inputs[key].is_float else "iu"
        if array.dtype.kind not in kinds:
            raise DataError(f"{name}: the samples for input {key} are {array.dtype}, {inputs[key].dtype} is needed")
        if array.ndim != inputs[key].rank:
            needed = ", ".join(["samples", *map(str, inputs[key].shape[1:])])
            raise DataError(
                f"{name}: the array for input {key} has the shape {list(array.shape)}, of rank {array.ndim}; "
                f"rank {inputs[key].rank} is needed: [{needed}]"
            )
    sizes = {key: len(array) for key, array in x.items()}
    size = next(iter(sizes.values()))
    if any(other != size for other in sizes.values()):
        raise DataError(f"{name}: the inputs have different numbers of samples: {sizes}")
    labels = None if y is None else checked_labels(y, size, name)
    integers = {key: array.dtype.name for key, array in x.items() if inputs[key].is_float and are_many_integers(array)}
    return Dataset(name, size, labels, inputs, lambda start, stop: {key: x[key][start:stop] for key in x}, integers)


def _elsewhere(
    name: str, size: int, inputs: Mapping[str, TensorType], again: Callable[[], Dataset], start: int
) -> Dataset:
    """A part of a dataset that came from another process."""
    rows: Rows = lambda first, stop: again().rows(start + first, start + stop)  # noqa: E731
    return Dataset(name, size, None, inputs, rows, {}, again, start)


def _of_whole_arrays(name: str, size: int, inputs: Mapping[str, TensorType], x: Mapping[str, Array]) -> Dataset:
    return Dataset(name, size, None, inputs, lambda start, stop: {key: x[key][start:stop] for key in x})


def are_many_integers(x: Array) -> bool:
    """Whether an array holds integers, and others than the -1, 0 and 1 of masks and signs."""
    return bool(x.dtype.kind in "iu" and x.size and (x.min() < -1 or x.max() > 1))


def checked_labels(y: Array, size: int, name: str) -> Array:
    """Labels as int64 [size]; DataError where they are none."""
    if y.dtype.kind not in "iu" or y.shape != (size,):
        raise DataError(f"{name}: labels are {y.dtype}{list(y.shape)}; integers of shape [{size}] are needed")
    if size and y.min() < 0:
        raise DataError(f"{name}: label {y.min()} of sample {int(y.argmin())} is negative")
    if size and y.max() > np.iinfo(np.int64).max:
        raise DataError(f"{name}: label {y.max()} of sample {int(y.argmax())} is beyond 64 bits")
    return y.astype(np.int64)


def single_input(inputs: Mapping[str, TensorType], name: str) -> str:
    """The name of a network's only input; DataError where it has several."""
    if len(inputs) != 1:
        raise DataError(f"{name} gives one array, the network has the inputs {list(inputs)}; give arrays by input name")
    return next(iter(inputs))


def reason(error: BaseException) -> str:
    """What an error of others says, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
