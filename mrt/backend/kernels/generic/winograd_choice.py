"""Convolutions of 3 x 3 by Winograd's algorithms: which of them serves, and how its tiles are walked.

What the algorithms are: `winograd_algorithms.py`; what they compute: `winograd.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mrt.backend.kernels.dot_instruction import INT16_HOLDS, Int16Dot
from mrt.backend.kernels.dot_instructions import Dot, choose_dot, dots_of
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.generic.narrow_groups import merged_groups
from mrt.backend.kernels.generic.winograd_algorithms import ALGORITHMS, F2, TAPS, Algorithm, TapSums, algorithm_of
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import FEW, VECTOR
from mrt.backend.schedule.loops import BESIDE, LINE, LINE_BYTES, LOAD, SECOND_BYTES, divisors
from mrt.symbol import Array, Interval, TensorType
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.convolution import Convolution

ACCUMULATOR = "uint32"
"""Dtype of the sums modulo 2^32."""

OPERATION, WORTH = 0.8, 0.9
"""What an operation of a transform costs, in dots, as measured on Zen 4; of what direct sums cost, how much is little
enough."""
FAR_LINE, LATE_LINE = 9, 2
"""Dots that are formed while a line of weights comes from far memory, and those for which it is waited in spite of
prefetches."""
HALF = 8
"""Channels of half a vector, of which those of each of several groups are a multiple."""
STRIPE_BYTES = 1 << 17
"""Of transformed data, which stay in the second cache beside the weights."""
MOST_BLOCKS, FEWEST, USUAL = 4, 10, 1.2
"""At most of output channels in registers; sums that hide how long a dot takes that adds to them; the cost of a dot
where lines have a number of tiles that is not prime."""


@dataclass(frozen=True)
class WinogradTiling:
    """How the tiles of a sample are walked.

    side: points along each axis of one, which tell the algorithm. parts: 2 where both bytes of words are summed by
    themselves. stripe: lines of tiles whose data are transformed at once. lines, columns: of the tiles
    whose products are in registers together, for so many `blocks` of output channels.
    far: whether the second cache does not hold the weights, so that they are walked once for all samples.
    """

    side: int
    parts: int
    stripe: int
    lines: int
    columns: int
    blocks: int
    far: bool

    @classmethod
    def of_hint(cls, numbers: Sequence[Any]) -> WinogradTiling:
        """That whose fields are these."""
        side, parts, stripe, lines, columns, blocks, far = map(int, numbers)
        return cls(side, parts, stripe, lines, columns, blocks, bool(far))

    @property
    def algorithm(self) -> Algorithm:
        return algorithm_of(self.side)

    def cost(self, dot: Dot) -> float:
        """Of a dot, with what is loaded for it."""
        dots, fewest = self.together * self.blocks, FEWEST if dot.formed_by and dot.formed_by.adds else 1
        return (max(dots, fewest) + LOAD * (self.together + self.blocks) + LINE * self.blocks) / dots

    @property
    def together(self) -> int:
        """Vectors of the data that a line of weights is multiplied by."""
        return self.lines * self.columns * self.parts

    @property
    def registers(self) -> int:
        return self.together * self.blocks + self.blocks + BESIDE


@dataclass(frozen=True)
class WinogradForm(DotForm):
    """How the transformed taps lie in memory, and how tiles are walked."""

    tiling: WinogradTiling = field(kw_only=True)

    @property
    def algorithm(self) -> Algorithm:
        return self.tiling.algorithm

    @property
    def is_modular(self) -> bool:
        """Whether sums are multiples of the results modulo 2^32; those of floats are the results."""
        return self.dot.accumulator == ACCUMULATOR


def winograd_of(
    operator: Convolution,
    data: TensorType,
    weight: Array,
    made: TensorType,
    machine: Machine,
    bounds: Interval | None = None,
    samples: int = 1,
) -> WinogradForm | None:
    """How one of the algorithms forms the sums of a convolution; None where none serves.

    data, made: what the convolution reads and gives. bounds: what is known of the data; bytes are read as whatever
    their dtype holds. samples: that are summed at once. How memory lies and what is rewritten is decided for one, so
    that it is the same for all stretches of a batch.
    """
    stride, dilate, _ = operator.window(len(operator.kernel))
    groups = operator.num_group
    fits = operator.kernel == (TAPS, TAPS) and len({*stride}) == 1 and {*dilate} == {1}
    fits = fits and (groups == 1 or weight.shape[1] > 1)  # Single channels have kernels of their own.
    if fits and {data.dtype, weight.dtype.name, made.dtype} == {"float32"}:
        return float_form(weight, made.shape, machine, stride[0], groups)
    if not fits or weight.dtype != np.int8 or data.dtype not in INT16_HOLDS or made.dtype != "int32":
        return None
    ends = DTYPE_RANGES[data.dtype]
    if bounds is not None and data.dtype == "int16":
        ends = int(bounds.min), int(bounds.max)
    return winograd_form(weight, data.dtype, (samples, *made.shape[1:]), machine, ends, stride[0], groups, bounds)


def winograd_form(
    weight: Array,
    data: str,
    shape: Sequence[int],
    machine: Machine,
    ends: tuple[int, int],
    stride: int = 1,
    groups: int = 1,
    known: Interval | None = None,
) -> WinogradForm | None:
    """How a convolution by taps (O, I / groups, 3, 3) of int8 gives a result of `shape` (N, O, H, W), of data of a
    dtype between two ends. known: of the data, where direct dots might add up pairs.

    None where no instruction forms the products, where channels do not fill vectors, where data or sums may be too
    large, or where direct ones take as long: of few tiles weights that come from far memory take most of the time.
    """
    found = next((each for each in dots_of(machine) if isinstance(each, Int16Dot)), None)
    if found is None or machine.has_tiles or weight.shape[1] * groups <= FEW:
        return None
    dot = Dot(found.data, 0, found.weight, found.depth, machine.lanes, ACCUMULATOR, found)
    merged = _merged(weight, groups, dot)
    if merged is None:
        return None
    direct = choose_dot(data, weight, "int32", machine, None if known is None else Pairs(known))
    return _cheapest(merged, shape, dot, direct, _ways(merged[0], data, ends, stride), machine)


def _merged(weight: Array, groups: int, dot: Dot) -> tuple[Array, int] | None:
    """The taps of groups that fill lanes, and how many these are; None where those of several do not fill vectors of
    channels, or halves of them."""
    made, fewer = merged_groups(weight, groups, dot, len(weight))
    outputs, inputs = made.shape[:2]
    if fewer == 1:
        return made, fewer
    left = outputs // fewer % dot.lanes, outputs % VECTOR, inputs % HALF, fewer * inputs % VECTOR
    return None if any(left) or outputs != len(weight) else (made, fewer)


def float_form(
    weight: Array, shape: Sequence[int], machine: Machine, stride: int, groups: int = 1
) -> WinogradForm | None:
    """The same for taps and data of float32, by `F2`: its sums are nearer to exact ones than direct sums are. Those of
    larger tiles are not.

    It does not depend on how many samples are summed at once, nor do the bits of the sums. None where vectors of
    channels are padded, by what may be no number.
    """
    dot = choose_dot("float32", weight, "float32", machine)
    merged = _merged(weight, groups, dot)
    if merged is None or merged[0].shape[1] * merged[1] % VECTOR or stride != F2.stride:
        return None
    return _cheapest(merged, (1, *shape[1:]), dot, dot, [(F2, 1)], machine)


def _cheapest(
    grouped: tuple[Array, int],
    shape: Sequence[int],
    dot: Dot,
    direct: Dot,
    ways: Iterable[tuple[Algorithm, int]],
    machine: Machine,
) -> WinogradForm | None:
    """The one of some ways, by dots, that takes least, if that is little beside direct dots. grouped: see `_merged`."""
    weight, groups = grouped
    outputs, inputs = in_vectors(weight, groups)
    dots = shape[2] * shape[3] * TAPS**2 * (outputs // dot.lanes) * -(-inputs // direct.depth)
    best, least = None, WORTH * dots * _instructions(direct)
    for algorithm, parts in ways:
        counts = -(-shape[2] // algorithm.tile), -(-shape[3] // algorithm.tile)
        size = _Size(algorithm, parts, counts, inputs, outputs // dot.lanes, groups, dot)
        tiling = size.tiling(machine)
        cost = size.cost(tiling, shape[0]) * _instructions(dot)
        if cost < least:
            best, least = WinogradForm(dot, flat=False, groups=groups, tiling=tiling), cost
    return best


def _ways(weight: Array, data: str, ends: tuple[int, int], stride: int) -> Iterator[tuple[Algorithm, int]]:
    """The algorithms that serve, each with the parts that data of a dtype are summed in."""
    taps = TapSums.of(weight)
    for algorithm in ALGORITHMS.values():
        if algorithm.stride != stride:
            continue
        if algorithm.serves(taps, *ends):
            yield algorithm, 1
        elif data == "int16" and algorithm.serves_bytes(taps, *ends):
            yield algorithm, 2


def _instructions(dot: Dot) -> int:
    """That a dot takes."""
    if dot.formed_by is None:
        return 2 * dot.depth
    return 3 if dot.formed_by.widens else 1 if dot.formed_by.adds else 2


def in_vectors(weight: Array, groups: int) -> tuple[int, int]:
    """Output and input channels of taps, padded to whole vectors where there is one group."""
    if groups > 1:
        return weight.shape[0], weight.shape[1]
    outputs, inputs = (-(-count // VECTOR) * VECTOR for count in weight.shape[:2])
    return outputs, inputs


@dataclass(frozen=True)
class _Size:
    """Of a convolution: tiles of a sample along both axes, input channels of a group in memory, and blocks of output
    channels, of all groups."""

    algorithm: Algorithm
    parts: int
    counts: tuple[int, int]
    inputs: int
    blocks: int
    groups: int
    dot: Dot

    @property
    def weight_bytes(self) -> int:
        return self.algorithm.points * self.inputs * self.blocks * self.dot.lanes * np.dtype(self.dot.weight).itemsize

    def cost(self, tiling: WinogradTiling, samples: int) -> float:
        """Of one of so many samples that are summed at once, in dots of usual tilings."""
        tiles, lanes = math.prod(self.counts) * self.parts, self.dot.lanes * self.dot.depth
        of_data, of_results = self.algorithm.data_operations, self.algorithm.result_operations
        operations = tiles * (of_data * self.inputs * self.groups / lanes + of_results * self.blocks)
        dots = tiles * self.algorithm.points * self.inputs // self.dot.depth * self.blocks
        formed = dots * tiling.cost(self.dot) / USUAL
        lines = self.weight_bytes / LINE_BYTES / samples if tiling.far else 0
        return max(formed + OPERATION * operations, FAR_LINE * lines) + LATE_LINE * lines

    def tiling(self, machine: Machine) -> WinogradTiling:
        """The cheapest. All tiles are one stripe where weights are far; else stripes are short: threads share them."""
        (rows, columns), far = self.counts, self.weight_bytes > SECOND_BYTES
        channels = self.inputs * self.groups
        row_bytes = columns * self.parts * self.algorithm.points * channels * np.dtype(self.dot.data).itemsize
        near = [n for n in divisors(rows) if n * row_bytes <= STRIPE_BYTES] or [1]
        found = [
            WinogradTiling(self.algorithm.side, self.parts, stripe, lines, across, blocks, far)
            for stripe in ([rows] if far else near)
            for blocks in divisors(self.blocks // self.groups)
            for across in divisors(columns)
            for lines in (divisors(stripe) if across == columns else [1])
            if blocks <= MOST_BLOCKS
        ]
        return min(
            (tiling for tiling in found if tiling.registers <= machine.registers),
            key=lambda tiling: (round(tiling.cost(self.dot), 6), tiling.stripe, tiling.blocks),
        )
