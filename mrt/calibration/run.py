"""The calibration run: a float graph over a stream of samples, every tensor asked for observed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import numpy as np

from mrt.calibration.channels import ChannelObserver, by_channel
from mrt.calibration.observers import MeanObserver, RangeObserver, Ranging
from mrt.calibration.stream import Chunk, chunks, reject_non_finite
from mrt.calibration.thresholds import (
    Calibration,
    CalibrationConfig,
    Channels,
    Threshold,
    new_observer,
    threshold_of,
)
from mrt.errors import DataError, GraphError
from mrt.symbol import Array, Evaluate, Graph, Runner, Symbol
from mrt.symbol.channels import channel_axes
from mrt.symbol.rebatch import batch_of, sized

OBSERVED_BYTES = 2**28
"""What the observed tensors of the samples that run at once may take together: 256 MiB."""


def calibrate(
    graph: Graph,
    batches: Iterable[Mapping[str, Array]],
    tensors: Sequence[str],
    config: CalibrationConfig,
    runner: Runner,
    progress: Callable[[int], None] | None = None,
    means: Iterable[Channels] = (),
) -> Calibration:
    """The thresholds of `tensors` (symbol names), and the means of the channels `means`, over the samples of `batches`.

    graph: a float graph with the batch size it was read with. batches: arrays by input name (or the array itself where
    the graph has one input) with any number of samples each, axis 0 counting them. progress: called after every chunk
    with the number of samples seen so far.

    The stream is cut into chunks of at most `config.batch_size` samples, fewer where the observed tensors of so many
    would take more than OBSERVED_BYTES, and the graph is compiled once for that; where it bakes its batch in, for the
    batch it has. Results do not depend on how the samples were batched. Parameters are observed
    exactly, whatever the method. Memory does not grow with the number of samples, nor with `config.batch_size` beyond
    what one sample needs.

    Raises GraphError for a name that the graph does not have, DataError for unusable data and for NaN or infinity in
    the data or in a tensor, naming it and the sample.
    """
    asked = tuple(dict.fromkeys(means))
    symbols = _find(graph, [*tensors, *(channels.tensor for channels in asked)])
    depends = graph.dependents(graph.inputs)
    constants = [symbol for symbol in symbols if symbol not in depends]
    fed = [symbol for symbol in symbols if symbol in graph.inputs]
    computed = [symbol for symbol in symbols if symbol in depends and not symbol.is_variable]
    axes = channel_axes(graph)
    seen = {symbol.name: _Seen(new_observer(config) if symbol in depends else RangeObserver()) for symbol in symbols}
    for symbol in computed:
        axis = axes.get(symbol.name, 0)
        if axis > 0:
            observer = ChannelObserver.of(symbol.shape[axis], config.lambda_ if config.method == "historical" else None)
            seen[symbol.name].channels = _Split(symbol.shape[1:], axis - 1, observer)
    for channels in asked:
        seen[channels.tensor].means[channels] = MeanObserver.along(graph.by_name[channels.tensor].shape, channels.axis)
    for symbol, value in zip(constants, _constant_values(graph, constants), strict=True):
        seen[symbol.name].observe(value.reshape(1, -1))
    if fed or computed:
        compiled = _compile(graph, computed, _chunk_size((*fed, *computed), batch_of(graph), config.batch_size), runner)
        for chunk in chunks(batches, graph.inputs, compiled.batch, config.samples):
            for symbol in fed:
                seen[symbol.name].observe(samples_of(symbol, chunk.arrays[symbol.name], chunk, compiled.batch))
            _observe(computed, compiled, chunk, seen)
            if progress is not None:
                progress(chunk.first + chunk.count)
    return Calibration(
        {name: seen[name].threshold() for name in tensors},
        {channels: seen[channels.tensor].means[channels].mean for channels in asked},
    )


@dataclass(frozen=True)
class _Split:
    """The observer of a tensor's channels. shape: of one sample; axis: of it."""

    shape: tuple[int, ...]
    axis: int
    observer: ChannelObserver

    def observe(self, samples: Array) -> _Split | None:
        """After `samples`; None where these are no samples of the shape, since the batch is baked in."""
        if samples.shape[1] != math.prod(self.shape):
            return None
        return replace(self, observer=self.observer.observe(by_channel(samples, self.shape, self.axis)))


