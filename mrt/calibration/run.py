"""The calibration run: a float graph over a stream of samples, every tensor asked for observed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from mrt.calibration.observers import Observer, RangeObserver
from mrt.calibration.stream import Chunk, chunks, reject_non_finite
from mrt.calibration.thresholds import CalibrationConfig, Threshold, new_observer, threshold_of
from mrt.errors import DataError, GraphError
from mrt.symbol import Array, Evaluate, Graph, Runner, Symbol
from mrt.symbol.rebatch import Rebatch, batch_of

_log = logging.getLogger(__name__)


def calibrate(
    graph: Graph,
    batches: Iterable[Mapping[str, Array]],
    tensors: Sequence[str],
    config: CalibrationConfig,
    runner: Runner,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Threshold]:
    """The thresholds of `tensors` (symbol names) over the samples of `batches`, by name.

    graph: a float graph with the batch size it was read with. batches: arrays by input name (or the array itself where
    the graph has one input) with any number of samples each, axis 0 counting them. progress: called after every chunk
    with the number of samples seen so far.

    The stream is cut into chunks of `config.batch_size` and the graph compiled once for that; where the graph bakes its
    batch in, for the batch it has. Thresholds do not depend on how the samples were batched. Parameters are observed
    exactly, whatever the method. Memory does not grow with the number of samples.

    Raises GraphError for a name that the graph does not have, DataError for unusable data and for NaN or infinity in
    the data or in a tensor, naming it and the sample.
    """
    symbols = _find(graph, tensors)
    depends = graph.dependents(graph.inputs)
    observers: dict[str, Observer] = {symbol.name: new_observer(config) for symbol in symbols}
    constants = [symbol for symbol in symbols if symbol not in depends]
    observers |= _observe_constants(graph, constants)
    fed = [symbol for symbol in symbols if symbol in graph.inputs]
    computed = [symbol for symbol in symbols if symbol in depends and not symbol.is_variable]
    if not fed and not computed:
        return {name: threshold_of(observer) for name, observer in observers.items()}
    compiled = _compile(graph, computed, config.batch_size, runner)
    for chunk in chunks(batches, graph.inputs, compiled.batch, config.samples):
        values = [chunk.arrays[symbol.name] for symbol in fed]
        if computed:
            values += compiled.evaluate(chunk.arrays)
        for symbol, value in zip((*fed, *computed), values, strict=True):
            observers[symbol.name] = observers[symbol.name].observe(_samples(symbol, value, chunk, compiled.batch))
        if progress is not None:
            progress(chunk.first + chunk.count)
    return {name: threshold_of(observer) for name, observer in observers.items()}


@dataclass(frozen=True)
class _Compiled:
    evaluate: Evaluate
    batch: int


def _find(graph: Graph, tensors: Sequence[str]) -> list[Symbol]:
    for name in tensors:
        if name not in graph.by_name:
            nearest = ", ".join(get_close_matches(name, graph.by_name, cutoff=0.0))
            raise GraphError(f"calibration asks for {name}, which the graph does not have; nearest: {nearest}")
    return [graph.by_name[name] for name in dict.fromkeys(tensors)]


def _observe_constants(graph: Graph, constants: Sequence[Symbol]) -> dict[str, Observer]:
    """Parameters, and what depends on parameters alone: seen once, exactly."""
    observed: dict[str, Observer] = {}
    values = Graph((), tuple(constants), graph.parameters).evaluate({})
    for symbol, value in zip(constants, values, strict=True):
        try:
            reject_non_finite(value, 1, symbol.name, symbol.type, 0)
        except DataError:
            raise DataError(f"parameter {symbol.name} ({symbol.type}) holds NaN or infinity") from None
        observed[symbol.name] = RangeObserver().observe(value.reshape(1, -1))
    return observed


def _compile(graph: Graph, computed: Sequence[Symbol], batch_size: int, runner: Runner) -> _Compiled:
    """One executable whose outputs are `computed`, for `batch_size` samples or, where that is refused, as read."""
    if not computed:
        return _Compiled(lambda feeds: [], batch_size)
    wanted = graph.with_outputs(computed)
    own_batch = batch_of(wanted)
    try:
        wanted = Rebatch(batch_size)(wanted)
    except GraphError as refusal:
        _log.info("calibration runs with batch %d: %s", own_batch, refusal)
        return _Compiled(runner.prepare(wanted), own_batch)
    return _Compiled(runner.prepare(wanted), batch_size)


def _samples(symbol: Symbol, value: Array, chunk: Chunk, batch: int) -> Array:
    """The chunk's real samples of one tensor, one a row; the tensor as one row where axis 0 is not the batch."""
    rows = batch if value.shape[:1] == (batch,) else 1
    values = value.reshape(rows, -1)[: chunk.count]
    reject_non_finite(values, len(values), symbol.name, symbol.type, chunk.first)
    return values
