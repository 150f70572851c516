"""Shifts round half up in every form that bounds allow, and limits that bounds prove idle cost nothing."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from compiled import Bundle, compare, op

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.lowering.graph import Emitter
from mrt.backend.machine import Machine
from mrt.backend.rewrites.clip_before_scaling import EarlyRelu
from mrt.backend.rewrites.known_bounds import known_bounds
from mrt.backend.rewrites.widen_clips import OpenLimits
from mrt.backend.rewrites.with_quantizers import with_real_ends
from mrt.backend.te.rounding import Rounding, choose_rounding
from mrt.symbol import Graph, GraphBuilder, Interval, Symbol, TensorType
from mrt.symbol.quantized_tensor import TensorQuantization

INT32 = np.iinfo(np.int32)
CPUS = ["x86-64", "x86-64-v3", "cascadelake"]


def half_up(x: int, s: int) -> int:
    return x if s == 0 else floor(Fraction(x, 2**s) + Fraction(1, 2))


@pytest.mark.parametrize(
    ("lo", "hi", "shift", "form"),
    [
        (0, INT32.max, [0, 1, 31], Rounding.UNSIGNED),
        (-1, INT32.max - 2**30, [31], Rounding.ADDED),
        (-1, INT32.max - 2**30 + 1, [31], Rounding.TWO_SHIFTS),
        (INT32.min, INT32.max - 1, [0, 1], Rounding.ADDED),
        (INT32.min, INT32.max, [0], Rounding.ADDED),
        (INT32.min, INT32.max, [1], None),
        (INT32.min, INT32.max, [2, 31], Rounding.TWO_SHIFTS),
    ],
)
def test_the_cheapest_exact_form_is_chosen(lo: int, hi: int, shift: list[int], form: Rounding | None) -> None:
    assert choose_rounding(Interval.of(lo, hi, (5,)), np.array(shift, np.int8)) is form


def test_the_form_is_chosen_by_the_bounds_of_each_channel() -> None:
    bounds = Interval.of(np.full((2, 1), -5), np.array([[INT32.max - 1], [INT32.max - 2**30]]), (2, 3))
    assert choose_rounding(bounds, np.array([[1], [31]])) is Rounding.ADDED
    assert choose_rounding(bounds, np.array([[31], [1]])) is None


@pytest.mark.parametrize("cpu", CPUS)
def test_every_form_rounds_at_the_ends_of_32_bits(cpu: str) -> None:
    """Data is clipped to where a form is just exact; the oracle is floor(x / 2^s + 1/2) in fractions."""
    ends = [INT32.min, INT32.min + 1, -(2**30) - 1, -3, -2, -1, 0, 1, 2, 3, 2**30, INT32.max - 1, INT32.max]
    bundle, expected = Bundle(), []
    x = bundle.input(np.array(ends, np.int32))
    for s in (1, 2, 7, 30, 31):
        for lo, hi in ((0, INT32.max), (INT32.min, INT32.max - 2 ** (s - 1)), (INT32.min, INT32.max)):
            held = bundle.hidden("clip", x, a_min=lo, a_max=hi)
            bundle.add("right_shift", held, bundle.parameter(np.full(1, s, np.int8)))
            expected.append([half_up(min(max(v, lo), hi), s) for v in ends])
    found = TvmRunner({"kind": "llvm", "mcpu": cpu}).prepare(bundle.graph())(bundle.feeds)
    assert [values.tolist() for values in found] == expected


def requantized(factor: int, shift: int, limits: tuple[int, int], dtype: str, reads: int = 1, moved: int = 0) -> Graph:
    """A chain on int16: times a factor, shifted, moved, clipped, stored; what is shifted may be read once more."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((65536,), "int16"))
    scaled = builder.apply(op("broadcast_mul"), [x, builder.parameter("f", np.array([factor], np.int32))], "scaled")
    shifted = builder.apply(op("right_shift"), [scaled, builder.parameter("s", np.array([shift], np.int8))], "shifted")
    held = builder.apply(op("_plus_scalar", scalar=moved), [shifted], "moved") if moved else shifted
    clipped = builder.apply(op("clip", a_min=limits[0], a_max=limits[1]), [held], "clipped")
    stored: list[Symbol] = [builder.apply(op("Cast", dtype=dtype), [clipped], "stored")]
    return builder.graph(stored + [shifted] * (reads - 1))


