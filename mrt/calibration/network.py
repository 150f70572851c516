"""The float network, compiled once for all that is asked of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.collector import give_back_freed, paused_collector
from mrt.symbol import Array, Evaluate, Graph, Runner, Symbol
from mrt.symbol.rebatch import batch_of, sized

CHUNK_BYTES, OBSERVED_BYTES = 2**25, 2**29
"""What the observed tensors of one chunk of samples may take, 32 MiB, and those of all chunks that run at once. What is
small stays in the cache from the kernel that makes it to the one that reads it."""


@dataclass(frozen=True, eq=False)
class Values:
    """Gives the values of tensors. evaluate: from the arrays of a chunk by input name, in order. batch: the length of a
    chunk. at_once: how many chunks may run at once."""

    evaluate: Evaluate
    batch: int
    at_once: int


class FloatNetwork:
    """A float graph that is run for the values of its tensors.

    It is compiled when the first are asked for, and again only where some are asked for that it does not give.
    """

    def __init__(self, graph: Graph, runner: Runner, batch_size: int, later: Iterable[Symbol] = ()) -> None:
        """batch_size: the most samples at once. later: tensors that will be asked for besides those asked for first."""
        self.graph = graph
        self._runner, self._batch_size, self._later = runner, batch_size, tuple(later)
        self._outputs: dict[Symbol, int] = {}
        self._given = Values(lambda feeds: [], batch_size, 1)

    def values(self, symbols: Sequence[Symbol], beside: Collection[Symbol] = ()) -> Values:
        """What gives the values of `symbols`, in chunks of at most the batch size.

        There are fewer samples in a chunk where all that it gives, and the tensors `beside` it, would take more than
        CHUNK_BYTES, or as many as the graph bakes in.
        """
        if not self._outputs.keys() >= set(symbols):
            self._compile(list(dict.fromkeys([*symbols, *self._later])), beside)
        elif not symbols:
            length = self._length(_sample_bytes(beside, batch_of(self.graph)))
            return Values(lambda feeds: [], length, 1)
        places, given = [self._outputs[symbol] for symbol in symbols], self._given

        def evaluate(feeds: Mapping[str, Array]) -> list[Array]:
            values = given.evaluate(feeds)
            return [values[place] for place in places]

        return Values(evaluate, given.batch, given.at_once)

    def release(self) -> None:
        """Lets go of what was compiled, which is made anew if it is needed once more."""
        self._outputs, self._given = {}, Values(lambda feeds: [], self._batch_size, 1)
        give_back_freed()

    @paused_collector()
    def _compile(self, outputs: Sequence[Symbol], beside: Collection[Symbol]) -> None:
        if self._outputs:
            self.release()
        sample = _sample_bytes((*beside, *outputs), batch_of(self.graph))
        wanted = sized(self.graph.with_outputs(outputs), self._length(sample))
        batch = batch_of(wanted)
        self._given = Values(self._runner.prepare(wanted), batch, int(OBSERVED_BYTES / (sample * batch)))
        self._outputs = {symbol: place for place, symbol in enumerate(outputs)}

    def _length(self, sample: float) -> int:
        return max(min(self._batch_size, int(CHUNK_BYTES / sample)), 1)


def _sample_bytes(symbols: Collection[Symbol], batch: int) -> float:
    """What these tensors take of one sample, at least 1; batch: the samples that the tensors' types are for."""
    return max(sum(symbol.type.size * np.dtype(symbol.dtype).itemsize for symbol in symbols) / batch, 1.0)
