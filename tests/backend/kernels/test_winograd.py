"""Convolutions of 3 x 3 by Winograd's algorithm give the integers of direct sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layers import TARGETS, Layers, runnable

import mrt
from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.explain import explain
from mrt.backend.kernels.generic import winograd
from mrt.backend.kernels.generic.winograd import (
    INVERSE,
    OF_DATA,
    OF_RESULTS,
    OF_TAPS,
    REACH,
    SHIFT,
    is_exact,
    transformed_taps,
    winograd_form,
)
from mrt.backend.kernels.generic.winograd_transforms import data_lines, result_lines
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import constant
from mrt.symbol import Array, GraphBuilder, Runner, TensorType, find_operator

BYTE = {"uint8": (0, 255), "int8": (-128, 127)}
MACHINES = {cpu: Machine.of({**target, "threads": 1}) for cpu, target in TARGETS.items()}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used wherever it is exact."""
    monkeypatch.setattr(winograd, "WORTH", float("inf"))


def correlated(window: Array, taps: Array) -> list[list[int]]:
    """The 4 x 4 results of a window of 6 x 6, in Python's integers."""
    return [
        [sum(int(window[y + i, x + j]) * int(taps[i, j]) for i in range(3) for j in range(3)) for x in range(4)]
        for y in range(4)
    ]


@given(st.data())
def test_the_matrices_give_576_times_the_results(data: st.DataObject) -> None:
    lo, hi = data.draw(st.sampled_from(list(BYTE.values())))
    numbers = st.lists(st.one_of(st.sampled_from([lo, hi]), st.integers(lo, hi)), min_size=36, max_size=36)
    window = np.array(data.draw(numbers), object).reshape(6, 6)
    taps = np.array(data.draw(st.lists(st.integers(-128, 127), min_size=9, max_size=9)), object).reshape(3, 3)
    d, g, a = (np.array(matrix, object) for matrix in (OF_DATA, OF_TAPS, OF_RESULTS))
    made = a @ ((g @ taps @ g.T) * (d @ window @ d.T)) @ a.T
    assert made.tolist() == (576 * np.array(correlated(window, taps), object)).tolist()


def test_transformed_data_and_taps_fit_int16_whatever_they_are() -> None:
    """By all signs of the matrices' elements: what is added up before the last step, too."""
    for matrix, (lo, hi) in [(OF_DATA, BYTE["uint8"]), (OF_DATA, BYTE["int8"]), (OF_TAPS, BYTE["int8"])]:
        lines = np.array(matrix)
        both = np.einsum("pi,qj->pqij", lines, lines).reshape(len(lines) ** 2, -1)
        most = np.where(both > 0, both * hi, both * lo).sum(axis=1).max()
        least = np.where(both > 0, both * lo, both * hi).sum(axis=1).min()
        assert -(2**15) <= least <= most < 2**15
    ends = np.random.default_rng(0).choice(np.array([-128, 127], np.int8), (64, 8, 3, 3))
    g = np.array(OF_TAPS)
    expected = np.einsum("pi,qj,ocij->ocpq", g, g, ends.astype(np.int64)).reshape(64, 8, 36)
    np.testing.assert_array_equal(transformed_taps(ends), expected)


@pytest.mark.parametrize(("matrix", "lines"), [(OF_DATA, data_lines), (OF_RESULTS, result_lines)])
def test_what_is_written_out_is_the_matrix(matrix: Any, lines: Callable[..., Any]) -> None:
    for column in np.random.default_rng(0).integers(-1000, 1000, (20, 6)):
        made = lines([constant(int(n), "int32") for n in column], lambda value: value)
        assert [int(value) for value in made] == (np.array(matrix) @ column).tolist()


@pytest.mark.parametrize("y", [0, 1, -1, REACH, -REACH, 12345678])
def test_a_result_is_found_again_modulo_two_to_the_32(y: int) -> None:
    held = np.array([576 * y % 2**32], np.uint32) * np.array([INVERSE], np.uint32)
    assert (held.view(np.int32) >> SHIFT).tolist() == [y]


