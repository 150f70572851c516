"""Bias correction by running the integer graph on samples, reduction after reduction."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from mrt.calibration import Calibration
from mrt.calibration.observers import MeanObserver
from mrt.calibration.run import samples_of
from mrt.calibration.stream import Chunk, Place, places
from mrt.errors import QuantizationError
from mrt.execution import Kept, Program
from mrt.execution.executor import Work
from mrt.quantization.algorithms.algorithm import BiasCorrection, Needs, Samples, algorithm
from mrt.quantization.algorithms.bias_correction import given_by, mean_of, means_around_reductions
from mrt.quantization.expand import Expander, plan_graph, round_ahead
from mrt.quantization.integer.integer_graph import input_quantization
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.rebatch import batch_of, sized
from mrt.symbol.types import narrowest_dtype


@algorithm("sequential")
class SequentialBiasCorrection(BiasCorrection):
    """What is left of the error of the means where all earlier reductions are corrected."""

    reads_samples: ClassVar[bool] = True

    def needs(self, graph: Graph) -> Needs:
        return means_around_reductions(graph)

    def corrections(
        self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
    ) -> dict[str, Array]:
        return sequential_corrections(graph, observed, config, samples)


def sequential_corrections(
    graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
) -> dict[str, Array]:
    """The shift of each reduction's output in the integer graph whose earlier reductions are corrected already.

    Each is the calibrated float mean less that of the integers over the same samples: the empirical form of the
    correction of M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019.

    The integer graph is made once, and run piece by piece while it grows: from the tensors that earlier pieces have
    left, on disk or with workers, to the next accumulator. What is left is what later operators read, as narrow as it
    was made. A reduction runs twice, to be measured and, corrected, for what follows; all else runs once. Memory holds
    a chunk of samples for each core; files lie in the folder for temporary files and are removed.
    """
    whole = sized(graph, samples.config.batch_size)
    planned = plan_graph(whole, observed.ranges, config)
    round_ahead(planned, observed, samples.executor)
    expander = Expander(planned, observed)
    whole = expander.graph
    pending = _Pending(whole, expander)
    corrections: dict[str, Array] = {}
    recorded = _Recorded(whole, expander, samples)
    for symbol in whole.operators:
        accumulator = expander.expand(symbol)
        if symbol.channel_axis is None:
            continue
        wanted = mean_of(symbol, given_by(symbol), observed)
        found = recorded.advance(accumulator.symbol, symbol.channel_axis, pending.at(symbol))
        corrections[symbol.name] = wanted - accumulator.scale.reshape(-1) * (found - accumulator.zero_point)
        expander.correct(symbol, corrections[symbol.name])
        if samples.progress is not None:
            samples.progress(len(corrections))
    return corrections


class _Pending:
    """Tells, while the integer graph grows, what the reductions that are still to come will be computed from."""

    def __init__(self, graph: Graph, expander: Expander) -> None:
        self._graph = graph
        self._expander = expander
        self._place = {symbol: place for place, symbol in enumerate(graph.operators)}
        self._last: dict[Symbol, int] = {}
        """By operator, the place of the last reduction that it is, or that depends on it."""
        for symbol in reversed(graph.operators):
            own = -1 if symbol.channel_axis is None else self._place[symbol]
            self._last[symbol] = max([own, *(self._last[reader] for reader in graph.consumers[symbol])])
        self._open = list(graph.inputs)
        self._next = 0

    def at(self, reduction: Symbol) -> tuple[Symbol, ...]:
        """The integer symbols made before `reduction` from which it, if others depend on it, and all later operators
        on the way to a reduction are computed. Reductions must be asked about in their order."""
        place = self._place[reduction]
        self._open += self._graph.operators[self._next : place]
        self._next = place
        forms: dict[Symbol, None] = {}
        still_open = []
        for source in self._open:
            readers = dict.fromkeys(self._graph.consumers[source])
            to_come = [r for r in readers if self._place[r] >= place and self._last[r] > place]
            still_open += [source] if to_come else []
            edges = ((r, index) for r in to_come for index, read in enumerate(r.inputs) if read is source)
            found = (self._expander.form(reader, index) for reader, index in edges)
            forms |= dict.fromkeys(form for form in found if form is not None)
        self._open = still_open
        return tuple(forms)


@dataclass(frozen=True, eq=False)
class _State:
    """The integer tensors of one chunk: the inputs, and what later pieces of the graph start from.

    arrays: by the name of the symbol, each in a dtype that holds its bounds. carried: see `Keeps`. means: of the
    accumulator that the last piece led to.
    """

    first: int
    count: int
    arrays: Mapping[str, Array]
    carried: tuple[str, ...] = ()
    means: MeanObserver | None = None


@dataclass(frozen=True, eq=False)
class _Quantize:
    """Makes the integers of a chunk's inputs; dtypes: by name, to keep them in."""

    quantizers: Sequence[TensorQuantization]
    dtypes: Mapping[str, str]

    def __call__(self, part: Chunk | Place) -> _State:
        chunk = part.read()
        arrays = {
            each.name: each.quantize(chunk.arrays[each.name]).astype(self.dtypes[each.name]) for each in self.quantizers
        }
        return _State(chunk.first, chunk.count, arrays)


