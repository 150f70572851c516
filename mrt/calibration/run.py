"""The calibration run: a float graph over a stream of samples, every tensor asked for observed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from threading import Lock

from mrt.algorithm_registry import find_algorithm
from mrt.calibration.channels import ChannelObserver, by_channel
from mrt.calibration.derived import derive, find_derived
from mrt.calibration.network import FloatNetwork, values_at
from mrt.calibration.observers import MeanObserver, RangeObserver, Ranging
from mrt.calibration.options import CalibrationConfig
from mrt.calibration.range_method import RangeMethod
from mrt.calibration.ranges import Calibration, Channels, Needs, Range, range_of
from mrt.calibration.stream import Chunk, Place, places, reject_non_finite
from mrt.collector import give_back_freed
from mrt.errors import DataError, GraphError
from mrt.execution import THREADS, Executor, Program
from mrt.symbol import Array, Graph, Runner, Symbol
from mrt.symbol.channels import channel_axes
from mrt.symbol.rebatch import batch_of

_Moment = tuple[Channels, int]
"""The mean of the values of channels, to this power."""


def calibrate(
    graph: Graph,
    batches: Iterable[Mapping[str, Array]],
    needs: Needs,
    config: CalibrationConfig,
    runner: Runner,
    progress: Callable[[int], None] | None = None,
    network: FloatNetwork | None = None,
    executor: Executor = THREADS,
) -> Calibration:
    """What is needed of the tensors of a float graph, over the samples of `batches`; ranges by the method of `config`.

    batches: arrays by input name, or the array of a single input, of any number of samples each, axis 0 counting them.
    progress: told how many samples were seen, after every chunk. network: of the graph, for the batch size of
    `config`, where it is asked for values besides.

    The stream is cut into chunks of at most `config.batch_size` samples, fewer where their observed tensors would take
    more than CHUNK_BYTES; the graph is compiled once for that, or for the batch that it bakes in. Each core of
    `executor` takes a chunk at a time, while those at once on a machine stay below OBSERVED_BYTES (`FloatNetwork`).
    Results depend neither on batches nor on cores, memory on neither samples nor `config.batch_size`. Parameters are
    observed exactly, whatever the method.

    Raises GraphError for an unknown name, DataError for unusable data, naming the sample that makes NaN or infinity.
    """
    moments = [*((channels, 1) for channels in needs.means), *((channels, 2) for channels in needs.squares)]
    symbols = _find(graph, [*needs.ranges, *(channels.tensor for channels, _ in moments)])
    depends = graph.dependents(graph.inputs)
    constants = [symbol for symbol in symbols if symbol not in depends]
    fed = [symbol for symbol in symbols if symbol in graph.inputs]
    computed = [symbol for symbol in symbols if symbol in depends and not symbol.is_variable]
    axes = _channels_apart(graph, computed)
    method = find_algorithm(RangeMethod, config.method)
    seen = _unobserved(graph, symbols, depends, axes, moments, method, config)
    for symbol, value in zip(constants, _constant_values(graph, constants), strict=True):
        seen[symbol.name].observe(symbol, value[None], 0)
    observed = {graph.by_name[channels.tensor] for channels, _ in moments}
    derived = find_derived(graph, {*fed, *computed}, axes, observed) if method.covers_all else {}
    if fed or computed:
        run = [symbol for symbol in computed if symbol not in derived]
        network = network or FloatNetwork(graph, runner, config.batch_size)
        _observe_samples(network, batches, fed, run, seen, config, progress, executor)
        give_back_freed()
    _derive_rest(graph, derived, axes, seen)
    means, squares = (
        {channels: seen[channels.tensor].means[channels, power].mean for channels in asked}
        for power, asked in ((1, needs.means), (2, needs.squares))
    )
    return Calibration({name: seen[name].found() for name in needs.ranges}, means, squares)


def _derive_rest(
    graph: Graph, derived: Mapping[Symbol, Symbol], axes: Mapping[Symbol, int], seen: Mapping[str, _Seen]
) -> None:
    """Adds to `seen` the ranges of symbols that follow from those of others."""
    for symbol, source in derived.items():
        if symbol not in axes:
            found = seen[source.name].found()
            seen[symbol.name].range = RangeObserver(found.lo, found.hi)
            continue
        observer = derive(graph, symbol, source, seen[source.name].split.observer, axes)
        seen[symbol.name].channels = _Split(axes[symbol] - 1, observer)


def _unobserved(
    graph: Graph,
    symbols: Sequence[Symbol],
    depends: Collection[Symbol],
    axes: Mapping[Symbol, int],
    moments: Sequence[_Moment],
    method: RangeMethod,
    config: CalibrationConfig,
) -> dict[str, _Seen]:
    """The observers of all tensors, which have seen nothing. depends: what varies from sample to sample."""
    seen = {symbol.name: _Seen(method.observer(config) if symbol in depends else RangeObserver()) for symbol in symbols}
    for symbol, axis in axes.items():
        seen[symbol.name].channels = _Split(axis - 1, method.channel_observer(symbol.shape[axis], config))
        if method.covers_all:
            seen[symbol.name].range = None
    for channels, power in moments:
        shape = channels.seen(graph.by_name[channels.tensor].shape)
        seen[channels.tensor].means[channels, power] = MeanObserver.along(shape, channels.axis, power)
    return seen


def _observe_samples(
    network: FloatNetwork,
    batches: Iterable[Mapping[str, Array]],
    fed: Sequence[Symbol],
    run: Sequence[Symbol],
    seen: dict[str, _Seen],
    config: CalibrationConfig,
    progress: Callable[[int], None] | None,
    executor: Executor,
) -> None:
    """Puts into `seen` what all samples show of the inputs `fed` and of the tensors `run`."""
    given = network.values(run, beside=fed)
    names = [symbol.name for symbol in fed], [symbol.name for symbol in run]
    blank = {symbol.name: seen[symbol.name] for symbol in (*fed, *run)}
    begin = _Observing(*names, given.places, given.batch, blank)
    done = 0

    def finished(part: Chunk | Place) -> None:
        nonlocal done
        done += part.count
        if progress is not None:
            progress(done)

    parts = places(batches, network.graph.inputs, given.batch, config.samples)
    seen.update(executor.gathered(begin, parts, (given.program,), given.at_once, finished).tensors)


def _channels_apart(graph: Graph, computed: Sequence[Symbol]) -> dict[Symbol, int]:
    """The channel axis of the tensors whose channels can be told apart: where the batch is axis 0, they are another."""
    if not computed:
        return {}
    axes, batch = channel_axes(graph), batch_of(graph)
    apart = (symbol for symbol in computed if symbol.shape[:1] == (batch,))
    return {symbol: axes[symbol.name] for symbol in apart if axes.get(symbol.name, 0) > 0}


@dataclass(frozen=True)
class _Split:
    """The observer of a tensor's channels. axis: of one sample."""

    axis: int
    observer: ChannelObserver

    def observe(self, samples: Array) -> _Split:
        return replace(self, observer=self.observer.observe(by_channel(samples, self.axis)))

    def merge(self, other: _Split) -> _Split:
        return replace(self, observer=self.observer.merge(other.observer))


