"""Convolutions of 3 x 3 by Winograd's algorithms: how weights lie, and what is computed.

Results in integers are those of direct sums; float ones are rounded otherwise, and less. Which algorithm serves:
`winograd_choice.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.dot_intrinsic import intrinsic_of
from mrt.backend.kernels.generic.narrow_groups import merged_groups
from mrt.backend.kernels.generic.winograd_algorithms import TAPS, Algorithm
from mrt.backend.kernels.generic.winograd_choice import ACCUMULATOR, HALF, WinogradForm, in_vectors
from mrt.backend.memory.storage import VECTOR, Storage, View
from mrt.backend.te.operands import Operand, Packed
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, dtype_of
from mrt.symbol import Array
from mrt.symbol.types import type_of


def pack_taps(weight: Array, groups: int, form: WinogradForm, data: View) -> Packed | None:
    """Transformed taps (O, I, 3, 3), I being the channels of a group, as [some blocks, point, I / depth, block, lane,
    depth], padded by 0: in the order in which they are multiplied. D and A follow. None where memory does not hold
    whole vectors of the data, as of a slice at its end.
    """
    dot, algorithm, (weight, groups) = form.dot, form.algorithm, merged_groups(weight, groups, form.dot, len(weight))
    outputs, inputs = in_vectors(weight, groups)
    if data.storage is None or data.storage.depth < inputs * form.groups:
        return None
    padded = np.zeros((outputs, inputs, TAPS, TAPS), weight.dtype)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    apart = padded.reshape(-1, form.tiling.blocks, dot.lanes, inputs // dot.depth, dot.depth, TAPS, TAPS)
    several, blocks, lanes, *vectors = apart.shape[:5]
    taps = np.empty((several, algorithm.points, vectors[0], blocks, lanes, vectors[1]), dot.weight)
    for some, held in zip(apart, taps, strict=True):
        # As few at a time stay in a near cache.
        held[...] = algorithm.transformed_taps(some.transpose(4, 5, 2, 0, 1, 3))
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
    lanes, channels = form.dot.lanes, int(taps.shape[2]) * form.dot.depth * form.groups
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
    several, _, _, held, lanes, depth = (int(length) for length in taps.shape)
    samples, *counts, _, vectors, lines, columns, parts, vector = (int(length) for length in data.shape)
    of_group = vectors * vector // form.groups
    unit = HALF if of_group % vector else vector
    steps, chunks, blocks = unit // depth, of_group // unit, several * held // form.groups
    chunk, step = te.reduce_axis((0, chunks), "vector"), te.reduce_axis((0, steps), "step")
    within = te.reduce_axis((0, depth), "within")

    def element(*at: Expression) -> Expression:
        n, line, column, part, block, point, lane = at
        near, inside = ([split(line, lines), split(column, columns)] for split in (tirx.floordiv, tirx.floormod))
        place = tirx.floordiv(block, blocks) * chunks + chunk if form.groups > 1 else chunk
        whole, first = (split(place, vector // unit) for split in (tirx.floordiv, tirx.floormod))
        x = data(n, *near, point, whole, *inside, part, first * unit + step * depth + within)
        w = taps(tirx.floordiv(block, held), point, chunk * steps + step, tirx.floormod(block, held), lane, within)
        made = form.dot.accumulator
        return te.sum(x.astype(made) * w.astype(made), [chunk, step, within])

    intrinsic = "" if form.dot.formed_by is None else intrinsic_of(form.dot)
    hints = {"dot": intrinsic, "winograd": [int(number) for number in astuple(form.tiling)]}
    tiles = counts[0] * lines, counts[1] * columns
    dots = stage((samples, *tiles, parts, several * held, form.algorithm.points, lanes), element, "dots", **hints)
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
