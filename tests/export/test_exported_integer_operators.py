"""Operators of integer graphs at every corner of 32 bits: exported, they give what Python's integers give."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from corners import HIGHEST, INTEGERS, LARGEST, LOWEST, graph_of, held, operators_of, shifted
from exported import facts
from formats import Format, in_every_format
from hypothesis import given, settings
from hypothesis import strategies as st

from mrt.errors import UnsupportedOperatorError
from mrt.symbol import Array, Graph, TensorType


def computed(
    target: Format, graph: Graph, feeds: dict[str, Array], held_to: dict[str, tuple[int, int]] | None = None
) -> list[int]:
    ranges = held_to or {name: held(values) for name, values in feeds.items()}
    written = target.export(graph, facts(graph, ranges))
    ((found,),) = target.assert_written(graph, written, [feeds])
    assert (found == np.trunc(found)).all()
    return [int(value) for value in found.reshape(-1)]


@in_every_format
@pytest.mark.parametrize("values", [INTEGERS, INTEGERS[INTEGERS >= 0], INTEGERS[abs(INTEGERS.astype(int)) < 2**29]])
@pytest.mark.parametrize("shift", range(32))
def test_right_shift_by_a_constant(target: Format, shift: int, values: Array) -> None:
    """Where bounds prove that the sum fits and where they do not, of either sign; shift 1 of 2^31 - 1 has 33 bits."""
    values = values[values < HIGHEST] if shift == 1 else values
    graph = graph_of("right_shift", TensorType(values.shape, "int32"), np.array(shift, np.int8))
    assert computed(target, graph, {"x0": values}) == [shifted(int(x), shift) for x in values]


@in_every_format
def test_right_shifts_by_channel_and_by_data(target: Format) -> None:
    values = np.tile(INTEGERS[INTEGERS < HIGHEST], (32, 1))
    shifts = np.arange(32, dtype=np.int8)[:, None]
    expected = [shifted(int(x), int(s)) for s, row in zip(shifts[:, 0], values, strict=True) for x in row]
    for short in (32, 31):  # with and without the shift by 31
        given_ = values[:short]
        graph = graph_of("right_shift", TensorType(given_.shape, "int32"), shifts[:short])
        assert computed(target, graph, {"x0": given_}) == expected[: given_.size]
    graph = graph_of("right_shift", TensorType(values.shape, "int32"), TensorType(shifts.shape, "int8"))
    assert computed(target, graph, {"x0": values, "x1": shifts}) == expected


@in_every_format
def test_a_shift_that_broadcasts_the_data(target: Format) -> None:
    for shifts in ([[0], [0]], [[0], [3]]):
        graph = graph_of("right_shift", TensorType((5,), "int16"), np.array(shifts, np.int8))
        x = np.array([-9, -4, 0, 4, 12], np.int16)
        assert computed(target, graph, {"x0": x}) == [shifted(int(value), s) for (s,) in shifts for value in x]


@in_every_format
def test_left_shift(target: Format) -> None:
    for shift in range(32):
        fitting = [x for x in INTEGERS.tolist() if LOWEST <= x << shift <= HIGHEST]
        values = np.array(fitting, np.int32)
        graph = graph_of("left_shift", TensorType(values.shape, "int32"), np.array(shift, np.int8))
        assert computed(target, graph, {"x0": values}) == [x << shift for x in fitting]
    shifts = np.arange(31, dtype=np.int8)
    graph = graph_of("left_shift", TensorType(shifts.shape, "bool"), TensorType(shifts.shape, "int8"))
    ranges = {"x0": (0, 1), "x1": (0, 30)}
    assert computed(target, graph, {"x0": shifts >= 0, "x1": shifts}, ranges) == [1 << s for s in range(31)]


@in_every_format
@pytest.mark.parametrize("fraction_bits", [0, 1, 5, 12])
@pytest.mark.parametrize("most", [0, 1, 1000, 2**16, HIGHEST])
def test_integer_sqrt(target: Format, fraction_bits: int, most: int) -> None:
    roots = np.arange(math.isqrt(most) + 1, dtype=np.int64)[-1000:]
    near = np.concatenate([roots**2, roots**2 - 1, roots**2 + 1, [most]])
    values = np.unique(near[(near >= 0) & (near <= most)]).astype(np.int32)
    graph = graph_of("integer_sqrt", TensorType(values.shape, "int32"), fraction_bits=fraction_bits)
    found = computed(target, graph, {"x0": values}, {"x0": (0, most)})
    assert found == [math.isqrt(int(x) << 2 * fraction_bits) for x in values]


@in_every_format
@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(LOWEST, HIGHEST), st.integers(1, HIGHEST)), min_size=1, max_size=50))
def test_floor_divide(target: Format, pairs: list[tuple[int, int]]) -> None:
    pairs = [*pairs, *itertools.product((LOWEST, -3, -1, 0, 2, HIGHEST), (1, 2, 3, HIGHEST))]
    lhs, rhs = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    graph = graph_of("floor_divide", TensorType(lhs.shape, "int32"), TensorType(rhs.shape, "int32"))
    assert computed(target, graph, {"x0": lhs, "x1": rhs}) == [a // b for a, b in pairs]
    graph = graph_of("floor_mod", TensorType(lhs.shape, "int32"), TensorType(rhs.shape, "int32"))
    assert computed(target, graph, {"x0": lhs, "x1": rhs}) == [a % b for a, b in pairs]


@in_every_format
def test_bitwise_and(target: Format) -> None:
    """By a constant and by data. ONNX has it from opset 18 on, MXNet has none: they refuse it by name."""
    pairs = list(itertools.product(INTEGERS.tolist(), repeat=2))
    lhs, rhs = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    kind = TensorType(lhs.shape, "int32")
    for graph, feeds in (
        (graph_of("bitwise_and", kind, kind), {"x0": lhs, "x1": rhs}),
        (graph_of("bitwise_and", kind, rhs), {"x0": lhs}),
    ):
        if target.name == "relay":
            assert computed(target, graph, feeds) == [a & b for a, b in pairs]
        else:
            with pytest.raises(UnsupportedOperatorError, match=r"no form in .*: bitwise_and \(1: "):
                computed(target, graph, feeds)


@in_every_format
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32"])
def test_operators_of_every_dtype(target: Format, dtype: str) -> None:
    """Each storage dtype is served, whether the format has operators for it or not."""
    graph, range_of_x, feeds = operators_of(dtype)
    target.assert_same(graph, feeds, facts(graph, {"x": range_of_x}))


@in_every_format
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_indices_outside(target: Format, mode: str) -> None:
    x = np.arange(12, dtype=np.int16).reshape(3, 4)
    places = np.array([[-(2**31), -5, -1, 0], [2, 3, 4, 2**31 - 1]], np.int32)
    graph = graph_of("take", x, TensorType(places.shape, "int32"), axis=-1, mode=mode)
    at = np.clip(places.astype(np.int64), 0, 3) if mode == "clip" else places.astype(np.int64) % 4
    assert computed(target, graph, {"x1": places}) == x[:, at].reshape(-1).tolist()


PAIRS = tuple(itertools.product(("int8", "uint8"), repeat=2))


@in_every_format
@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("length", [1, 2, 3, 64, 4097, 65793])
def test_products_of_extremes(target: Format, left: str, right: str, length: int) -> None:
    """Every pair of signs, factors at both ends; 65,793 is the most products of 255 and -128 within 32 bits.

    The data is held to one end where products are few, and to both.
    """
    if (left, right) == ("uint8", "uint8"):
        length = min(length, 33025)
    weight = np.stack([np.resize(factors, length) for factors in (*LARGEST[right], LARGEST[right])]).astype(right)
    rows = [sum(row) for row in weight.tolist()]
    dense = {"num_hidden": 3, "no_bias": True}
    pointwise = {"kernel": (1,), "num_filter": 3, "no_bias": True}
    for ends in (LARGEST[left], *([end] * 2 for end in LARGEST[left] if length < 4097)):
        x = np.stack([np.full(length, end, left) for end in ends])
        graph = graph_of("FullyConnected", TensorType(x.shape, left), weight, **dense)
        assert computed(target, graph, {"x0": x}) == [row * end for end in ends for row in rows]
        image = graph_of("Convolution", TensorType((1, length, 2), left), weight[:, :, None], **pointwise)
        assert computed(target, image, {"x0": x.T[None]}) == [row * end for row in rows for end in ends]


@in_every_format
@pytest.mark.parametrize("pair", [("int16", "int8"), ("int8", "int16"), ("int16", "int16"), ("uint8", "int16")])
def test_products_of_wide_extremes(target: Format, pair: tuple[str, str]) -> None:
    (lo, hi), (least, most) = (LARGEST[dtype] for dtype in pair)
    taps = np.array([[[most, least]], [[least, least]]], pair[1])
    scale = 1 if pair != ("int16", "int16") else 2
    taps[0, 0] //= scale
    taps[1, 0] //= 2 * scale
    x = np.array([[[lo, hi, hi, lo, 0, lo]]], pair[0])
    graph = graph_of("Convolution", TensorType(x.shape, pair[0]), taps, kernel=(2,), num_filter=2, no_bias=True)
    values, rows = x[0, 0].tolist(), taps[:, 0].tolist()
    expected = [values[p] * row[0] + values[p + 1] * row[1] for row in rows for p in range(5)]
    assert computed(target, graph, {"x0": x}) == expected


@in_every_format
def test_deconvolution_whose_weight_is_data(target: Format) -> None:
    graph = graph_of(
        "Deconvolution",
        TensorType((1, 4, 3, 3), "int8"),
        TensorType((4, 2, 2, 3), "int8"),
        kernel=(2, 3),
        num_filter=4,
        num_group=2,
        stride=(2, 1),
        pad=(1, 2),
    )
    random = np.random.default_rng(0)
    feeds = {s.name: random.integers(-128, 128, s.shape).astype(s.dtype) for s in graph.inputs}
    target.assert_same(graph, [feeds])


@in_every_format
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_products_of_every_rank(target: Format, dtype: str) -> None:
    random = np.random.default_rng(0)
    weight = random.integers(-128, 128, (3, 5)).astype(np.int8)
    for shape in ((5,), (2, 5), (2, 4, 5), (2, 1, 4, 5)):
        graph = graph_of("FullyConnected", TensorType(shape, dtype), weight, num_hidden=3, flatten=False, no_bias=True)
        x = random.integers(-128, 128, shape).astype(dtype)
        assert computed(target, graph, {"x0": x}) == (x.astype(int) @ weight.astype(int).T).reshape(-1).tolist()


@in_every_format
def test_biases_are_added(target: Format) -> None:
    random = np.random.default_rng(0)
    bias, x = np.array([-(2**20), 5, 2**20], np.int32), random.integers(-128, 128, (2, 4, 5)).astype(np.int8)
    cases = (
        ("Convolution", (3, 4, 2), {"kernel": (2,), "num_filter": 3}),
        ("Deconvolution", (4, 3, 2), {"kernel": (2,), "num_filter": 3, "no_bias": False}),
        ("FullyConnected", (3, 20), {"num_hidden": 3}),
        ("FullyConnected", (3, 5), {"num_hidden": 3, "flatten": False}),
    )
    for op, shape, attributes in cases:
        weight = random.integers(-128, 128, shape).astype(np.int8)
        graph = graph_of(op, TensorType(x.shape, "int8"), weight, bias, **attributes)
        target.assert_same(graph, [{"x0": x}])