@dataclass
class _Seen:
    """What was observed of one tensor so far. range: None where that of the channels tells it."""

    range: Ranging | None
    channels: _Split | None = None
    means: dict[_Moment, MeanObserver] = field(default_factory=dict)

    @property
    def split(self) -> _Split:
        """The channels, which must be observed."""
        if self.channels is None:
            raise ValueError("no channels are observed")
        return self.channels

    def observe(self, symbol: Symbol, samples: Array, first: int) -> None:
        """Observes samples of `symbol`, (n, *shape), the first of which is number `first` of the stream.

        DataError naming the tensor and the sample where a value is not finite.
        """
        if self.channels is not None:
            self.channels = self.channels.observe(samples)
            if self.range is None and not self.means and self.channels.observer.is_finite:
                return
        rows = samples.reshape(len(samples), -1)
        reject_non_finite(rows, len(rows), symbol.name, symbol.type, first)
        if self.range is not None:
            self.range = self.range.observe(rows)
        self.means = {moment: observer.observe(rows) for moment, observer in self.means.items()}

    def merge(self, other: _Seen) -> _Seen:
        """What both, begun as copies of one, have observed."""
        channels, range = self.channels, self.range
        if channels is not None and other.channels is not None:
            channels = channels.merge(other.channels)
        if range is not None and other.range is not None:
            range = range.merge(other.range)
        means = {moment: observer.merge(other.means[moment]) for moment, observer in self.means.items()}
        return _Seen(range, channels, means)

    def found(self) -> Range:
        if self.channels is None:
            return range_of(self.range or RangeObserver())
        ranges, count = self.channels.observer.ranges(), self.channels.observer.count
        if self.range is None:
            return Range(min(lo for lo, _ in ranges), max(hi for _, hi in ranges), ranges, count)
        whole = range_of(self.range)
        if self.channels.observer.lambda_ is None:  # The method is one for whole tensors.
            ranges = tuple((whole.clip(lo), whole.clip(hi)) for lo, hi in ranges)
        return replace(whole, channels=ranges, observations=count)


