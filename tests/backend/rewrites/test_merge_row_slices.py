"""Fully connected layers in groups of inputs, each with a scale: one operator, the same integers on every CPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np
import pytest
from compiled import Bundle
from layers import in_turn

from mrt.backend import TvmRunner
from mrt.backend.machine import Machine
from mrt.backend.operators.sliced_fully_connected import SlicedFullyConnected
from mrt.backend.rewrites.merge_row_slices import MergeRowSlices
from mrt.backend.rewrites.rewrite import Facts
from mrt.backend.schedule import serial
from mrt.errors import GraphError
from mrt.symbol import Interval, Runner, Symbol, TensorType

ENDS = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1)}


def layer(bundle: Bundle, shape: tuple[int, int, int], bits: int, dtype: str, shift: int, width: int = 32) -> None:
    """As quantization writes groups: slices of the data, each by its weights, its factors, shifted and added up."""
    rows, inputs, outputs = shape
    data = bundle.random.choice(ENDS[dtype], (rows, inputs)).astype(dtype)
    data[0] = ENDS[dtype][0]
    bundle.outputs.append(sum_of_slices(bundle, bundle.input(data), outputs, bits, shift, width))


def sum_of_slices(bundle: Bundle, x: Symbol, outputs: int, bits: int, shift: int, width: int) -> Symbol:
    inputs, terms = x.shape[1], []
    for begin in range(0, inputs, width):
        weight = bundle.integers((outputs, width), "int8", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        weight[0], weight[-1] = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        part = bundle.hidden("slice_axis", x, axis=1, begin=begin, end=begin + width)
        sums = bundle.hidden("FullyConnected", part, bundle.parameter(weight), num_hidden=outputs, no_bias=True)
        term = bundle.hidden("broadcast_mul", sums, bundle.parameter(bundle.integers((1, outputs), "int8", 1, 15)))
        shifted = bundle.parameter(np.full((1, 1), shift, np.int8))
        terms.append(bundle.hidden("right_shift", term, shifted) if shift else term)
    return bundle.hidden("add_n", *terms)


def layers(dtypes: Iterator[str]) -> Bundle:
    """Of the next dtype each."""
    bundle = Bundle()
    for shape, bits, shift in (
        ((1, 64, 40), 8, 5),
        ((1, 96, 130), 4, 0),
        ((2, 64, 16), 3, 1),
        ((3, 128, 33), 2, 4),
    ):
        layer(bundle, shape, bits, next(dtypes), shift)
    return bundle


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("always_packed")
def test_ends_of_ranges(runner: Runner, turn: int) -> None:
    layers(in_turn(list(ENDS), turn)).check(runner=runner)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("always_packed")
def test_int16_as_digits_with_a_sign(runner: Runner, turn: int) -> None:
    """Those up to 32,639 are digits of -128 to 127, which take weights without a sign; the next one is not."""
    bundle = Bundle()
    highest = in_turn([2**15 - 129, 2**15 - 128], turn)
    for (rows, bits, outputs), most in zip(((1, 2, 40), (2, 4, 16), (3, 8, 33)), highest, strict=False):
        ends = np.array([-(2**15), -(2**15) + 127, -129, -128, -1, 0, 127, 128, most - 255, most], np.int16)
        data = bundle.random.choice(ends, (rows, 96))
        data[0, :32], data[0, 32:64] = ends[0], most
        x = bundle.hidden("clip", bundle.input(data), a_min=float(ends[0]), a_max=float(most))
        bundle.outputs.append(sum_of_slices(bundle, x, outputs, bits, 3, 32))
    bundle.check(runner=runner)


@pytest.mark.parametrize("shift", [27, 28])
@pytest.mark.usefixtures("always_packed")
def test_products_that_no_half_can_be_added_to(runner: Runner, shift: int) -> None:
    """15 · 32 · 2^15 · 2^7 and 2^26 fit 32 bits, and with 2^27 they do not."""
    bundle = Bundle()
    x, terms = bundle.input(np.full((1, 64), -(2**15), np.int16)), []
    for begin in (0, 32):
        part = bundle.hidden("slice_axis", x, axis=1, begin=begin, end=begin + 32)
        weight = np.full((16, 32), -128, np.int8)
        sums = bundle.hidden("FullyConnected", part, bundle.parameter(weight), num_hidden=16, no_bias=True)
        term = bundle.hidden("broadcast_mul", sums, bundle.parameter(np.full((1, 16), 15, np.int8)))
        terms.append(bundle.hidden("right_shift", term, bundle.parameter(np.full((1, 1), shift, np.int8))))
    bundle.add("add_n", *terms)
    bundle.check(runner=runner)


@pytest.mark.usefixtures("always_packed")
def test_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial, "WORTH_THREADS", 0)
    layers(repeat("int16")).check(runner=TvmRunner({"kind": "llvm", "mcpu": "native", "threads": 2}))


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("shift", [0, 1, 5])
def test_one_operator_is_left(shift: int) -> None:
    bundle = Bundle()
    layer(bundle, (2, 96, 24), 4, "int16", shift)
    graph = bundle.graph()
    merged = MergeRowSlices(Facts(Machine.of({"kind": "llvm", "mcpu": "cascadelake"})))(graph)
    (found,) = merged.operators
    assert (found.operator.width, found.operator.shift) == (32, shift)
    given = bundle.feeds
    np.testing.assert_array_equal(merged.evaluate(given)[0], graph.evaluate(given)[0])
    bounds = found.operator.bounds(*(Interval.of(*ENDS["int16"], (2, 96)), *map(Interval.constant, constants(merged))))
    assert (np.abs(graph.evaluate(given)[0]) <= bounds.hi).all()


def constants(graph: object) -> list[np.ndarray]:
    return [graph.parameters[symbol.name] for symbol in graph.operators[0].inputs[1:]]  # type: ignore[attr-defined]


def test_many_rows_are_left() -> None:
    bundle = Bundle()
    layer(bundle, (64, 64, 1024), 4, "int16", 3)
    merged = MergeRowSlices(Facts(Machine.of({"kind": "llvm", "mcpu": "cascadelake"})))(bundle.graph())
    assert not any(isinstance(symbol.operator, SlicedFullyConnected) for symbol in merged.operators)


def test_factors_of_another_shape_are_refused() -> None:
    operator = SlicedFullyConnected(num_hidden=3, no_bias=True, width=4)
    given = [TensorType(shape, "int8") for shape in ((1, 8), (3, 8), (3, 3))]
    with pytest.raises(GraphError, match=r"shape \(2, 3\) is needed"):
        operator.infer(*given)
