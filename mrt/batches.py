"""Calibration data as callers give it: batches by input name, checked, the integers of given inputs made real."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mrt.datasets.dataset import are_many_integers
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
    samples are one stream then, in their order, along which it says what the states hold.
    """

    source: Iterable[Any]
    inputs: tuple[Symbol, ...]
    given: Mapping[str, InputConfig]
    integers: dict[str, str] = field(default_factory=dict)
    total: int = 0
    stream: Stream | None = None

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Raises DataError naming the batch for what is no array, and for values of given inputs beyond the declared.

        Integers of a given input whose network takes floats become the real values that they stand for. States are
        taken as a batch gives them, all or none.
        """
        stream = self.stream and self.stream.anew()
        entries = {s.name: _entry(s, self.given[s.name]) for s in self.inputs if s.name in self.given}
        for number, batch in enumerate(self.source):
            where = f"calibration batch {number}"
            found, _ = parts_of(batch, self._names_in(batch), where)
            arrays = arrays_of(found, self._names_in(found), where)
            given = [symbol for symbol in self.inputs if symbol.name in arrays]
            try:
                real = {s.name: self._real(s, arrays[s.name], entries.get(s.name)) for s in given}
            except DataError as error:
                raise DataError(f"{where}: input {error}") from None
            yield real if stream is None or len(given) == len(self.inputs) else stream.completed(real)

    def _names_in(self, batch: Any) -> list[str]:
        """The names of the inputs that a batch must give: states only where it gives one of them."""
        states = set() if self.stream is None else set(self.stream.states)
        takes = states if not isinstance(batch, Mapping) or states.isdisjoint(batch) else set()
        return [symbol.name for symbol in self.inputs if symbol.name not in takes]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the model should know of the data that was seen."""
        return integer_notes(self.integers, self.given)

    def _real(self, symbol: Symbol, x: Array, entry: TensorQuantization | None) -> Array:
        if entry is not None:
            integers = entry.quantize(x)
            if symbol.type.is_integer:
                return integers
            return x if x.dtype.kind == "f" else entry.dequantize(integers)
        if symbol.type.is_float and are_many_integers(x):
            self.integers.setdefault(symbol.name, x.dtype.name)
        return x


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
