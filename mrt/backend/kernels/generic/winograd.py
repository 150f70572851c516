"""Convolutions of 3 x 3 by Winograd's algorithms: which serve, how weights lie, what is computed.

Results in integers are those of direct sums; float ones are rounded otherwise, and less.

What the algorithms are: `winograd_algorithms.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.dot_instruction import INT16_HOLDS, Int16Dot
from mrt.backend.kernels.dot_instructions import Dot, choose_dot, dots_of
from mrt.backend.kernels.dot_intrinsic import intrinsic_of
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.generic.winograd_algorithms import ALGORITHMS, F2, TAPS, Algorithm, TapSums, algorithm_of
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import FEW, VECTOR, Storage, View
from mrt.backend.schedule.loops import BESIDE, LINE, LINE_BYTES, LOAD, SECOND_BYTES, divisors
from mrt.backend.te.operands import Operand, Packed
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, dtype_of
from mrt.symbol import Array, Interval, TensorType
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.types import type_of

ACCUMULATOR = "uint32"
"""Dtype of the sums modulo 2^32."""

OPERATION, WORTH = 0.8, 0.9
"""What an operation of a transform costs, in dots, as measured on Zen 4; of what direct sums cost, how much is little
enough."""
FAR_LINE, LATE_LINE = 9, 2
"""Dots that are formed while a line of weights comes from far memory, and those for which it is waited in spite of
prefetches."""
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

    data, made: what the convolution reads and gives. bounds: what is known of data of int16; bytes are asked for in
    memory, and read, as whatever their dtype holds. samples: that are summed at once. How memory lies and what is
    rewritten is decided for one, so that it is the same for all stretches of a batch.
    """
    stride, dilate, _ = operator.window(len(operator.kernel))
    fits = operator.kernel == (TAPS, TAPS) and len({*stride}) == 1 and {*dilate, operator.num_group} == {1}
    if fits and {data.dtype, weight.dtype.name, made.dtype} == {"float32"}:
        return float_form(weight, made.shape, machine, stride[0])
    if not fits or weight.dtype != np.int8 or data.dtype not in INT16_HOLDS or made.dtype != "int32":
        return None
    ends = DTYPE_RANGES[data.dtype]
    if bounds is not None and data.dtype == "int16":
        ends = int(bounds.min), int(bounds.max)
    return winograd_form(weight, data.dtype, (samples, *made.shape[1:]), machine, ends, stride[0])


def winograd_form(
    weight: Array, data: str, shape: Sequence[int], machine: Machine, ends: tuple[int, int], stride: int = 1
) -> WinogradForm | None:
    """How a convolution by taps (O, I, 3, 3) of int8 gives a result of `shape` (N, O, H, W), of data of a dtype between
    two ends.

    None where no instruction forms the products, where channels do not fill vectors, where data or sums may be too
    large, or where direct ones take as long: of few tiles weights that come from far memory take most of the time.
    """
    found = next((each for each in dots_of(machine) if isinstance(each, Int16Dot)), None)
    if found is None or machine.has_tiles or weight.shape[1] <= FEW:
        return None
    dot = Dot(found.data, 0, found.weight, found.depth, machine.lanes, ACCUMULATOR, found)
    direct = choose_dot(data, weight, "int32", machine, by_pairs=True)
    return _cheapest(weight, shape, dot, direct, _ways(weight, data, ends, stride), machine)


def float_form(weight: Array, shape: Sequence[int], machine: Machine, stride: int) -> WinogradForm | None:
    """The same for taps and data of float32, by `F2`: its sums are nearer to exact ones than direct sums are. Those of
    larger tiles are not.

    It does not depend on how many samples are summed at once, nor do the bits of the sums. None where vectors of
    channels are padded, by what may be no number.
    """
    if weight.shape[1] % VECTOR or stride != F2.stride:
        return None
    dot = choose_dot("float32", weight, "float32", machine)
    return _cheapest(weight, (1, *shape[1:]), dot, dot, [(F2, 1)], machine)