@dataclass
class _Seen:
    """What was observed of one tensor so far."""

    range: Ranging
    channels: _Split | None = None
    means: dict[Channels, MeanObserver] = field(default_factory=dict)

    def observe(self, samples: Array) -> None:
        self.range = self.range.observe(samples)
        if self.channels is not None:
            self.channels = self.channels.observe(samples)
        self.means = {channels: observer.observe(samples) for channels, observer in self.means.items()}

    def threshold(self) -> Threshold:
        found = threshold_of(self.range)
        if self.channels is None:
            return found
        observer = self.channels.observer
        return replace(found, channels=observer.ranges(), observations=observer.count)


@dataclass(frozen=True)
class _Compiled:
    evaluate: Evaluate
    batch: int


def _observe(computed: Sequence[Symbol], compiled: _Compiled, chunk: Chunk, seen: Mapping[str, _Seen]) -> None:
    """Observes the tensors that one chunk gives. They are let go on return: two chunks' would be twice the memory."""
    for symbol, value in zip(computed, compiled.evaluate(chunk.arrays), strict=True):
        seen[symbol.name].observe(samples_of(symbol, value, chunk, compiled.batch))


def _find(graph: Graph, tensors: Sequence[str]) -> list[Symbol]:
    for name in tensors:
        if name not in graph.by_name:
            nearest = ", ".join(get_close_matches(name, graph.by_name, cutoff=0.0))
            raise GraphError(f"calibration asks for {name}, which the graph does not have; nearest: {nearest}")
    return [graph.by_name[name] for name in dict.fromkeys(tensors)]


def _constant_values(graph: Graph, constants: Sequence[Symbol]) -> list[Array]:
    """Parameters, and what depends on parameters alone; DataError naming one that is not finite."""
    values = Graph((), tuple(constants), graph.parameters).evaluate({})
    for symbol, value in zip(constants, values, strict=True):
        try:
            reject_non_finite(value, 1, symbol.name, symbol.type, 0)
        except DataError:
            raise DataError(f"parameter {symbol.name} ({symbol.type}) holds NaN or infinity") from None
    return values


def _chunk_size(observed: Sequence[Symbol], batch: int, batch_size: int) -> int:
    """The most samples, at most `batch_size` and at least 1, of which the observed tensors fit OBSERVED_BYTES.

    batch: the number of samples that the tensors' types are for.
    """
    sample = sum(symbol.type.size * np.dtype(symbol.dtype).itemsize for symbol in observed) / batch
    return max(min(batch_size, int(OBSERVED_BYTES / max(sample, 1.0))), 1)


def _compile(graph: Graph, computed: Sequence[Symbol], batch_size: int, runner: Runner) -> _Compiled:
    """One executable whose outputs are `computed`, for `batch_size` samples or, where that is refused, as read."""
    if not computed:
        return _Compiled(lambda feeds: [], batch_size)
    wanted = sized(graph.with_outputs(computed), batch_size)
    return _Compiled(runner.prepare(wanted), batch_of(wanted))


def samples_of(symbol: Symbol, value: Array, chunk: Chunk, batch: int) -> Array:
    """The chunk's real samples of one tensor, one a row; the tensor as one row where axis 0 is not the batch.

    Raises DataError naming the tensor and the sample where a value is not finite.
    """
    rows = batch if value.shape[:1] == (batch,) else 1
    values = value.reshape(rows, -1)[: chunk.count]
    reject_non_finite(values, len(values), symbol.name, symbol.type, chunk.first)
    return values
