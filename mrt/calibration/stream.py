"""Cuts a stream of batches of any length into chunks of one length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from mrt.errors import DataError, GraphError
from mrt.symbol import Array, Symbol, TensorType
from mrt.symbol.graph import cast_exactly

Batch = Mapping[str, Array]


@dataclass(frozen=True)
class Chunk:
    """Arrays by input name whose axis 0 is the chunk's length; the first `count` samples are the data's.

    first: the number of samples before this chunk. The rest of axis 0 repeats the last sample.
    """

    arrays: dict[str, Array]
    first: int
    count: int

    def read(self) -> Chunk:
        """The chunk, as `Place` gives one."""
        return self


class Readable(Protocol):
    """Samples that any process can read by their numbers, wherever the files lie that it was described by."""

    @property
    def total(self) -> int:
        """How many there are."""

    def batch(self, first: int, stop: int) -> Batch:
        """The samples from one to another, arrays by input name; DataError where they cannot be read."""


@dataclass(frozen=True, eq=False)
class Place:
    """A chunk that is not read yet: `count` samples from number `first` on, for inputs that take `length` of them."""

    source: Readable
    inputs: tuple[Symbol, ...]
    length: int
    first: int
    count: int

    def read(self) -> Chunk:
        """The chunk; DataError as `chunks`."""
        given = self.source.batch(self.first, self.first + self.count)
        (chunk,) = chunks([given], self.inputs, self.length, None, self.first)
        return replace(chunk, first=self.first)


def places(
    batches: Iterable[Batch | Array] | Batch | Array, inputs: Sequence[Symbol], length: int, limit: int | None
) -> Iterable[Chunk | Place]:
    """What `chunks` gives; where the batches have a `readable`, as places, which whoever works on them reads."""
    source: Readable | None = getattr(batches, "readable", None)
    if source is None:
        return chunks(batches, inputs, length, limit)
    total = source.total if limit is None else min(limit, source.total)
    variables = tuple(inputs)
    return [Place(source, variables, length, k, min(length, total - k)) for k in range(0, total, length)]


def chunks(
    batches: Iterable[Batch | Array] | Batch | Array,
    inputs: Sequence[Symbol],
    length: int,
    limit: int | None,
    before: int = 0,
) -> Iterator[Chunk]:
    """Re-chunks `batches` into `length` samples at a time, the last chunk padded, at most `limit` samples in all.

    batches: arrays by input name, or the array itself where there is one input; axis 0 counts samples. One such batch
    instead of many is taken too. before: samples of the data in front of these, for messages. The arrays of a chunk
    have the inputs' dtypes. Holds one batch and one chunk.

    Raises DataError for a missing or unknown array, a wrong rank, shape or dtype, differing numbers of samples, NaN or
    infinity, naming the input and the batch or sample; and where there are no samples at all.
    """
    done, filled = 0, 0
    arrays = _empty(inputs, length)
    for number, given in enumerate(_as_batches(batches)):
        batch = _checked(given, inputs, number)
        samples, used = len(next(iter(batch.values()))), 0
        if limit is not None:
            samples = min(samples, limit - done - filled)
        while used < samples:
            take = min(samples - used, length - filled)
            for symbol in inputs:
                part = _converted(batch[symbol.name][used : used + take], symbol, number, before + done + filled)
                arrays[symbol.name][filled : filled + take] = part
            used, filled = used + take, filled + take
            if filled == length:
                yield Chunk(arrays, done, filled)
                done, filled, arrays = done + filled, 0, _empty(inputs, length)
        if limit is not None and done + filled >= limit:
            break
    if filled:
        for value in arrays.values():
            value[filled:] = value[filled - 1]
        yield Chunk(arrays, done, filled)
    elif not done:
        raise DataError("the calibration data holds no samples; at least 1 is needed")


def _empty(inputs: Sequence[Symbol], length: int) -> dict[str, Array]:
    return {symbol.name: np.empty((length, *symbol.shape[1:]), symbol.dtype) for symbol in inputs}


def _as_batches(batches: Iterable[Batch | Array] | Batch | Array) -> Iterable[Batch | Array]:
    return (batches,) if isinstance(batches, (Mapping, np.ndarray)) else batches


def _checked(given: Batch | Array, inputs: Sequence[Symbol], number: int) -> dict[str, Array]:
    """The arrays of one batch by input name, their shapes checked."""
    where, names = f"calibration batch {number}", [symbol.name for symbol in inputs]
    if not isinstance(given, Mapping):
        if len(inputs) != 1:
            raise DataError(f"{where} is one array; arrays by name are needed for the inputs {names}")
        given = {names[0]: given}
    missing, unknown = [n for n in names if n not in given], sorted(set(given) - set(names))
    if missing or unknown:
        what = f"lacks the array {missing[0]}" if missing else f"holds {unknown[0]}, which is no input"
        raise DataError(f"{where} {what}; arrays for {names} are needed, {sorted(given)} are given")
    arrays = {symbol.name: _shaped(np.asarray(given[symbol.name]), symbol, where) for symbol in inputs}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{where}: inputs have different numbers of samples: {lengths}")
    return arrays


def _shaped(array: Array, symbol: Symbol, where: str) -> Array:
    needed = ", ".join(["N", *map(str, symbol.shape[1:])])
    if array.ndim != symbol.type.rank:
        raise DataError(
            f"{where}: input {symbol.name} has rank {array.ndim}, shape {array.shape}; ({needed}) is needed"
        )
    if array.shape[1:] != symbol.shape[1:]:
        raise DataError(f"{where}: input {symbol.name} has shape {array.shape}; ({needed}) is needed")
    if array.dtype.kind not in ("iub" if symbol.type.is_integer else "iubf"):
        raise DataError(f"{where}: input {symbol.name} is {array.dtype}; {symbol.dtype} is needed")
    return array


def _converted(array: Array, symbol: Symbol, number: int, first: int) -> Array:
    """Samples in the input's dtype, known to be finite; `first` is the number of the first one in the stream."""
    try:
        with np.errstate(over="ignore"):
            array = cast_exactly(array, symbol.dtype, f"calibration batch {number}: input {symbol.name}")
    except GraphError as error:
        raise DataError(str(error)) from None
    reject_non_finite(array, len(array), f"input {symbol.name}", symbol.type, first)
    return array


def reject_non_finite(values: Array, samples: int, what: str, type: TensorType, first: int) -> None:
    """DataError naming `what` and the first sample, counted from `first`, of which a value is NaN or infinity.

    values: `samples` samples, axis 0 counting them.
    """
    if values.dtype.kind != "f" or not values.size:
        return
    # NaN and infinity survive min and max, which cost a fraction of isfinite's array.
    if np.isfinite(values.min()) and np.isfinite(values.max()):
        return
    wrong = np.flatnonzero(~np.isfinite(values.reshape(samples, -1)).all(axis=1))[0]
    sample = values.reshape(samples, -1)[wrong]
    found = sample[~np.isfinite(sample)][0]
    raise DataError(
        f"{what} ({type}) holds {found} in calibration sample {first + int(wrong)}; finite values are needed"
    )