def _cheapest(
    weight: Array,
    shape: Sequence[int],
    dot: Dot,
    direct: Dot,
    ways: Iterable[tuple[Algorithm, int]],
    machine: Machine,
) -> WinogradForm | None:
    """The one of some ways, by dots, that takes least, if that is little beside direct dots."""
    outputs, inputs = _in_vectors(weight)
    dots = shape[2] * shape[3] * TAPS**2 * (outputs // dot.lanes) * -(-inputs // direct.depth)
    best, least = None, WORTH * dots * _instructions(direct)
    for algorithm, parts in ways:
        counts = -(-shape[2] // algorithm.tile), -(-shape[3] // algorithm.tile)
        size = _Size(algorithm, parts, counts, inputs, outputs // dot.lanes, dot)
        tiling = size.tiling(machine)
        cost = size.cost(tiling, shape[0]) * _instructions(dot)
        if cost < least:
            best, least = WinogradForm(dot, flat=False, groups=1, tiling=tiling), cost
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


def _in_vectors(weight: Array) -> tuple[int, int]:
    """Output and input channels of taps, padded to whole vectors."""
    outputs, inputs = (-(-count // VECTOR) * VECTOR for count in weight.shape[:2])
    return outputs, inputs


@dataclass(frozen=True)
class _Size:
    """Of a convolution: tiles of a sample along both axes, input channels in memory, and blocks of output channels."""

    algorithm: Algorithm
    parts: int
    counts: tuple[int, int]
    inputs: int
    blocks: int
    dot: Dot

    @property
    def weight_bytes(self) -> int:
        return self.algorithm.points * self.inputs * self.blocks * self.dot.lanes * np.dtype(self.dot.weight).itemsize

    def cost(self, tiling: WinogradTiling, samples: int) -> float:
        """Of one of so many samples that are summed at once, in dots of usual tilings."""
        tiles, lanes = math.prod(self.counts) * self.parts, self.dot.lanes * self.dot.depth
        of_data, of_results = self.algorithm.data_operations, self.algorithm.result_operations
        operations = tiles * (of_data * self.inputs / lanes + of_results * self.blocks)
        dots = tiles * self.algorithm.points * self.inputs // self.dot.depth * self.blocks
        formed = dots * tiling.cost(self.dot) / USUAL
        lines = self.weight_bytes / LINE_BYTES / samples if tiling.far else 0
        return max(formed + OPERATION * operations, FAR_LINE * lines) + LATE_LINE * lines

    def tiling(self, machine: Machine) -> WinogradTiling:
        """The cheapest. All tiles are one stripe where weights are far; else stripes are short: threads share them."""
        (rows, columns), far = self.counts, self.weight_bytes > SECOND_BYTES
        row_bytes = columns * self.parts * self.algorithm.points * self.inputs * np.dtype(self.dot.data).itemsize
        near = [n for n in divisors(rows) if n * row_bytes <= STRIPE_BYTES] or [1]
        found = [
            WinogradTiling(self.algorithm.side, self.parts, stripe, lines, across, blocks, far)
            for stripe in ([rows] if far else near)
            for blocks in divisors(self.blocks)
            for across in divisors(columns)
            for lines in (divisors(stripe) if across == columns else [1])
            if blocks <= MOST_BLOCKS
        ]
        return min(
            (tiling for tiling in found if tiling.registers <= machine.registers),
            key=lambda tiling: (round(tiling.cost(self.dot), 6), tiling.stripe, tiling.blocks),
        )


def pack_taps(weight: Array, form: WinogradForm, data: View) -> Packed | None:
    """Transformed taps (O, I, 3, 3) [group of blocks, point, I / depth, block, lane, depth], padded by 0: in
    the order in which they are multiplied. D and A follow. None where memory does not hold whole vectors of the data,
    as of a slice at its end.
    """
    dot, algorithm, (outputs, inputs) = form.dot, form.algorithm, _in_vectors(weight)
    if data.storage is None or data.storage.depth < inputs:
        return None
    padded = np.zeros((outputs, inputs, TAPS, TAPS), weight.dtype)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    apart = padded.reshape(-1, form.tiling.blocks, dot.lanes, inputs // dot.depth, dot.depth, TAPS, TAPS)
    groups, blocks, lanes, *vectors = apart.shape[:5]
    taps = np.empty((groups, algorithm.points, vectors[0], blocks, lanes, vectors[1]), dot.weight)
    for group, held in zip(apart, taps, strict=True):
        # One at a time stays in a near cache.
        held[...] = algorithm.transformed_taps(group.transpose(4, 5, 2, 0, 1, 3))
    results = "int32" if form.is_modular else dot.accumulator
    arrays = taps, np.array(algorithm.of_data, dot.data), np.array(algorithm.of_results, results)
    return Packed(form, arrays, tuple(Storage.plain(type_of(array)) for array in arrays))


Place = Callable[[Sequence[Expression], Sequence[Expression]], list[Expression]]
"""Gives, of a position (y, x) and a tap, where in the data it is."""


def winograd_sums(
    data: View, weight: Operand, shape: Sequence[int], place: Place, bias: Tensor | None
) -> Callable[..., Expression]:
    """A function of (channel, n, y, x) that gives the sum over the taps, plus a bias if there is one.

    shape: of the result, (N, H, W).
    """
    form: WinogradForm = weight.form
    algorithm = form.algorithm
    taps, data_matrix, result_matrix = weight.views
    lanes, channels = form.dot.lanes, int(taps.shape[2]) * form.dot.depth
    transformed = _transformed_data(data, data_matrix, shape, channels, place, form)
    multiples = _multiples(_products(transformed, taps, form), result_matrix, algorithm)

    shift = constant(algorithm.shift, "int32")

    def part(number: int, at: Sequence[Expression]) -> Expression:
        multiple = multiples(*at[:3], number, *at[3:])
        if not form.is_modular:
            return multiple
        return tirx.reinterpret("int32", multiple * constant(algorithm.inverse, ACCUMULATOR)) >> shift

    def whole(*at: Expression) -> Expression:
        total = part(0, at)
        if form.tiling.parts > 1:
            total += part(1, at) << constant(8, "int32")
        return total if bias is None else total + bias(at[-2] * lanes + at[-1]).astype(dtype_of(total))

    *tiles, _, line, column, blocks, _ = multiples.shape
    sums = stage((*tiles, line, column, blocks, lanes), whole, "sums", winograd_sums=1)

    def element(channel: Expression, n: Expression, *position: Expression) -> Expression:
        tile, inside = ([split(p, algorithm.tile) for p in position] for split in (tirx.floordiv, tirx.floormod))
        return sums(n, *tile, *inside, tirx.floordiv(channel, lanes), tirx.floormod(channel, lanes))

    return element


def _transformed_data(
    data: View, matrix: Tensor, shape: Sequence[int], channels: int, place: Place, form: WinogradForm
) -> Tensor:
    """D d Dᵀ of each tile, [n, group of lines, group of columns, point, vector, tile line, tile column, part, lane].

    The tiles that are multiplied together lie side by side, so that their data do not share a place in the first cache.
    """
    algorithm, tiling, (samples, *lengths) = form.algorithm, form.tiling, shape
    side, held = algorithm.side, (tiling.lines, tiling.columns)
    axes = [te.reduce_axis((0, algorithm.window), name) for name in ("row", "column")]
    wide = 2 * form.dot.lanes
    vector = wide if channels % wide == 0 else VECTOR

    def element(n: Expression, *at: Expression) -> Expression:
        *groups, point, chunk, line, column, part, lane = at
        tile = [group * count + inside for group, count, inside in zip(groups, held, (line, column), strict=True)]
        # What lies beyond the data counts only in results beyond the last.
        taps = [
            tirx.min(t * (algorithm.tile * algorithm.stride) + i, (length - 1) * algorithm.stride + TAPS - 1)
            for t, i, length in zip(tile, axes, lengths, strict=True)
        ]
        factor = matrix(tirx.floordiv(point, side), axes[0]) * matrix(tirx.floormod(point, side), axes[1])
        value = data(n, chunk * vector + lane, *place((0, 0), taps)).astype(matrix.dtype)
        return te.sum(factor * (value if tiling.parts == 1 else _byte(value, part)), axes)

    groups = [-(-length // algorithm.tile) // count for length, count in zip(lengths, held, strict=True)]
    made = samples, *groups, algorithm.points, channels // vector, *held, tiling.parts, vector
    return stage(made, element, "of_data", winograd_data=algorithm.side)


def _byte(word: Expression, part: Expression) -> Expression:
    """The lower byte of an int16, or part 1, which has its sign."""
    low, high = word & constant(255, "int16"), word >> constant(8, "int16")
    return tirx.Select(part == constant(0, "int32"), low, high)


def _products(data: Tensor, taps: Tensor, form: WinogradForm) -> Tensor:
    """The products of transformed data and taps, added up, [n, tile line, tile column, part, block, point, lane]."""
    groups, _, _, held, lanes, depth = (int(length) for length in taps.shape)
    samples, *counts, _, vectors, lines, columns, parts, vector = (int(length) for length in data.shape)
    steps = vector // depth
    chunk, step = te.reduce_axis((0, vectors), "vector"), te.reduce_axis((0, steps), "step")
    within = te.reduce_axis((0, depth), "within")

    def element(*at: Expression) -> Expression:
        n, line, column, part, block, point, lane = at
        near, inside = ([split(line, lines), split(column, columns)] for split in (tirx.floordiv, tirx.floormod))
        x = data(n, *near, point, chunk, *inside, part, step * depth + within)
        w = taps(tirx.floordiv(block, held), point, chunk * steps + step, tirx.floormod(block, held), lane, within)
        made = form.dot.accumulator
        return te.sum(x.astype(made) * w.astype(made), [chunk, step, within])

    intrinsic = "" if form.dot.formed_by is None else intrinsic_of(form.dot)
    hints = {"dot": intrinsic, "winograd": [int(number) for number in astuple(form.tiling)]}
    tiles = counts[0] * lines, counts[1] * columns
    dots = stage((samples, *tiles, parts, groups * held, form.algorithm.points, lanes), element, "dots", **hints)
    return stage(tuple(dots.shape), lambda *at: dots(*at), "products", winograd_products=1)


def _multiples(products: Tensor, matrix: Tensor, algorithm: Algorithm) -> Tensor:
    """A products Aᵀ, [n, tile line, tile column, part, line, column, block, lane]."""
    *tiles, blocks, _, lanes = (int(length) for length in products.shape)
    axes = [te.reduce_axis((0, algorithm.side), name) for name in ("point_row", "point_column")]

    def element(*at: Expression) -> Expression:
        *tile, line, column, block, lane = at
        first, second = (matrix(i, j).astype(products.dtype) for i, j in zip((line, column), axes, strict=True))
        value = products(*tile, block, axes[0] * algorithm.side + axes[1], lane)
        return te.sum(first * second * value, axes)

    shape = (*tiles, algorithm.tile, algorithm.tile, blocks, lanes)
    return stage(shape, element, "multiples", winograd_results=algorithm.side)
