"""Metrics, float against integer: streamed over batches, independent of how the samples are batched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import DataError, GraphError
from mrt.execution import Program
from mrt.symbol import Array, Evaluate, Graph, Runner, Symbol
from mrt.symbol.rebatch import batch_of, sized


@dataclass(frozen=True)
class Share:
    """A count of samples out of a total; the counts of batches add up."""

    hits: int = 0
    total: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.hits + other.hits, self.total + other.total)

    @property
    def value(self) -> float | None:
        """The fraction of 1; None without samples."""
        return self.hits / self.total if self.total else None


@dataclass(frozen=True)
class Noise:
    """The energy of a reference signal and of the error, sums of squares in float64; those of batches add up."""

    signal: float = 0.0
    error: float = 0.0

    def __add__(self, other: Noise) -> Noise:
        return Noise(self.signal + other.signal, self.error + other.error)

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(sum f^2 / sum (f - q)^2); None where there is no error or no signal, and so no ratio."""
        if self.error == 0 or self.signal == 0:
            return None
        return 10 * math.log10(self.signal / self.error)


def predict(scores: Array) -> Array:
    """The class of each sample: the first of the highest among all its scores, int64 [samples].

    scores: [samples, ...]. Raises DataError naming a sample whose scores hold NaN.
    """
    flat = scores.reshape(len(scores), -1)
    if np.isnan(flat).any():
        raise DataError(f"the scores of sample {int(np.isnan(flat).any(axis=1).argmax())} of a batch hold NaN")
    classes: Array = flat.argmax(axis=1)
    return classes


def top1(scores: Array, labels: Array) -> Share:
    """How many samples have their label as their class. scores: [samples, ...]; labels: integers [samples].

    Raises DataError for a label beyond the classes.
    """
    classes = scores.reshape(len(scores), -1).shape[1]
    if labels.size and labels.max() >= classes:
        raise DataError(f"the labels go up to {labels.max()}, the network has {classes} classes")
    return Share(int((predict(scores) == labels).sum()), len(labels))


def paired(scores: Array, others: Array, labels: Array) -> tuple[int, int]:
    """How many samples `scores` alone gets right, and how many `others` alone, each [samples, ...]."""
    right, also = (predict(each) == labels for each in (scores, others))
    return int((right & ~also).sum()), int((also & ~right).sum())


def agreement(scores: Array, others: Array) -> Share:
    """How many samples have the same class by both scores, each [samples, ...]."""
    return Share(int((predict(scores) == predict(others)).sum()), len(scores))


def quantization_noise(reference: Array, measured: Array) -> Noise:
    """Signal and error of `measured` against `reference`, both of one shape."""
    noise = Noise()
    for f, q in _in_pieces(reference, measured):
        noise += Noise(float(np.square(f).sum()), float(np.square(f - q).sum()))
    return noise


PIECE = 1 << 15
"""Elements that are compared at a time: of smaller pieces threads wait for each other, as Python runs one of them."""


def _in_pieces(*arrays: Array) -> Iterator[Sequence[Array]]:
    """Arrays that broadcast, as float64, piece by piece.

    Those of whole maps would not stay in the cache, and take memory anew each time.
    """
    yield from np.nditer(
        arrays,
        flags=["buffered", "external_loop", "zerosize_ok"],
        op_dtypes=[np.float64] * len(arrays),
        casting="unsafe",  # of integers of 64 bits
        buffersize=PIECE,
        order="C",
    )


@dataclass(frozen=True)
class TensorError:
    """How far the integers of one tensor are from the float values that they stand for; errors of samples add up.

    worst_steps: the largest |float - real| in steps of the tensor; rounding alone gives up to 0.5.
    """

    noise: Noise = Noise()
    worst_steps: float = 0.0

    def __add__(self, other: TensorError) -> TensorError:
        return TensorError(self.noise + other.noise, max(self.worst_steps, other.worst_steps))


def tensor_error(reference: Array, integers: Array, scale: Array, zero_point: int | Array) -> TensorError:
    """The error of scale * (integers - zero_point) against `reference`, a float array of the same shape.

    scale and zero_point may be arrays that broadcast to it.
    """
    noise, worst = Noise(), 0.0
    for f, q, size, zero in _in_pieces(reference, integers, scale, np.asarray(zero_point)):
        steps = q - zero
        noise += Noise(float(np.square(f).sum()), float(np.square(f - size * steps).sum()))
        worst = float(np.maximum(worst, np.abs(f / size - steps).max()))  # which hands NaN on
    return TensorError(noise, worst)


@dataclass(frozen=True, eq=False)
class Counterpart:
    """The tensor of an integer graph that stands for the float tensor `origin`: real = scale * (q - zero_point)."""

    name: str
    origin: str
    scale: Array
    zero_point: Array


CENTRED = np.zeros((), np.int64)
"""The zero point of a tensor that no table names."""
NARROWER = 0.02
"""A form that misses more than this share of a tensor's calibrated range was cut for a consumer, such as a clip."""


