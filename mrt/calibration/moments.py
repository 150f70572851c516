"""Gathers the moments of layers: what they read, rounded to its quantizer, and what they give, over samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from mrt.blas import one_blas_thread
from mrt.calibration.layer_moments import LayerMoments
from mrt.calibration.network import Values, values_at
from mrt.calibration.stream import Chunk, Place
from mrt.execution import THREADS, Executor, Program
from mrt.symbol import Array, Symbol

LEAST_ROWS, MOST_ROWS = 256, 2048
"""Rows that are multiplied at once. Of LEAST_ROWS, float32 holds all sums of products of 8-bit integers exactly, which
stay below 2^24. The more rows, the less time it takes to add up what was multiplied."""
HELD, COPIED = 2**20, 2**18
"""Rows wait to be multiplied until they are so many numbers, within these limits; and are copied, as BLAS wants them,
so many numbers at once, which stay in the cache."""
ONE_SAMPLE = 256
"""The most positions that are taken of one sample."""
ROWS, ROWS_FOR_EACH_INPUT = 2**14, 32
"""So many positions of all samples do, or so many times the inputs of an output where that is more."""
OUTPUT_BITS = 15
"""An output is rounded to steps of its largest magnitude over at most 2^15, which adds noise at -90 dB or less."""
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, eq=False)
class Reading:
    """How a layer is observed.

    layer: of an operator that has `patches`. scales, zero_points: of the quantizer of what it reads, of the rank of
    that, each axis 1 or full; lo, hi: the quantizer's integers. y_step: that outputs are rounded to. positions: the
    most that are taken of all samples. crosses: whether the products of inputs and outputs are asked for. splits: into
    how many runs the inputs are cut, as in LayerMoments.
    """

    layer: Symbol
    scales: Array
    zero_points: Array
    lo: int
    hi: int
    y_step: float
    positions: int
    crosses: bool = False
    splits: int = 1

    @property
    def x_steps(self) -> Array:
        """(parts, K): the scale of what each weight is multiplied with."""
        operator, (data, weight) = self.layer.operator, self.layer.inputs[:2]
        axis, groups = operator.data_channel_axis(data.type.rank), operator.weight_groups()
        scales = np.broadcast_to(self.scales.reshape(-1), (1 if axis is None else data.shape[axis],))
        inputs = weight.type.size // self.outputs
        steps: Array = np.repeat(scales, inputs * groups // len(scales)).reshape(groups * self.splits, -1)
        return steps

    @property
    def axis(self) -> int:
        """The axis of the output that counts its channels."""
        axis = self.layer.channel_axis
        if axis is None:
            raise ValueError(f"{self.layer.name} ({self.layer.op}) has no weight")
        return axis

    @property
    def outputs(self) -> int:
        """How many output channels there are."""
        count: int = self.layer.shape[self.axis]
        return count

    @property
    def bytes(self) -> int:
        """What its sums take."""
        parts, inputs = self.x_steps.shape
        sums: int = parts * inputs * inputs + (inputs * self.outputs if self.crosses else 0)
        return 8 * sums

    @property
    def largest(self) -> int:
        """The largest magnitude of an integer less its zero point."""
        return int(np.maximum(self.hi - self.zero_points, self.zero_points - self.lo).max())

    def integers(self, x: Array) -> Array:
        """Real values as those of their quantizer, less the zero point, in float32 or, where they need it, float64."""
        dtype = np.float32 if self.largest**2 * LEAST_ROWS <= 2**24 else np.float64
        found = x / self.scales.astype(np.float32 if x.dtype == np.float32 else np.float64)
        np.clip(np.rint(found, out=found), self.lo - self.zero_points, self.hi - self.zero_points, out=found)
        exact: Array = found.astype(dtype, copy=False)
        return exact


def gather(
    readings: Sequence[Reading],
    parts: Iterable[Chunk | Place],
    given: Values,
    samples: int,
    executor: Executor = THREADS,
) -> dict[str, LayerMoments]:
    """The moments of layers, by name, over all parts.

    given: gives what each layer reads, unless that is an input, and what it gives, in any order; real values. A tensor
    whose axis 0 is not as long as a chunk belongs to one sample. samples: how many there are, by which the positions
    are shared out.

    They depend on the samples and their order alone: not on batches, chunks or who works on them.
    """
    outputs = given.program.graph.outputs
    names = tuple(outputs[place].name for place in given.places)
    layers = {each.layer.name: {**vars(each), "layer": None} for each in readings}
    begin = _Gathering(layers, names, given.places, given.batch, max(samples, 1))
    found = executor.gathered(begin, parts, (given.program,), given.at_once)
    return dict(found.layers)


@dataclass(frozen=True, eq=False)
class _LayersMoments:
    """The moments of layers by name."""

    layers: Mapping[str, LayerMoments]

    def merge(self, other: _LayersMoments) -> _LayersMoments:
        return _LayersMoments({name: found.merge(other.layers[name]) for name, found in self.layers.items()})


@dataclass(frozen=True, eq=False)
class _Gathering:
    """Begins to gather. readings: by the name of the layer the fields of its `Reading`, but for the layer itself.
    names: of the tensors that the program gives at `places`."""

    readings: Mapping[str, Mapping[str, Any]]
    names: tuple[str, ...]
    places: tuple[int, ...]
    batch: int
    samples: int

    def __call__(self, program: Program) -> _Gatherer:
        return _Gatherer(self, program)


class _Gatherer:
    """Gathers the moments of the chunks that one process is given."""

    def __init__(self, gathering: _Gathering, program: Program) -> None:
        self._gathering, self._program, by_name = gathering, program, program.graph.by_name
        readings = (Reading(**{**fields, "layer": by_name[name]}) for name, fields in gathering.readings.items())
        self._sums = [_Sums(reading, gathering.samples) for reading in readings]

    def add(self, part: Chunk | Place) -> None:
        chunk, gathering = part.read(), self._gathering
        values = values_at(gathering.places, self._program, chunk.arrays)
        known = {**chunk.arrays, **dict(zip(gathering.names, values, strict=True))}
        with one_blas_thread():  # chunks share the cores, and threads of BLAS would wait for each other
            for each in self._sums:
                layer = each.reading.layer
                each.add(known[layer.inputs[0].name], known[layer.name], chunk, gathering.batch)

    def total(self) -> _LayersMoments:
        return _LayersMoments({each.reading.layer.name: each.finish() for each in self._sums})


def _drawn(first: int, positions: int, wanted: int) -> Array:
    """`wanted` of a sample's positions, one in each of so many equal parts, at places that differ by the golden ratio.

    first: the number of draws before.
    """
    if wanted >= positions:
        return np.arange(positions)
    place = np.modf((first + np.arange(wanted)) * GOLDEN)[0]
    drawn: Array = ((np.arange(wanted) + place) * (positions / wanted)).astype(np.int64)
    return drawn


class _Sums:
    """The sums of one layer while chunks are added to them, from several threads."""

    def __init__(self, reading: Reading, samples: int) -> None:
        self.reading = reading
        self._samples = samples
        parts, inputs = reading.x_steps.shape
        crossed = np.zeros((parts, inputs, reading.outputs // parts)) if reading.crosses else None
        sums = (np.zeros((parts, inputs, inputs)), np.zeros((parts, inputs)), np.zeros(reading.outputs), crossed)
        self._found = LayerMoments(0, reading.x_steps, reading.y_step, *sums, reading.splits)
        self._lock = Lock()
        self._enough = int(np.clip(HELD // max(parts * inputs, 1), LEAST_ROWS, MOST_ROWS))
        self._rows: list[Array] = []
        """Of x, (parts, R, K), whose products are still to be summed."""

    def add(self, x: Array, y: Array, chunk: Chunk, length: int) -> None:
        layer = self.reading.layer
        outputs = np.moveaxis(y, self.reading.axis, -1)
        where = self._positions(outputs.shape[:-1], chunk, length)
        if not len(where):
            return
        rows = layer.operator.patches(self.reading.integers(x), where)
        if rows is None:
            raise ValueError(f"{layer.name} ({layer.op}) has no patches")
        rows = _by_run(rows, self.reading.splits)
        at = np.unravel_index(where, outputs.shape[:-1]) if outputs.ndim > 1 else (None,)
        given = np.rint(outputs[at].astype(np.float64) / self.reading.y_step)
        crossed = _crossed(rows, given) if self.reading.crosses else None
        with self._lock:
            self._found = replace(
                self._found,
                count=self._found.count + len(where),
                x=self._found.x + rows.sum(axis=1, dtype=np.float64),
                y=self._found.y + given.sum(axis=0),
                xy=None if crossed is None or self._found.xy is None else self._found.xy + crossed,
            )
            self._rows.append(rows)
            full = self._taken() if sum(each.shape[1] for each in self._rows) >= self._enough else []
        self._multiply(full)

    def finish(self) -> LayerMoments:
        """What was found; nothing may be added any more."""
        self._multiply(self._taken())
        return self._found

    def _taken(self) -> list[Array]:
        rows, self._rows = self._rows, []
        return rows

    def _multiply(self, found: Sequence[Array]) -> None:
        """Adds the products of some rows with themselves."""
        if not found:
            return
        parts, inputs = self.reading.x_steps.shape
        count = sum(rows.shape[1] for rows in found)
        step = max(COPIED // max(count * inputs, 1), 1)
        for first in range(0, parts, step):
            # Of depthwise convolutions channels are the neighbours in memory, and BLAS multiplies no such matrices.
            some = [each[first : first + step] for each in found]
            rows = np.concatenate(some, axis=1, out=np.empty((len(some[0]), count, inputs), some[0].dtype))
            for block in _exact_blocks(rows):
                products = np.matmul(block.transpose(0, 2, 1), block)
                with self._lock:
                    self._found.xx[first : first + step] += products

    def _positions(self, shape: tuple[int, ...], chunk: Chunk, length: int) -> Array:
        """Which of the output's positions are taken, of each of the chunk's samples the same share."""
        is_batch = shape[:1] == (length,)
        count, each = (chunk.count, math.prod(shape[1:])) if is_batch else (1, math.prod(shape))
        found = []
        for place in range(count):
            before, after = ((chunk.first + place + k) * self.reading.positions // self._samples for k in range(2))
            drawn = _drawn(before, each, min(after - before, ONE_SAMPLE))
            found.append(drawn + place * each)
        return np.concatenate(found)


def _exact_blocks(rows: Array) -> Iterator[Array]:
    """Runs of rows (parts, R, K) whose sums of products their dtype holds exactly.

    No sum of products, nor a part of it, exceeds the largest sum of squares.
    """
    count, limit = rows.shape[1], 2**24 if rows.dtype == np.float32 else 2**53
    if count <= LEAST_ROWS or np.einsum("prk,prk->pk", rows, rows).max(initial=0) < limit:
        yield rows
        return
    half = max(count // 2, LEAST_ROWS)
    yield from _exact_blocks(rows[:, :half])
    yield from _exact_blocks(rows[:, half:])


def _by_run(rows: Array, splits: int) -> Array:
    """(groups, R, inputs) as (parts, R, K)."""
    if splits == 1:
        return rows
    groups, count, inputs = rows.shape
    apart = rows.reshape(groups, count, splits, inputs // splits).transpose(0, 2, 1, 3)
    return apart.reshape(groups * splits, count, inputs // splits)


def _crossed(rows: Array, given: Array) -> Array:
    """(groups, K, O / groups): the sums of the products of x and y, exact in float64."""
    groups, count = rows.shape[:2]
    outputs = given.reshape(count, groups, -1).transpose(1, 0, 2)
    result: Array = np.matmul(rows.transpose(0, 2, 1).astype(np.float64), outputs)
    return result