@dataclass(frozen=True, eq=False)
class _RunPiece:
    """Runs a piece of the graph, to an accumulator whose `axis` counts channels and to tensors that are to be kept.

    new: the dtypes of those by name, in the order of the piece's outputs behind the first. carried: the names of what
    is kept besides. batch: the length of chunks.
    """

    axis: int
    new: Mapping[str, str]
    carried: tuple[str, ...]
    batch: int

    def __call__(self, state: _State, piece: Program) -> _State:
        found, *values = piece({symbol.name: state.arrays[symbol.name] for symbol in piece.graph.inputs})
        accumulator = piece.graph.outputs[0]
        rows = samples_of(accumulator, found, Chunk({}, state.first, state.count), self.batch)
        means = MeanObserver.along(accumulator.shape, self.axis).observe(rows)
        arrays = {n: np.array(v, d) for (n, d), v in zip(self.new.items(), values, strict=True)}
        return _State(state.first, state.count, arrays, self.carried, means)


def _means(state: _State) -> MeanObserver:
    if state.means is None:
        raise ValueError("no piece was run")
    return state.means


class _Recorded:
    """Integer tensors of all samples, kept where they were made."""

    def __init__(self, graph: Graph, expander: Expander, samples: Samples) -> None:
        self._builder, self._executor, self._runner = expander.builder, samples.executor, samples.runner
        self._batch = batch_of(graph)
        self._inputs = tuple(symbol for symbol, _ in expander.inputs)
        self._kept: tuple[Symbol, ...] = ()
        quantizers = [input_quantization(symbol, target) for symbol, target in expander.inputs]
        parts = places(samples.batches, graph.inputs, self._batch, samples.config.samples)
        self._states = self._recorded(_Quantize(quantizers, self._dtypes(self._inputs)), parts)

    def advance(self, accumulator: Symbol, axis: int, kept: Sequence[Symbol]) -> Array:
        """Runs the graph from what is recorded to `accumulator`; gives the mean of each of its channels, along `axis`.

        kept: symbols that are recorded on the way or are so already; the others are removed.
        """
        recorded = (*self._inputs, *self._kept)
        new = [symbol for symbol in kept if symbol not in recorded]
        stay = (*self._inputs, *(symbol for symbol in self._kept if symbol in kept))
        piece = Program(self._builder.part(recorded, [accumulator, *new]), self._runner)
        run = _RunPiece(axis, self._dtypes(new), tuple(symbol.name for symbol in stay), self._batch)
        self._states = self._recorded(run, self._states, (piece,))
        self._kept = (*stay[len(self._inputs) :], *new)
        found = self._executor.in_order(_means, self._states)
        return np.asarray(reduce(MeanObserver.merge, found).mean)

    def _recorded(self, work: Work[_State], parts: Iterable[Any], programs: Sequence[Program] = ()) -> Kept:
        try:
            return self._executor.kept(work, parts, programs)
        except OSError as error:
            raise QuantizationError(
                f"bias correction cannot keep tensors in {tempfile.gettempdir()}: {error.strerror}; make room, "
                f"name another folder by TMPDIR, or take fewer samples (calibrate.samples)"
            ) from error

    def _dtypes(self, symbols: Iterable[Symbol]) -> dict[str, str]:
        """The narrowest for the bounds of each."""
        found = {}
        for symbol in symbols:
            bounds = self._builder.bounds(symbol)
            found[symbol.name] = narrowest_dtype(int(bounds.min), int(bounds.max))
        return found
