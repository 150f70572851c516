"""A stream: a network that is run again and again, its states kept from one call to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import DataError
from mrt.symbol.arrays import as_array
from mrt.symbol.graph import Graph
from mrt.symbol.interval import Array
from mrt.symbol.rebatch import batch_of, sized
from mrt.symbol.runner import Evaluate, Runner
from mrt.symbol.states import states_of


@dataclass(frozen=True, eq=False)
class Kept:
    """A state as a stream keeps it.

    name: of the input. place: among the outputs. first: what one sample holds in the first call, (1, *shape), in the
    dtype in which the network takes and gives it. real: the real values of what it holds, None where it holds these.
    """

    name: str
    place: int
    first: Array
    real: Callable[[Array], Array] | None = None

    def shown(self, held: Array) -> Array:
        """A copy of what the state holds, for a user."""
        return held.copy() if self.real is None else self.real(held)


class Stream:
    """A network with its states. Several streams of one network do not know of each other.

    A call takes the inputs that are no states: an array, or arrays by input name where there are several; axis 0 counts
    streams that go side by side, as many at every call until `reset`. It gives the outputs that are no states: an
    array, or a list of arrays where there are several. A call that fails leaves the states as they were.
    Raises DataError for inputs that are missing or unknown or of another number of samples, and what the network does.
    """

    def __init__(
        self, inputs: Sequence[str], states: Sequence[Kept], begin: Callable[[], Evaluate], length: int | None = None
    ) -> None:
        """inputs: the names of all inputs, or of those that are fed. begin: gives the network, of all inputs, to all
        outputs, for one stream; what it gives for states must stay as it is until the next call, which may change it.
        length: after so many calls the states are what they are at first; None for never. DataError without states."""
        if not states:
            raise DataError("the network keeps nothing between calls: it has no states; run it as it is")
        names = {kept.name for kept in states}
        self._inputs = tuple(name for name in inputs if name not in names)
        self._kept, self._begin, self._run, self._length = tuple(states), begin, begin(), length
        self._values: dict[str, Array] = {}
        self._calls = 0

    def reset(self) -> None:
        """Makes the states what they are in the first call."""
        self._values, self._calls = {}, 0

    def anew(self) -> Stream:
        """A stream of the same network that begins."""
        return Stream(self._inputs, self._kept, self._begin, self._length)

    @property
    def states(self) -> dict[str, Array]:
        """What the states hold at the next call, by name, (samples, *shape); of one sample before the first call."""
        return {kept.name: kept.shown(self._values.get(kept.name, kept.first)) for kept in self._kept}

    def __call__(self, x: Array | Mapping[str, Array]) -> Array | list[Array]:
        outputs = self.outputs(x)
        return outputs[0] if len(outputs) == 1 else outputs

    def outputs(self, x: Array | Mapping[str, Array]) -> list[Array]:
        """What a call gives, always as a list."""
        if self._length is not None and self._calls >= self._length:
            self.reset()
        fed = self._fed(x)
        results = self._run({**fed, **self._current(len(next(iter(fed.values()))))})
        self._values = {kept.name: results[kept.place] for kept in self._kept}
        self._calls += 1
        places = {kept.place for kept in self._kept}
        return [value for place, value in enumerate(results) if place not in places]

    def along(self, x: Array | Mapping[str, Array]) -> list[Array]:
        """The outputs for samples one after another, axis 0, each a call of one sample."""
        steps = [self.outputs(sample) for sample in _samples(self._fed(x))]
        return [np.concatenate(values) for values in zip(*steps, strict=True)]

    def completed(self, x: Array | Mapping[str, Array]) -> dict[str, Array]:
        """Samples one after another, axis 0, with what the states hold at each of them."""
        fed, held = self._fed(x), list[dict[str, Array]]()
        for sample in _samples(fed):
            if self._length is not None and self._calls >= self._length:
                self.reset()
            held.append(self.states)
            self.outputs(sample)
        kept = {state.name: np.concatenate([each[state.name] for each in held]) for state in self._kept}
        return {**fed, **kept}

    def _fed(self, x: Array | Mapping[str, Array]) -> dict[str, Array]:
        if not isinstance(x, Mapping):
            if len(self._inputs) != 1:
                raise DataError(f"one array is given, the stream takes {list(self._inputs)}; give a mapping")
            x = {self._inputs[0]: x}
        if set(x) != set(self._inputs):
            held = sorted({kept.name for kept in self._kept} & set(x))
            why = f"; the stream keeps {', '.join(held)} itself" if held else ""
            raise DataError(f"inputs {sorted(map(str, x))} are given, {sorted(self._inputs)} are needed{why}")
        arrays = {name: as_array(x[name], name) for name in self._inputs}
        lengths = {array.shape[:1] for array in arrays.values()}
        if len(lengths) != 1 or lengths & {(), (0,)}:
            found = ", ".join(f"{name} has shape {array.shape}" for name, array in arrays.items())
            raise DataError(f"{found}; axis 0 must be the same number of samples, 1 or more")
        return arrays

    def _current(self, samples: int) -> dict[str, Array]:
        if not self._values:
            return {kept.name: np.repeat(kept.first, samples, axis=0) for kept in self._kept}
        held = len(next(iter(self._values.values())))
        if held != samples:
            raise DataError(
                f"the stream holds the states of {held} samples, {samples} are given; give as many at every call, or "
                f"call reset()"
            )
        return self._values


def _samples(arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
    count = len(next(iter(arrays.values())))
    return [{name: array[place : place + 1] for name, array in arrays.items()} for place in range(count)]


def stream_of(graph: Graph, runner: Runner, length: int | None = None) -> Stream:
    """A stream of one sample at a time of a graph of real values or integers, compiled once.

    A graph that bakes another batch in runs with the sample
    repeated.
    """
    single = sized(graph, 1)
    batch, evaluate = batch_of(single), runner.prepare(single)
    states = [Kept(state.name, state.place, state.first) for state in states_of(single)]

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        repeated = feeds if batch == 1 else {name: np.repeat(x, batch, axis=0) for name, x in feeds.items()}
        return [np.array(value[:1]) for value in evaluate(repeated)]

    return Stream([symbol.name for symbol in single.inputs], states, lambda: run, length)
