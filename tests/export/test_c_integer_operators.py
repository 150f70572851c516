"""Operators of integer graphs at every corner of 32 bits: their C gives what Python's integers give, all defined."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_programs import SANITIZED, Programs
from corners import HIGHEST, INTEGERS, LARGEST, LOWEST, graph_of, held, operators_of, shifted
from exported import facts

from mrt.symbol import Array, Graph, TensorType

DTYPES = ("bool", "int8", "uint8", "int16", "int32")
Ranges = dict[str, tuple[int, int]]


class Batch:
    """Graphs that become one program, which stops at the first operation that C does not define."""

    def __init__(self) -> None:
        self._graphs: list[tuple[Graph, Ranges | None]] = []
        self._checks: list[Callable[[Programs, int], None]] = []

    def expect(self, graph: Graph, feeds: dict[str, Array], expected: list[int], ranges: Ranges | None = None) -> None:
        """The one output of the graph for `feeds`. ranges: what its inputs are held to, by default those of `feeds`."""

        def check(programs: Programs, index: int) -> None:
            ((found,),) = programs.run(index, [feeds])
            assert found.reshape(-1).tolist() == expected, graph

        self._graphs.append((graph, ranges or {name: held(values) for name, values in feeds.items()}))
        self._checks.append(check)

    def expect_meaning(self, graph: Graph, samples: list[dict[str, Array]], ranges: Ranges | None = None) -> None:
        """Whatever the graph means, for each sample."""
        self._graphs.append((graph, ranges))
        self._checks.append(lambda programs, index: programs.assert_same(index, samples))

    def check(self, folder: Path, *flags: str) -> None:
        graphs = [(graph, facts(graph, ranges)) for graph, ranges in self._graphs]
        programs = Programs.of(graphs, folder, *SANITIZED, *flags)
        for index, check in enumerate(self._checks):
            check(programs, index)


def test_right_shifts(tmp_path: Path) -> None:
    """By every constant, by a tensor of constants, and by data; 2^31 - 1 shifted by 1 would need 33 bits."""
    batch, fitting = Batch(), INTEGERS[INTEGERS < HIGHEST]
    for shift in range(32):
        values = fitting if shift == 1 else INTEGERS
        graph = graph_of("right_shift", TensorType(values.shape, "int32"), np.array(shift, np.int8))
        batch.expect(graph, {"x0": values}, [shifted(int(x), shift) for x in values])
    values, shifts = np.tile(fitting, (32, 1)), np.arange(32, dtype=np.int8)[:, None]
    expected = [shifted(int(x), int(s)) for s, row in zip(shifts[:, 0], values, strict=True) for x in row]
    batch.expect(graph_of("right_shift", TensorType(values.shape, "int32"), shifts), {"x0": values}, expected)
    graph = graph_of("right_shift", TensorType(values.shape, "int32"), TensorType(shifts.shape, "int8"))
    batch.expect(graph, {"x0": values, "x1": shifts}, expected)
    batch.check(tmp_path)


def test_left_shifts(tmp_path: Path) -> None:
    """Of negative numbers too, and by 31, which C defines for no signed integer but 0."""
    batch = Batch()
    for shift in range(32):
        fitting = [x for x in INTEGERS.tolist() if LOWEST <= x << shift <= HIGHEST]
        values = np.array(fitting, np.int32)
        graph = graph_of("left_shift", TensorType(values.shape, "int32"), np.array(shift, np.int8))
        batch.expect(graph, {"x0": values}, [x << shift for x in fitting])
    for dtype, value in (("bool", 1), ("int8", -1)):
        shifts = np.arange(31 if value == 1 else 32, dtype=np.int8)
        graph = graph_of("left_shift", TensorType(shifts.shape, dtype), TensorType(shifts.shape, "int8"))
        feeds = {"x0": np.full(shifts.shape, value, dtype), "x1": shifts}
        batch.expect(graph, feeds, [value << s for s in shifts.tolist()])
    batch.check(tmp_path)


def test_integer_square_roots(tmp_path: Path) -> None:
    batch = Batch()
    for fraction_bits, most in itertools.product((0, 1, 5, 12), (0, 1, 1000, 2**16, HIGHEST)):
        roots = np.arange(math.isqrt(most) + 1, dtype=np.int64)[-4000:]
        near = np.concatenate([roots**2, roots**2 - 1, roots**2 + 1, [most]])
        values = np.unique(near[(near >= 0) & (near <= most)]).astype(np.int32)
        graph = graph_of("integer_sqrt", TensorType(values.shape, "int32"), fraction_bits=fraction_bits)
        batch.expect(
            graph, {"x0": values}, [math.isqrt(int(x) << 2 * fraction_bits) for x in values], {"x0": (0, most)}
        )
    batch.check(tmp_path)


def test_quotients_and_sums_at_the_ends(tmp_path: Path) -> None:
    batch = Batch()
    divisors = [d for d in INTEGERS.tolist() if d > 0]
    pairs = list(itertools.product(INTEGERS.tolist(), divisors))
    lhs, rhs = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    graph = graph_of("floor_divide", TensorType(lhs.shape, "int32"), TensorType(rhs.shape, "int32"))
    batch.expect(graph, {"x0": lhs, "x1": rhs}, [a // b for a, b in pairs])
    graph = graph_of("floor_mod", TensorType(lhs.shape, "int32"), TensorType(rhs.shape, "int32"))
    batch.expect(graph, {"x0": lhs, "x1": rhs}, [a % b for a, b in pairs])
    for mask in (255, -256, -(2**31)):
        graph = graph_of("bitwise_and", TensorType(INTEGERS.shape, "int32"), np.array(mask, np.int32))
        batch.expect(graph, {"x0": INTEGERS}, [x & mask for x in INTEGERS.tolist()])
    for divisor in (1, 2, 3, 7, 2**16, 2**30, HIGHEST):
        graph = graph_of("floor_divide", TensorType(INTEGERS.shape, "int32"), np.array(divisor, np.int32))
        batch.expect(graph, {"x0": INTEGERS}, [x // divisor for x in INTEGERS.tolist()])
        graph = graph_of("floor_mod", TensorType(INTEGERS.shape, "int32"), np.array(divisor, np.int32))
        batch.expect(graph, {"x0": INTEGERS}, [x % divisor for x in INTEGERS.tolist()])
    halves: Ranges = {"x0": (-(2**30), 2**30 - 1), "x1": (-(2**30), 2**30 - 1)}
    small = [x for x in INTEGERS.tolist() if -(2**30) <= x < 2**30]
    lhs, rhs = (np.array(column, np.int32) for column in zip(*itertools.product(small, small), strict=True))
    kind, feeds = TensorType(lhs.shape, "int32"), {"x0": lhs, "x1": rhs}
    terms = list(zip(lhs.tolist(), rhs.tolist(), strict=True))
    batch.expect(graph_of("elemwise_add", kind, kind), feeds, [a + b for a, b in terms], halves)
    batch.expect(graph_of("elemwise_sub", kind, kind), feeds, [a - b for a, b in terms], halves)
    batch.expect(graph_of("_maximum", kind, kind), feeds, [max(a, b) for a, b in terms], halves)
    batch.check(tmp_path)


@pytest.mark.slow
def test_operators_of_every_dtype(tmp_path: Path) -> None:
    batch = Batch()
    for dtype in DTYPES:
        graph, range_of_x, samples = operators_of(dtype)
        batch.expect_meaning(graph, samples, {"x": range_of_x})
    for mode in ("clip", "wrap"):
        x = np.arange(12, dtype=np.int16).reshape(3, 4)
        places = np.array([[LOWEST, -5, -1, 0], [2, 3, 4, HIGHEST]], np.int32)
        graph = graph_of("take", x, TensorType(places.shape, "int32"), axis=-1, mode=mode)
        at = np.clip(places.astype(np.int64), 0, 3) if mode == "clip" else places.astype(np.int64) % 4
        batch.expect(graph, {"x1": places}, x[:, at].reshape(-1).tolist())
    # Some read one tensor twice, as in max(x, x).
    batch.check(tmp_path, "-Wno-tautological-compare", "-O0")


def test_tensors_of_rank_0(tmp_path: Path) -> None:
    batch = Batch()
    for dtype, op in itertools.product(
        DTYPES, ("relu", "negative", "transpose", "max", "sum", "argmin", "integer_sqrt")
    ):
        batch.expect_meaning(graph_of(op, TensorType((), dtype)), [{"x0": np.array(1, dtype)}], {"x0": (0, 1)})
    kind = TensorType((), "int32")
    feeds = {"x0": np.array(LOWEST, np.int32), "x1": np.array(31, np.int32)}
    shifts: Ranges = {"x0": (LOWEST, LOWEST), "x1": (0, 31)}
    batch.expect(graph_of("right_shift", kind, kind), feeds, [-1], shifts)
    batch.expect(graph_of("floor_divide", kind, kind), feeds, [LOWEST // 31], {**shifts, "x1": (1, 31)})
    batch.expect(graph_of("_maximum", kind, kind), feeds, [31], shifts)
    batch.check(tmp_path)


PRODUCTS: tuple[tuple[str, dict[str, Any], tuple[int, ...]], ...] = (
    ("FullyConnected", {"num_hidden": 3, "no_bias": True}, ()),
    ("Convolution", {"kernel": (1,), "num_filter": 3, "no_bias": True}, (1,)),
)
"""Operators of three output channels, with what follows the channels of their data."""


@pytest.mark.slow
def test_products_of_extremes(tmp_path: Path) -> None:
    """Factors at both ends of their types; 65,793 is the most products of 255 and -128 within 32 bits."""
    batch = Batch()
    eights = itertools.product(("int8", "uint8"), repeat=2)
    cases = [(*pair, length) for pair in eights for length in (1, 64, 65793)]
    cases += [("int16", "int8", 4), ("int8", "int16", 4), ("uint8", "int16", 4), ("int16", "int16", 1)]
    for place, (left, right, length) in enumerate(cases):
        length = min(length, 33025) if (left, right) == ("uint8", "uint8") else length
        weight = np.stack([np.full(length, end, right) for end in LARGEST[right]] + [np.resize(LARGEST[right], length)])
        weight = weight.astype(right)
        x = np.stack([np.full(length, end, left) for end in LARGEST[left]])
        sums = [sum(row) * end for end in LARGEST[left] for row in weight.tolist()]
        # Text of so many factors takes a compiler long: it is that of one of both.
        for op, attributes, more in PRODUCTS if length < 99 else PRODUCTS[place % 2 :][:1]:
            given, factors = (each.reshape(*each.shape, *more) for each in (x, weight))
            batch.expect(graph_of(op, TensorType(given.shape, left), factors, **attributes), {"x0": given}, sums)
    batch.check(tmp_path)


def test_weights_that_are_data_and_biases(tmp_path: Path) -> None:
    batch, random = Batch(), np.random.default_rng(0)
    graphs = [
        graph_of(
            "Deconvolution",
            TensorType((1, 4, 3, 3), "int8"),
            TensorType((4, 2, 2, 3), "int8"),
            kernel=(2, 3),
            num_filter=4,
            num_group=2,
            stride=(2, 1),
            pad=(1, 2),
        ),
        graph_of(
            "Convolution",
            TensorType((1, 4, 5, 5), "uint8"),
            TensorType((18, 2, 3, 3), "int8"),
            kernel=(3, 3),
            num_filter=18,
            num_group=2,
            pad=(1, 1),
            no_bias=True,
        ),
        graph_of("batch_dot", TensorType((2, 3, 4), "int16"), TensorType((2, 4, 17), "int8")),
    ]
    bias = np.array([-(2**20), 5, 2**20], np.int32)
    for op, shape, attributes in (
        ("Convolution", (3, 4, 2), {"kernel": (2,), "num_filter": 3}),
        ("Deconvolution", (4, 3, 2), {"kernel": (2,), "num_filter": 3, "no_bias": False}),
        ("FullyConnected", (3, 20), {"num_hidden": 3}),
        ("FullyConnected", (3, 5), {"num_hidden": 3, "flatten": False}),
    ):
        weight = random.integers(-128, 128, shape).astype(np.int8)
        graphs.append(graph_of(op, TensorType((2, 4, 5), "int8"), weight, bias, **attributes))
    for graph in graphs:
        feeds = {}
        for symbol in graph.inputs:
            info = np.iinfo(symbol.dtype)
            feeds[symbol.name] = random.integers(info.min, info.max, symbol.shape, endpoint=True).astype(symbol.dtype)
        batch.expect_meaning(graph, [feeds])
    batch.check(tmp_path)
