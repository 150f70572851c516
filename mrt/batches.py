"""Calibration data as callers give it: batches by input name, checked, the integers of given inputs made real."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mrt.calibration.stream import Readable
from mrt.datasets.dataset import Dataset, are_many_integers
from mrt.errors import DataError
from mrt.messages import inputs_option
from mrt.quantization.options import InputConfig
from mrt.samples import arrays_of, batches_in, count_of, parts_of
from mrt.symbol import Array, Symbol
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.stream import Stream


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches by input name, as often as the source can be iterated over.

    source: arrays, or arrays by input name, or either with labels, see `parts_of`. inputs: of the float network. given:
    those whose integers are declared.
    integers: the dtype of what was taken for real values though it came as integers, by input; filled while iterating.
    total: how many samples there are; 0 where that is not known. stream: of a network with states, its float form: the
    samples are one stream then, in their order, along which it says what the states hold. dataset: what the source
    gives, in its order, if it is one of a configuration.
    """

    source: Iterable[Any]
    inputs: tuple[Symbol, ...]
    given: Mapping[str, InputConfig]
    integers: dict[str, str] = field(default_factory=dict)
    total: int = 0
    stream: Stream | None = None
    dataset: Dataset | None = None

    @property
    def readable(self) -> Readable | None:
        """The samples, for whoever reads those by himself that he works on; None where they are given in order only."""
        return None if self.dataset is None or self.stream is not None else _Readable(self)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Raises DataError naming the batch for what is no array, and for values of given inputs beyond the declared.

        Integers of a given input whose network takes floats become the real values that they stand for. States are
        taken as a batch gives them, all or none.
        """
        stream = self.stream and self.stream.anew()
        for number, batch in enumerate(self.source):
            real = self.checked(batch, f"calibration batch {number}")
            yield real if stream is None or len(real) == len(self.inputs) else stream.completed(real)

    def checked(self, batch: Any, where: str) -> dict[str, Array]:
        """A batch by input name, integers of given inputs made real. where: what messages call it."""
        found, _ = parts_of(batch, self._names_in(batch), where)
        arrays = arrays_of(found, self._names_in(found), where)
        try:
            return {s.name: self._real(s, arrays[s.name]) for s in self.inputs if s.name in arrays}
        except DataError as error:
            raise DataError(f"{where}: input {error}") from None

    def _names_in(self, batch: Any) -> list[str]:
        """The names of the inputs that a batch must give: states only where it gives one of them."""
        states = set() if self.stream is None else set(self.stream.states)
        takes = states if not isinstance(batch, Mapping) or states.isdisjoint(batch) else set()
        return [symbol.name for symbol in self.inputs if symbol.name not in takes]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the model should know of the data that was seen."""
        return integer_notes(self.integers, self.given)

    def _real(self, symbol: Symbol, x: Array) -> Array:
        if symbol.name in self.given:
            entry = _entry(symbol, self.given[symbol.name])
            integers = entry.quantize(x)
            if symbol.type.is_integer:
                return integers
            return x if x.dtype.kind == "f" else entry.dequantize(integers)
        if symbol.type.is_float and are_many_integers(x):
            self.integers.setdefault(symbol.name, x.dtype.name)
        return x


@dataclass(frozen=True, eq=False)
class _Readable:
    """The samples of batches, by number."""

    batches: Batches

    @property
    def total(self) -> int:
        return self.batches.total

    def batch(self, first: int, stop: int) -> dict[str, Array]:
        if self.batches.dataset is None:
            raise ValueError("these batches are given in order only")
        return self.batches.checked(self.batches.dataset.batch(first, stop), f"samples {first} to {stop - 1}")

    def __reduce__(self) -> tuple[Any, ...]:
        batches = self.batches
        return _arrived, (batches.dataset, batches.inputs, dict(batches.given), batches.total)


def _arrived(dataset: Dataset, inputs: tuple[Symbol, ...], given: Mapping[str, InputConfig], total: int) -> _Readable:
    return _Readable(Batches((), inputs, given, total=total, dataset=dataset))


def integer_notes(integers: Mapping[str, str], given: Mapping[str, InputConfig]) -> tuple[str, ...]:
    """A note for each input that integers were given to as if they were real values: their dtype by input."""
    return tuple(
        f"input {name} was calibrated on {dtype} taken as the real values that the network reads; if the network reads "
        f"preprocessed values calibrate on these, and to have integers taken without a float declare what they stand "
        f"for: {inputs_option(name)}"
        for name, dtype in integers.items()
        if name not in given
    )


def batches_of(data: object, inputs: Sequence[Symbol], given: Mapping[str, InputConfig]) -> Batches:
    """The batches that `data` is: many, or one; DataError where it is neither."""
    return Batches(batches_in(data), tuple(inputs), given, total=count_of(data))


def _entry(symbol: Symbol, options: InputConfig) -> TensorQuantization:
    lo, hi = options.limits
    return TensorQuantization(
        symbol.name, symbol.shape, options.dtype, options.scale, options.zero_point, lo, hi, is_given=True
    )