def counterparts(
    graph: Graph,
    scales: Mapping[str, Array],
    zero_points: Mapping[str, Array],
    bounds: Mapping[str, tuple[int, int]],
    ranges: Mapping[str, tuple[float, float]],
) -> tuple[Counterpart, ...]:
    """For every float tensor the last integer tensor that stands for it, in the order of the integer graph.

    scales, zero_points: by integer symbol, as far as it stands for real values. bounds: the proven interval of every
    symbol. ranges: the calibrated range of the float tensors. Where a form cannot hold that range, because it is
    saturated for a consumer that cuts it anyway, the last that can is taken, if there is one.
    """
    found: dict[str, Counterpart] = {}
    whole: set[str] = set()
    for symbol in graph.symbols:
        if symbol.name not in scales or graph.value(symbol) is not None:
            continue
        form = Counterpart(symbol.name, symbol.origin, scales[symbol.name], zero_points.get(symbol.name, CENTRED))
        holds = symbol.origin not in ranges or _holds(form, bounds[symbol.name], ranges[symbol.origin])
        if holds or symbol.origin not in whole:
            found[symbol.origin] = form
        if holds:
            whole.add(symbol.origin)
    places = {symbol.name: place for place, symbol in enumerate(graph.symbols)}
    return tuple(sorted(found.values(), key=lambda form: places[form.name]))


def _holds(form: Counterpart, bounds: tuple[int, int], wanted: tuple[float, float]) -> bool:
    slack = NARROWER * (wanted[1] - wanted[0])
    lo, hi = ((bound - form.zero_point) * form.scale for bound in bounds)
    lo, hi = lo.min(), hi.max()
    return bool(lo <= wanted[0] + slack and hi >= wanted[1] - slack)


Walk = Callable[[Mapping[str, Array]], Iterator[tuple[Symbol, Array]]]
"""Arrays of one sample by input name, to every symbol with its value, in order."""


def sample_walk(graph: Graph) -> Walk:
    """`Graph.walk` for one sample; a graph that bakes another batch in walks with the sample repeated."""
    single = sized(graph, 1)
    batch = batch_of(single)
    return lambda feeds: single.walk({name: _padded(x, batch) for name, x in feeds.items()})


@dataclass(frozen=True)
class Measured:
    """What one batch gives. scores: the outputs after post-processing; logits: those before it; both in order."""

    scores: list[Array]
    logits: list[Array]


Measure = Callable[[Mapping[str, Array]], Measured]


@dataclass(frozen=True)
class Comparison:
    """A float network against its integer form. The classes are those of the first output; `noise` is of all logits.

    float_top1 and integer_top1 are empty where there are no labels. lost, won: samples that the float network
    alone gets right, and the integer one alone.
    """

    samples: int = 0
    float_top1: Share = Share()
    integer_top1: Share = Share()
    agreement: Share = Share()
    noise: Noise = Noise()
    lost: int = 0
    won: int = 0

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.samples + other.samples,
            self.float_top1 + other.float_top1,
            self.integer_top1 + other.integer_top1,
            self.agreement + other.agreement,
            self.noise + other.noise,
            self.lost + other.lost,
            self.won + other.won,
        )


def compare(
    batches: Iterable[Mapping[str, Array]],
    labels: Array | None,
    reference: Measure,
    measured: Measure,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Runs `reference` (float) and `measured` (integer) on every batch and scores both.

    batches: arrays by input name. labels: integers [samples], or None. progress: told the number of samples done.
    """
    total = Comparison()
    for feeds in batches:
        count = len(next(iter(feeds.values())))
        part = None if labels is None else labels[total.samples : total.samples + count]
        total += compare_batch(reference(feeds), measured(feeds), part)
        if progress is not None:
            progress(total.samples)
    return total


def compare_batch(f: Measured, q: Measured, labels: Array | None) -> Comparison:
    """What float and integer network give for some samples, scored. labels: integers [samples], or None."""
    noise = sum((quantization_noise(a, b) for a, b in zip(f.logits, q.logits, strict=True)), Noise())
    scored = (Share(), Share()) if labels is None else (top1(f.scores[0], labels), top1(q.scores[0], labels))
    lost, won = (0, 0) if labels is None else paired(f.scores[0], q.scores[0], labels)
    count = len(f.logits[0])
    return Comparison(count, *scored, agreement(f.scores[0], q.scores[0]), noise, lost, won)


def run_batched(graph: Graph, runner: Runner, batch_size: int) -> Evaluate:
    """A function that gives the graph's outputs for any number of samples, run `batch_size` at a time.

    A graph that bakes its batch in runs with the one it has. Raises GraphError for an output whose axis 0 is not the
    batch.
    """
    program = batched(graph, runner, batch_size)
    return lambda feeds: in_batches(program, feeds)


def batched(graph: Graph, runner: Runner, batch_size: int) -> Program:
    """The graph for `batch_size` samples, or for those that it bakes in; GraphError as `run_batched`."""
    wanted = sized(graph, batch_size)
    batch = batch_of(wanted)
    for symbol in wanted.outputs:
        if symbol.shape[:1] != (batch,):
            raise GraphError(
                f"output {symbol.name} is {symbol.type}; to be scored its axis 0 must be the batch, {batch}"
            )
    return Program(wanted, runner)


def in_batches(program: Program, feeds: Mapping[str, Array]) -> list[Array]:
    """What a program that `batched` made gives for any number of samples."""
    count, batch = len(next(iter(feeds.values()))), batch_of(program.graph)
    parts = [
        program({name: _padded(x[start : start + batch], batch) for name, x in feeds.items()})
        for start in range(0, count, batch)
    ]
    return [np.concatenate(outputs)[:count] for outputs in zip(*parts, strict=True)]


def _padded(x: Array, batch: int) -> Array:
    """`x` with its last sample repeated up to `batch` samples."""
    return x if len(x) == batch else np.concatenate([x, np.repeat(x[-1:], batch - len(x), axis=0)])