@dataclass(frozen=True)
class _SeenTensors:
    """What was observed of tensors, by name."""

    tensors: dict[str, _Seen]

    def merge(self, other: _SeenTensors) -> _SeenTensors:
        return _SeenTensors({name: seen.merge(other.tensors[name]) for name, seen in self.tensors.items()})


@dataclass(frozen=True)
class _Observing:
    """Begins to observe the inputs `fed` and the tensors `run`, which a program gives at `places`.

    batch: the length of chunks. blank: what was seen of each before.
    """

    fed: Sequence[str]
    run: Sequence[str]
    places: tuple[int, ...]
    batch: int
    blank: Mapping[str, _Seen]

    def __call__(self, program: Program) -> _Observer:
        return _Observer(self, program)

    def observe(self, program: Program, chunk: Chunk) -> dict[str, _Seen]:
        """What one chunk shows. Its tensors are let go on return."""
        seen = {name: replace(state, means=dict(state.means)) for name, state in self.blank.items()}
        given = [(name, chunk.arrays[name]) for name in self.fed]
        given += zip(self.run, values_at(self.places, program, chunk.arrays), strict=True)
        for name, value in given:
            seen[name].observe(program.graph.by_name[name], _samples(value, chunk, self.batch), chunk.first)
        return seen


class _Observer:
    """Observes the chunks that one process is given."""

    def __init__(self, observing: _Observing, program: Program) -> None:
        self._observing, self._program = observing, program
        self._seen = _SeenTensors(dict(observing.blank))
        self._lock = Lock()

    def add(self, part: Chunk | Place) -> None:
        found = _SeenTensors(self._observing.observe(self._program, part.read()))
        with self._lock:
            self._seen = self._seen.merge(found)

    def total(self) -> _SeenTensors:
        return self._seen


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


def samples_of(symbol: Symbol, value: Array, chunk: Chunk, batch: int) -> Array:
    """The chunk's real samples of one tensor, one a row; the tensor as one row where axis 0 is not the batch.

    Raises DataError naming the tensor and the sample where a value is not finite.
    """
    samples = _samples(value, chunk, batch)
    rows = samples.reshape(len(samples), -1)
    reject_non_finite(rows, len(rows), symbol.name, symbol.type, chunk.first)
    return rows


def _samples(value: Array, chunk: Chunk, batch: int) -> Array:
    """The chunk's real samples of one tensor, (n, *shape of one); the tensor as one where axis 0 is not the batch."""
    return value[: chunk.count] if value.shape[:1] == (batch,) else value[None]