def test_larger_sums_are_left_to_direct_ones() -> None:
    """112 channels of the largest products are the most that fit."""
    for channels, fits in ((112, True), (128, False)):
        for value in (127, -128):
            assert is_exact(np.full((1, channels, 3, 3), value, np.int8), "uint8") is fits
    mixed = np.tile(np.array([127, -128], np.int8), 9 * 64).reshape(1, 128, 3, 3)
    assert is_exact(mixed, "uint8")
    assert not is_exact(np.full((1, 256, 3, 3), 127, np.int8), "int8")


def test_where_it_is_used() -> None:
    """Where few instructions form the products of words, and the weights do not come from far memory for few tiles."""

    def used(cpu: str, inputs: int, size: int, outputs: int) -> bool:
        weight = np.random.default_rng(0).integers(-100, 100, (outputs, inputs, 3, 3)).astype(np.int8)
        return winograd_form(weight, "uint8", (1, outputs, size, size), MACHINES[cpu]) is not None

    for cpu in ("x86-64-v3", "x86-64-v4", "alderlake", "cascadelake"):
        assert used(cpu, 64, 56, 64) and used(cpu, 128, 28, 128) and used(cpu, 256, 14, 256), cpu
        assert not used(cpu, 3, 32, 16), cpu
    assert not used("cascadelake", 512, 7, 512) and used("x86-64-v3", 512, 7, 512)
    assert not used("sapphirerapids", 64, 56, 64)
    # Of a line of 31 tiles registers hold one at a time.
    assert used("cascadelake", 64, 120, 64) and not used("cascadelake", 64, 124, 64)
    assert not used("x86-64-v3", 16, 2, 16)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "cascadelake"])
def test_weights_are_fetched_line_by_line(cpu: str) -> None:
    """Also where a step multiplies half a line of them."""
    layers, machine = Layers(), Machine.of({**TARGETS[cpu], "threads": 1})
    layers.finish(layers.convolution(layers.input(layers.integers((1, 64, 28, 28), "uint8")), 64, (3, 3), pad=(1, 1)))
    builder = ModuleBuilder(machine)
    builder.add(layers.graph(), "main")
    assert "prefetcht0" in compile_executable(builder.module(), machine).kernels[0].inspect_source("asm")


@pytest.mark.usefixtures("always")
def test_that_it_is_used_is_told() -> None:
    layers = Layers()
    layers.finish(layers.convolution(layers.input(layers.integers((1, 16, 8, 8), "uint8")), 32, (3, 3)))
    for cpu, used in (("cascadelake", True), ("sapphirerapids", False)):
        told = [call.products for call in explain(layers.graph(), (), TARGETS[cpu]).calls if call.products]
        assert ["36 for 16 results of 3 x 3 taps (Winograd)" in each for each in told] == [used]


@pytest.mark.usefixtures("always")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_convolutions_of_any_size(runner: Runner, dtype: str) -> None:
    """Also of lines that are no whole tiles, of several samples, without a pad, with channels that fill no vector."""
    layers = Layers()
    for shape, filters, pad in [
        ((1, 32, 8, 8), 32, (1, 1)),
        ((2, 16, 7, 9), 48, (1, 1)),
        ((3, 33, 5, 12), 17, (0, 0)),
        ((1, 5, 3, 3), 80, (1, 1)),
        ((1, 3, 8, 8), 16, (1, 1)),
        ((1, 64, 14, 6), 16, (2, 0)),
    ]:
        data = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        made = layers.requantized(layers.convolution(data, filters, (3, 3), pad=pad), dtype)
        layers.finish(layers.requantized(layers.convolution(made, 8, (1, 1))))
    layers.check(runner=runner)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_the_ends_of_ranges(runner: Runner, dtype: str) -> None:
    """Sums between wrap around many times; results are close to the largest that are found again."""
    layers, (lo, hi) = Layers(), BYTE[dtype]
    for weights in ([127], [-128], [-128, 127], [-128, -127, 0, 127]):
        data = layers.random.choice([lo, hi], (1, 112, 7, 10))
        data[..., :4] = hi
        data[..., -4:] = lo
        weight = layers.random.choice(weights, (16, 112, 3, 3)).astype(np.int8)
        weight[0], weight[1] = weights[0], weights[-1]
        assert is_exact(weight, dtype)
        given = layers.hidden("clip", layers.input(data.astype(dtype)), a_min=float(lo), a_max=float(hi))
        layers.add("Convolution", given, layers.parameter(weight), kernel=(3, 3), num_filter=16, no_bias=True)
    layers.check(runner=runner)


