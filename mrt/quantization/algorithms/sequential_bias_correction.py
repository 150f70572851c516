"""Bias correction by running the integer graph on samples, reduction after reduction."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import ClassVar

import numpy as np

from mrt.calibration import Calibration
from mrt.calibration.observers import MeanObserver
from mrt.calibration.run import samples_of
from mrt.calibration.stream import Chunk, chunks
from mrt.errors import QuantizationError
from mrt.quantization.algorithms.algorithm import BiasCorrection, Needs, Samples, algorithm
from mrt.quantization.algorithms.bias_correction import given_by, mean_of, means_around_reductions
from mrt.quantization.expand import Expander, plan_graph
from mrt.quantization.integer.integer_graph import input_quantization
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.rebatch import batch_of, sized
from mrt.symbol.types import narrowest_dtype
from mrt.workers import in_order


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
    left on disk to the next accumulator. What is left is what later operators read, as narrow as it was made. A
    reduction runs twice, to be measured and, corrected, for what follows; all else runs once. Memory holds a chunk of
    samples for each core; the files lie in the folder for temporary files and are removed.
    """
    whole = sized(graph, samples.config.batch_size)
    expander = Expander(plan_graph(whole, observed.ranges, config), observed)
    whole = expander.graph
    pending = _Pending(whole, expander)
    corrections: dict[str, Array] = {}
    with tempfile.TemporaryDirectory(prefix="mrt-") as folder:
        recorded = _Recorded(Path(folder), whole, expander, samples)
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


class _Recorded:
    """Integer tensors of all samples, on disk: the inputs, and what later pieces of the graph start from."""

    def __init__(self, folder: Path, graph: Graph, expander: Expander, samples: Samples) -> None:
        self._folder = folder
        self._builder = expander.builder
        self._runner = samples.runner
        self._batch = batch_of(graph)
        self._numbers = count()
        self._chunks: list[Chunk] = []
        self._inputs = {symbol: self._recording(symbol) for symbol, _ in expander.inputs}
        self._kept: dict[Symbol, _Recording] = {}
        quantizers = [(self._inputs[symbol], input_quantization(symbol, target)) for symbol, target in expander.inputs]
        for chunk in chunks(samples.batches, graph.inputs, self._batch, samples.config.samples):
            for recording, quantizer in quantizers:
                recording.append(quantizer.quantize(chunk.arrays[quantizer.name]))
            self._chunks.append(replace(chunk, arrays={}))

    def advance(self, accumulator: Symbol, axis: int, kept: Sequence[Symbol]) -> Array:
        """Runs the graph from what is recorded to `accumulator`; gives the mean of each of its channels, along `axis`.

        kept: symbols that are recorded on the way or are so already; the others are removed.
        """
        recorded = self._inputs | self._kept
        new = {symbol: self._recording(symbol) for symbol in kept if symbol not in recorded}
        piece = self._builder.part(recorded, [accumulator, *new])
        fed = {symbol.name: recording for symbol, recording in recorded.items()}
        evaluate = self._runner.prepare(piece)
        observer = MeanObserver.along(accumulator.shape, axis)

        def run(place: int) -> list[Array]:
            return evaluate({symbol.name: fed[symbol.name].read(place) for symbol in piece.inputs})

        for chunk, (found, *values) in zip(self._chunks, in_order(run, range(len(self._chunks))), strict=True):
            observer = observer.observe(samples_of(accumulator, found, chunk, self._batch))
            for recording, value in zip(new.values(), values, strict=True):
                recording.append(value)
        for symbol in self._kept.keys() - set(kept):
            self._kept.pop(symbol).remove()
        self._kept |= new
        return np.asarray(observer.mean)

    def _recording(self, symbol: Symbol) -> _Recording:
        bounds = self._builder.bounds(symbol)
        dtype = narrowest_dtype(int(bounds.min), int(bounds.max))
        return _Recording(self._folder / str(next(self._numbers)), symbol.shape, dtype)


@dataclass(frozen=True)
class _Recording:
    """The chunks of one tensor one after the other in a file, in a dtype that holds its bounds."""

    path: Path
    shape: tuple[int, ...]
    dtype: str

    def append(self, value: Array) -> None:
        try:
            with open(self.path, "ab") as file:
                file.write(np.ascontiguousarray(value, self.dtype).data)
        except OSError as error:
            raise QuantizationError(
                f"bias correction cannot keep tensors in {self.path.parent}: {error.strerror}; make room, "
                f"name another folder by TMPDIR, or take fewer samples (calibrate.samples)"
            ) from error

    def read(self, place: int) -> Array:
        """The chunk appended as number `place`, mapped from the file."""
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return np.memmap(self.path, self.dtype, "r", place * size, self.shape)

    def remove(self) -> None:
        self.path.unlink()
