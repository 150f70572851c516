"""Limits that no value reaches cost nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Bundle, assert_same_values, op
from layers import assembly
from requantized import ALL, requantized

from mrt.backend import TvmRunner
from mrt.backend.rewrites.widen_clips import WidenClips
from mrt.symbol import GraphBuilder, TensorType

INT32 = np.iinfo(np.int32)


@pytest.mark.parametrize(
    ("moved", "shift", "limits", "dtype", "opened"),
    [
        (0, 8, (-127, 127), "int8", (-127, 127)),
        (0, 9, (-127, 127), "int8", (INT32.min, INT32.max)),
        (0, 8, (-128, 127), "int8", (-128, 127)),
        (0, 7, (-256, 127), "int16", (INT32.min, 127)),
        (0, 7, (-127, 256), "int16", (-127, INT32.max)),
        (0, 8, (-128, 100), "int8", (INT32.min, 100)),
        (50, 8, (-100, 127), "int8", (-128, 127)),
        (-50, 8, (-128, 99), "int8", (-128, 127)),
        (200, 8, (17, 255), "uint8", (0, 255)),
    ],
)
def test_idle_limits_are_opened(
    moved: int, shift: int, limits: tuple[int, int], dtype: str, opened: tuple[int, int]
) -> None:
    """What is clipped is from moved - 2^(15 - s) to moved + 2^(15 - s)."""
    graph = requantized(1, shift, limits, dtype, moved=moved)
    found = WidenClips()(graph)
    clip: Any = found.by_name["clipped"].operator
    assert (clip.a_min, clip.a_max) == opened
    assert_same_values(found, found.evaluate(ALL), graph.evaluate(ALL))
    assert_same_values(graph, TvmRunner().prepare(graph)(ALL), graph.evaluate(ALL))


def mnemonics(factor: int, shift: int, limits: tuple[int, int], dtype: str) -> set[str]:
    """The vector instructions for AVX512 of a convolution whose sums, -1020 to 2550, are requantized and stored."""
    builder = GraphBuilder()
    value = builder.input("x", TensorType((1, 16, 8, 8), "uint8"))
    signs = np.repeat(np.array([1, -1, 0], np.int8), [10, 4, 2]).reshape(1, 16, 1, 1)
    weight = builder.parameter("w", np.broadcast_to(signs, (16, 16, 1, 1)))
    convolution = op("Convolution", kernel=(1, 1), num_filter=16, no_bias=True)
    value = builder.apply(convolution, [value, weight])
    value = builder.apply(
        op("broadcast_mul"), [value, builder.parameter("f", np.full((1, 16, 1, 1), factor, np.int32))]
    )
    value = builder.apply(op("right_shift"), [value, builder.parameter("s", np.full((1, 16, 1, 1), shift, np.int8))])
    value = builder.apply(op("clip", a_min=limits[0], a_max=limits[1]), [value])
    value = builder.apply(op("Cast", dtype=dtype), [value])
    graph = builder.graph([builder.apply(convolution, [value, weight])])
    code = assembly(graph, {"kind": "llvm", "mcpu": "cascadelake"})
    return {line.split()[0] for line in code.splitlines() if "%zmm" in line}


def test_limits_become_conversions_that_saturate() -> None:
    limits = {"vpminsd", "vpmaxsd", "vpminud"}
    natural = mnemonics(842000, 23, (0, 255), "uint8")
    assert {"vpsrlvd", "vpmovusdb"} <= natural and "vpsravd" not in natural and limits & natural == {"vpmaxsd"}
    signed = mnemonics(1, 4, (-64, 127), "int8")
    assert {"vpsravd", "vpmovsdb"} <= signed and not limits & signed


def test_limits_that_are_open_cost_no_conversion() -> None:
    """Of what is never negative, then cast to a narrow dtype, and read in 32 bits again."""
    bundle = Bundle()
    for dtype, most in (("uint8", 255.0), ("int8", 127.0), ("int16", 32767.0)):
        x = bundle.hidden("clip", bundle.input(bundle.integers((1, 19, 3, 2), "int32")), a_min=0.0, a_max=400000.0)
        shifted = bundle.hidden("right_shift", x, bundle.parameter(np.array([15], np.int8)))
        narrow = bundle.hidden("Cast", bundle.hidden("clip", shifted, a_min=0.0, a_max=most), dtype=dtype)
        bundle.add("square", narrow)
        bundle.add("broadcast_mul", narrow, bundle.parameter(np.array([3], np.int32)))
    bundle.check()