@pytest.mark.usefixtures("always")
def test_slices_of_channels_that_fill_no_vector() -> None:
    """Beyond the last one there is no memory to read."""
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((1, 48, 6, 6), "int16", -200, 200)))
    for begin, end in ((0, 16), (16, 32), (24, 36), (38, 48)):
        part = layers.hidden("slice_axis", data, axis=1, begin=begin, end=end)
        layers.finish(layers.requantized(layers.convolution(part, 32, (3, 3))))
    layers.check(runner=TvmRunner({"threads": 1}))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("threads", [1, 2])
def test_what_follows_is_computed_with_it(threads: int) -> None:
    """Bias, residual sum, several requantizations, and bytes that another reader stores without a sign; the threads
    share stripes, or output channels."""
    layers = Layers()
    for shape, filters in [((2, 64, 14, 14), 64), ((1, 128, 12, 12), 256), ((2, 160, 6, 6), 192)]:
        data = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)))
        first = layers.convolution(data, filters, (3, 3), pad=(1, 1))
        bias = layers.parameter_of((1, filters, 1, 1), "int32", -30000, 30000)
        biased = layers.hidden("broadcast_add", first, bias)
        second = layers.convolution(layers.requantized(biased, "int8"), filters, (3, 3), pad=(1, 1))
        total = layers.hidden("elemwise_add", biased, second)
        layers.finish(total)
        both = layers.requantized(total, "int8")
        layers.finish(layers.requantized(layers.convolution(both, filters, (3, 3))))
        layers.finish(layers.requantized(layers.convolution(both, 32, (1, 1))))
        layers.finish(layers.requantized(total, "int8"))
    layers.check(runner=TvmRunner({"threads": threads}))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "cascadelake"])
@pytest.mark.parametrize(("channels", "size", "filters"), [(16, 14, 64), (48, 7, 32)])
def test_quantized_networks(cpu: str, channels: int, size: int, filters: int) -> None:
    """Bytes of whole tiles are stored together; of those at the ends of lines, only what is within the result."""
    if cpu not in runnable():
        pytest.skip(f"this machine does not run code for {cpu}")
    random, builder = np.random.default_rng(0), GraphBuilder()
    x = builder.input("x", TensorType((1, channels, size, size), "float32"))
    for number, (outputs, inputs, kernel) in enumerate(
        [(filters, channels, 3), (filters, filters, 3), (16, filters, 1)]
    ):
        weight = random.standard_normal((outputs, inputs, kernel, kernel)).astype(np.float32) / kernel / inputs**0.5
        pad = (kernel // 2,) * 2
        record = find_operator("Convolution")(kernel=(kernel, kernel), pad=pad, num_filter=outputs, no_bias=True)
        x = builder.apply(record, [x, builder.parameter(f"weight{number}", weight)], f"conv{number}")
        x = builder.apply(find_operator("relu")(), [x], f"relu{number}")
    data = {"x": random.standard_normal((4, channels, size, size)).astype(np.float32)}
    model = mrt.quantize(builder.graph([x]), data, mrt.QuantizationConfig(preset="mrt"))
    expected = model.rebatched(4).graph.evaluate(model.rebatched(4).quantize_inputs(data))
    for batch in (1, 4):
        module = model.compile(target={"mcpu": cpu, "threads": 1}, batch=batch)
        np.testing.assert_array_equal(module.run_integer(model.rebatched(4).quantize_inputs(data)), expected[0])