ALL = {"x": np.arange(-(2**15), 2**15, dtype=np.int16)}
"""Every int16."""


def rewritten(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    result = EarlyRelu(known_bounds(graph, {})).run(graph)
    return result.graph, tuple(refusal.reason for refusal in result.refusals)


def test_a_limit_at_0_is_a_relu_before_the_scaling_where_rounding_gains_by_it() -> None:
    graph = requantized(65534, 24, (0, 100), "uint8")
    found, refusals = rewritten(graph)
    assert [s.op for s in found.operators] == ["relu", "broadcast_mul", "right_shift", "clip", "Cast"] and not refusals
    compare(found, found.evaluate(ALL), graph.evaluate(ALL))
    compare(graph, TvmRunner().prepare(graph)(ALL), graph.evaluate(ALL))


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (requantized(60000, 24, (0, 100), "uint8"), ()),
        (requantized(65534, 24, (-1, 100), "int8"), ()),
        (requantized(-65534, 24, (0, 100), "uint8"), ("its factor may be negative",)),
        (requantized(65534, 24, (0, 100), "uint8", reads=2), ("what its limit cuts off is read by others too",)),
    ],
    ids=["the sum fits", "negative values stay", "a factor turns the sign", "read twice"],
)
def test_a_relu_is_not_moved_where_it_gains_nothing_or_is_wrong(graph: Graph, said: tuple[str, ...]) -> None:
    found, refusals = rewritten(graph)
    assert refusals == said and found.operators == graph.operators
    compare(graph, TvmRunner().prepare(graph)(ALL), graph.evaluate(ALL))


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
    found = OpenLimits(known_bounds(graph, {}))(graph)
    clip: Any = found.by_name["clipped"].operator
    assert (clip.a_min, clip.a_max) == opened
    compare(found, found.evaluate(ALL), graph.evaluate(ALL))
    compare(graph, TvmRunner().prepare(graph)(ALL), graph.evaluate(ALL))


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
    machine = Machine.of({"kind": "llvm", "mcpu": "cascadelake"})
    emitter = Emitter(machine)
    emitter.add(builder.graph([builder.apply(convolution, [value, weight])]), "main")
    code = str(compile_executable(emitter.module(), machine).kernels[0].inspect_source("asm"))
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


def test_operators_keep_their_names_between_real_ends() -> None:
    """Also those that are called as the ends would be; bounds are known by these names."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 4), "int8"))
    moved = builder.apply(
        op("broadcast_add"), [x, builder.parameter("x_zero_point", np.array([[3]], np.int8))], "x_scale"
    )
    graph = builder.graph([builder.apply(op("relu"), [moved], "x_quantized")])
    entry = TensorQuantization("x", (2, 4), "int8", 0.5, 1, -128, 127)
    output = TensorQuantization("x_quantized", (2, 4), "int32", 0.5, 0, 0, 130)
    real = with_real_ends(graph, [entry], [output], None)
    assert {s.name: s.op for s in real.operators}.items() >= {s.name: s.op for s in graph.operators}.items()
    before = known_bounds(graph, {"x": Interval.of(-128, 127, (2, 4))})
    known = known_bounds(real, before)
    assert known["x_zero_point"] is before["x_zero_point"]
    assert (known["x_quantized"].min, known["x_quantized"].max) == (0, 130)
    (found,) = real.evaluate({"x": np.full((2, 4), 4.0, np.float32)})
    np.testing.assert_array_equal(found, np.full((2, 4), 0.5 * (4 / 0.5 + 1 + 3)))
