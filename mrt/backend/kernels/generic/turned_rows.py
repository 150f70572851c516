"""Rows of K laid out as dots read them, lane by lane: a tensor intrinsic of shuffles, where TVM would gather.

A dot takes a word of 32 bits from each lane. Blocks of four words of as many rows as there are lanes are turned: each
vector takes them from every fourth row, and the four vectors are interleaved by words and then by pairs of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir
from tvm.script import tirx as script

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.tir.expressions import Expression, shuffled

WORDS = 4
"""Words of a row that are turned at once, 128 bits."""
_PREFIX = "mrt.turn."


def turning(dot: Dot) -> str:
    """The name of the tensor intrinsic that makes [word, lane, depth] of WORDS words of each lane's row; it is
    registered when first asked for."""
    name = f"{_PREFIX}{dot.weight}.{dot.depth}.{dot.lanes}"
    if s_tir.TensorIntrin.get(name, allow_missing=True) is None:
        s_tir.TensorIntrin.register(name, _description(dot), _implementation(dot))
    return name


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


def _description(dot: Dot) -> Any:
    depth, lanes, dtype = dot.depth, dot.lanes, dot.weight

    @script.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(a: script.handle, b: script.handle) -> None:
        pitch = script.int32()
        x = script.match_buffer(a, (lanes, WORDS * depth), dtype, offset_factor=1, strides=[pitch, 1])
        y = script.match_buffer(b, (WORDS, lanes, depth), dtype, offset_factor=1)
        with script.sblock("root"):
            script.reads(x[0:lanes, 0 : WORDS * depth])
            script.writes(y[0:WORDS, 0:lanes, 0:depth])
            for i, j, k in script.grid(WORDS, lanes, depth):
                with script.sblock("copy"):
                    word, lane, within = script.axis.remap("SSS", [i, j, k])
                    y[word, lane, within] = x[lane, word * depth + within]

    return description


def _implementation(dot: Dot) -> Any:
    depth, lanes, dtype = dot.depth, dot.lanes, dot.weight
    row, words, made = f"{dtype}x{WORDS * depth}", f"int32x{WORDS}", f"{dtype}x{lanes * depth}"

    def vectors(x: Any) -> list[Any]:
        rows = [script.reinterpret(x.vload([lane, 0], dtype=row), dtype=words) for lane in range(lanes)]
        return [script.reinterpret(vector, dtype=made) for vector in turned(rows)]

    @script.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(a: script.handle, b: script.handle) -> None:
        pitch = script.int32()
        x = script.match_buffer(a, (lanes, WORDS * depth), dtype, offset_factor=1, strides=[pitch, 1])
        y = script.match_buffer(b, (WORDS, lanes, depth), dtype, offset_factor=1)
        with script.sblock("root"):
            script.reads(x[0:lanes, 0 : WORDS * depth])
            script.writes(y[0:WORDS, 0:lanes, 0:depth])
            first, second, third, fourth = vectors(x)
            y[0, 0, script.ramp(0, 1, lanes * depth)] = first
            y[1, 0, script.ramp(0, 1, lanes * depth)] = second
            y[2, 0, script.ramp(0, 1, lanes * depth)] = third
            y[3, 0, script.ramp(0, 1, lanes * depth)] = fourth

    return implementation
