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
    """WORDS vectors of one word of each row, the rows in order, of rows of WORDS words; a multiple of WORDS rows."""
    lanes = len(rows)
    taken = [_joined([rows[i] for i in range(first, lanes, WORDS)]) for first in range(WORDS)]
    by_words = [_interleaved(taken[i], taken[i + 1], 1, half) for i in (0, 2) for half in (0, 1)]
    return [_interleaved(by_words[half], by_words[2 + half], 2, part) for half in (0, 1) for part in (0, 1)]


def _joined(parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else shuffled(parts, range(len(parts) * WORDS))


def _interleaved(first: Expression, second: Expression, unit: int, half: int) -> Expression:
    """Of each WORDS words the first or second half of two vectors, `unit` words of each in turns."""
    lanes = int(first.ty.dtype.lanes)
    places = [
        block + half * WORDS // 2 + place + of * lanes
        for block in range(0, lanes, WORDS)
        for start in range(0, WORDS // 2, unit)
        for of in (0, 1)
        for place in range(start, start + unit)
    ]
    return shuffled([first, second], places)


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
