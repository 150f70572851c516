"""The float network, one program for all that is asked of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mrt.collector import give_back_freed
from mrt.execution import Program
from mrt.symbol import Array, Graph, Runner, Symbol
from mrt.symbol.rebatch import batch_of, sized

CHUNK_BYTES, OBSERVED_BYTES = 2**25, 2**30
"""What the observed tensors of one chunk of samples may take, 32 MiB, and those of all chunks that run at once. What is
small stays in the cache from the kernel that makes it to the one that reads it."""


@dataclass(frozen=True, eq=False)
class Values:
    """Gives the values of tensors, in order, from a program that gives others too.

    places: of the tensors among the outputs of the program. batch: the length of a chunk. at_once: how many chunks may
    run at once on one machine.
    """

    program: Program
    places: tuple[int, ...]
    batch: int
    at_once: int

    def evaluate(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The values for the arrays of a chunk by input name."""
        return values_at(self.places, self.program, feeds)


def values_at(places: Sequence[int], program: Program, feeds: Mapping[str, Array]) -> list[Array]:
    """Some outputs of a program, which is not run where none is asked for."""
    values = program(feeds) if places else []
    return [values[place] for place in places]


class FloatNetwork:
    """A float graph that is run for the values of its tensors.

    Its program is made when the first are asked for, and again only where some are asked for that it does not give.
    """

    def __init__(self, graph: Graph, runner: Runner, batch_size: int, later: Iterable[Symbol] = ()) -> None:
        """batch_size: the most samples at once. later: tensors that will be asked for besides those asked for first."""
        self.graph = graph
        self._runner, self._batch_size, self._later = runner, batch_size, tuple(later)
        self._places: dict[Symbol, int] = {}
        self._given: Values | None = None

    def values(self, symbols: Sequence[Symbol], beside: Collection[Symbol] = ()) -> Values:
        """What gives the values of `symbols`, in chunks of at most the batch size.

        There are fewer samples in a chunk where all that it gives, and the tensors `beside` it, would take more than
        CHUNK_BYTES, or as many as the graph bakes in.
        """
        if not symbols:
            length = self._length(_sample_bytes(beside, batch_of(self.graph)))
            return Values(Program(self.graph.with_outputs(()), self._runner), (), length, 1)
        if self._given is None or not self._places.keys() >= set(symbols):
            self.release()
            outputs = tuple(dict.fromkeys([*symbols, *self._later]))
            self._given = self._giving(outputs, beside)
            self._places = {symbol: place for place, symbol in enumerate(outputs)}
        return replace(self._given, places=tuple(self._places[symbol] for symbol in symbols))

    def release(self) -> None:
        """Lets go of what was compiled, which is made anew if it is needed once more."""
        if self._given is not None:
            self._places, self._given = {}, None
            give_back_freed()

    def _giving(self, outputs: Sequence[Symbol], beside: Collection[Symbol]) -> Values:
        sample = _sample_bytes((*beside, *outputs), batch_of(self.graph))
        wanted = sized(self.graph.with_outputs(outputs), self._length(sample))
        batch = batch_of(wanted)
        return Values(Program(wanted, self._runner), (), batch, int(OBSERVED_BYTES / (sample * batch)))

    def _length(self, sample: float) -> int:
        return max(min(self._batch_size, int(CHUNK_BYTES / sample)), 1)


def _sample_bytes(symbols: Collection[Symbol], batch: int) -> float:
    """What these tensors take of one sample, at least 1; batch: the samples that the tensors' types are for."""
    return max(sum(symbol.type.size * np.dtype(symbol.dtype).itemsize for symbol in symbols) / batch, 1.0)
