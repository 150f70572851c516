"""Rows of K laid out as dots read them, lane by lane: a tensor intrinsic of shuffles, where TVM would gather.

A dot takes a word of 32 bits from each lane. Blocks of four words of as many rows as there are lanes are turned: each
vector takes them from every fourth row, and the four vectors are interleaved by words and then by pairs of words.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.kernels.tensor_intrinsic import Buffer, Part, loaded, stored, tensor_intrinsic
from mrt.backend.tir.expressions import Expression, shuffled

WORDS = 4
"""Words of a row that are turned at once, 128 bits."""
_PREFIX = "mrt.turn."


def turning(dot: Dot) -> str:
    """The name of the tensor intrinsic that makes [word, lane, depth] of WORDS words of each lane's row; it is
    registered when first asked for."""
    depth, lanes = dot.depth, dot.lanes

    def element(x: Buffer, word: Expression, lane: Expression, within: Expression) -> Expression:
        return tirx.BufferLoad(x, [lane, word * depth + within])

    def shuffled_rows(x: Buffer, y: Buffer) -> list[Expression]:
        rows = [tirx.reinterpret(f"int32x{WORDS}", loaded(x, [lane, 0], WORDS * depth)) for lane in range(lanes)]
        made = [tirx.reinterpret(f"{dot.weight}x{lanes * depth}", vector) for vector in turned(rows)]
        return [stored(y, [word, 0, 0], lanes * depth, vector) for word, vector in enumerate(made)]

    rows, made = Part((lanes, WORDS * depth), dot.weight, apart=True), Part((WORDS, lanes, depth), dot.weight)
    return tensor_intrinsic(f"{_PREFIX}{dot.weight}.{depth}.{lanes}", [rows], made, element, shuffled_rows)


def is_turning(intrinsic: str) -> bool:
    """Whether a tensor intrinsic is one that `turning` names."""
    return intrinsic.startswith(_PREFIX)


def turned(rows: Sequence[Expression]) -> list[Expression]:
    """For each place of rows that are vectors of n elements, a vector of what all rows have there, in their order.

    n is a power of two, and the number of rows a multiple of it. Vectors of every n-th row are interleaved, element by
    element within each n, as often as n can be halved.
    """
    places = int(rows[0].ty.dtype.lanes)
    found = [_joined(rows[first::places], places) for first in range(places)]
    for _ in range(places.bit_length() - 1):
        halves = zip(found[: places // 2], found[places // 2 :], strict=True)
        found = [_interleaved(first, second, places, half) for first, second in halves for half in (0, 1)]
    return found


def _joined(parts: Sequence[Expression], places: int) -> Expression:
    return parts[0] if len(parts) == 1 else shuffled(parts, range(len(parts) * places))


def _interleaved(first: Expression, second: Expression, places: int, half: int) -> Expression:
    """Of each `places` elements the first or second half of two vectors, in turns."""
    lanes = int(first.ty.dtype.lanes)
    return shuffled(
        [first, second],
        [
            block + half * places // 2 + place + of * lanes
            for block in range(0, lanes, places)
            for place in range(places // 2)
            for of in (0, 1)
        ],
    )
