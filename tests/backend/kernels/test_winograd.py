"""Convolutions of 3 x 3 by Winograd's algorithm give the integers of direct sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from layers import TARGETS, Layers, in_turn, runnable

import mrt
from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.explain import explain
from mrt.backend.kernels.generic import winograd_choice
from mrt.backend.kernels.generic.winograd_algorithms import (
    F2,
    F2_OF_STRIDE_2,
    F4,
    F4_OF_STRIDE_2,
    Algorithm,
    TapSums,
)
from mrt.backend.kernels.generic.winograd_choice import winograd_form, winograd_of
from mrt.backend.link.kernel_pipeline import STACK_BYTES
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.model import QuantizedModel
from mrt.symbol import GraphBuilder, NumpyRunner, Runner, TensorType, find_operator
from mrt.symbol.operators.convolution import Convolution

BYTE = {"uint8": (0, 255), "int8": (-128, 127)}
FEW_BITS = {"13 bits": (0, 2**13 - 1), "14 bits with a sign": (-(2**13) + 1, 2**13 - 1)}
"""Of int16, which the smaller tiles serve."""
WORDS = {"16 bits": (-(2**15), 2**15 - 1), "15 bits": (0, 2**15 - 1)}
"""Of int16, whose bytes are summed by themselves."""
LARGE, SMALL = (F4, F4_OF_STRIDE_2), (F2, F2_OF_STRIDE_2)
"""Tiles of 4 x 4 results and of 2 x 2, with a stride of 1 and of 2."""
SIZES = [
    ((1, 32, 8, 8), 32, (1, 1), 1),
    ((2, 16, 7, 9), 48, (1, 1), 1),
    ((3, 33, 5, 12), 17, (0, 0), 1),
    ((1, 5, 3, 3), 80, (1, 1), 1),
    ((1, 3, 8, 8), 16, (1, 1), 1),
    ((1, 64, 14, 6), 16, (2, 0), 1),
    ((1, 32, 16, 16), 32, (1, 1), 2),
    ((2, 16, 11, 18), 48, (1, 1), 2),
    ((2, 33, 9, 24), 17, (0, 0), 2),
    ((1, 48, 21, 6), 16, (2, 0), 2),
]
"""Shapes of data, output channels, pads and strides: whole tiles and none, several samples, channels that fill no
vector, lines of data that are read to their end, and such that are not."""
GROUPS = [
    ((1, 32, 8, 8), 64, 2, 1),
    ((2, 64, 7, 9), 64, 8, 1),
    ((1, 96, 5, 12), 96, 4, 1),
    ((1, 48, 6, 6), 144, 3, 2),
    ((1, 64, 9, 7), 64, 16, 1),
    ((1, 64, 8, 8), 32, 4, 2),
    ((1, 20, 6, 6), 20, 2, 1),
]
"""Shapes of data, output channels, groups and strides: groups of whole vectors and of half ones, of so few channels
that neighbours are merged, and of such that fill no vector."""
MACHINES = {cpu: Machine.of({**target, "threads": 1}) for cpu, target in TARGETS.items()}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 4 x 4 results are used wherever they are exact."""
    monkeypatch.setattr(winograd_choice, "WORTH", float("inf"))
    monkeypatch.setattr(winograd_choice, "ALGORITHMS", {each.side: each for each in LARGE})


@pytest.fixture
def by_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of 2 x 2 results are."""
    monkeypatch.setattr(winograd_choice, "WORTH", float("inf"))
    monkeypatch.setattr(winograd_choice, "ALGORITHMS", {each.side: each for each in SMALL})


def test_where_it_is_used() -> None:
    """Where few instructions form the products of words, and the weights do not come from far memory for few tiles."""

    def used(
        cpu: str,
        inputs: int,
        size: int,
        outputs: int,
        data: str = "uint8",
        most: int = 255,
        samples: int = 1,
        stride: int = 1,
    ) -> tuple[int, int] | None:
        """Results along an axis of a tile, and parts of the data."""
        weight = np.random.default_rng(0).integers(-100, 100, (outputs, inputs, 3, 3)).astype(np.int8)
        found = winograd_form(weight, data, (samples, outputs, size, size), MACHINES[cpu], (0, most), stride)
        return None if found is None else (found.algorithm.tile, found.tiling.parts)

    for cpu in ("x86-64-v3", "x86-64-v4", "alderlake", "cascadelake"):
        assert {used(cpu, 64, 56, 64), used(cpu, 128, 28, 128), used(cpu, 256, 14, 256)} == {(4, 1)}, cpu
        assert {used(cpu, 64, 56, 64, "int16", 4095), used(cpu, 128, 28, 128, "int16", 8191)} == {(2, 1)}, cpu
        assert {used(cpu, 64, 56, 64, "int16", most) for most in (8192, 2**15 - 1)} == {(4, 2)}, cpu
        assert not used(cpu, 3, 32, 16), cpu
    assert not used("cascadelake", 512, 7, 512) and used("x86-64-v3", 512, 7, 512)
    assert used("cascadelake", 512, 7, 512, samples=8)
    assert not used("sapphirerapids", 64, 56, 64)
    # Of a line of 31 tiles registers hold one at a time.
    assert used("cascadelake", 64, 120, 64) and not used("cascadelake", 64, 124, 64)
    assert not used("x86-64-v3", 16, 2, 16)
    # With a stride of 2 too few products are saved to pay where bytes are multiplied at once.
    sizes = (64, 28, 128), (128, 28, 128), (128, 14, 256)
    assert [used("x86-64-v3", *size, stride=2) for size in sizes] == [(4, 1), (4, 1), (2, 1)]
    assert not any(used("cascadelake", *size, stride=2) for size in sizes)
    for cpu in ("x86-64-v3", "cascadelake"):
        assert {used(cpu, *size, "int16", 4095, stride=2) for size in sizes} == {(2, 1)}, cpu
    assert not used("x86-64-v3", 64, 28, 128, stride=3)


def code_of(cpu: str, stride: int = 1, form: str = "asm") -> str:
    """The code for a CPU of a convolution of 64 channels, as LLVM's own language (ll) or its assembler's."""
    layers, machine = Layers(), Machine.of({**TARGETS[cpu], "threads": 1})
    data = layers.input(layers.integers((1, 64, 28, 28), "uint8"))
    layers.finish(layers.convolution(data, 64, (3, 3), pad=(1, 1), stride=(stride, stride)))
    builder = ModuleBuilder(machine)
    builder.add(layers.graph(), "main")
    return str(compile_executable(builder.module(), machine).kernels[0].inspect_source(form))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "cascadelake"])
def test_weights_are_fetched_line_by_line(cpu: str) -> None:
    """Also where a step multiplies half a line of them."""
    assert "prefetcht0" in code_of(cpu)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "cascadelake"])
@pytest.mark.parametrize("stride", [1, 2])
def test_transforms_of_large_windows_are_loops(cpu: str, stride: int) -> None:
    """Two of the data and two of the results, which LLVM does not unroll."""
    assert code_of(cpu, stride, "ll").count("call void asm sideeffect") >= 4


@pytest.mark.usefixtures("by_small_tiles")
@pytest.mark.parametrize("stride", [1, 2])
def test_small_windows_are_in_registers(stride: int) -> None:
    assert "%halfway" not in code_of("x86-64-v3", stride, "ll")


def test_windows_wait_on_the_stack() -> None:
    """Half transformed, as vectors of 64 bytes."""
    assert max(each.side * each.window for each in (*LARGE, *SMALL)) * 64 <= STACK_BYTES


@pytest.mark.usefixtures("always")
def test_that_it_is_used_is_told() -> None:
    layers = Layers()
    layers.finish(layers.convolution(layers.input(layers.integers((1, 16, 8, 8), "uint8")), 32, (3, 3)))
    for cpu, used in (("cascadelake", True), ("sapphirerapids", False)):
        assert ["36 for 16 results of 3 x 3 taps (Winograd)" in each for each in told_of(layers, cpu)] == [used]


@pytest.mark.usefixtures("always")
def test_convolutions_of_any_size(runner: Runner, turn: int) -> None:
    """Also of lines that are no whole tiles, of several samples, without a pad, with channels that fill no vector.

    A quarter of the sizes by these tiles, one by small ones, and one of words; on the next CPU other ones.
    """
    layers = Layers()
    for (shape, filters, pad, stride), dtype in zip(SIZES[turn % 4 :: 4], in_turn([*BYTE], turn // 4), strict=False):
        data = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        sums = layers.convolution(data, filters, (3, 3), pad=pad, stride=(stride, stride))
        made = layers.requantized(sums, dtype)
        layers.finish(layers.requantized(layers.convolution(made, 8, (1, 1))))
    layers.check(runner=runner)


@pytest.mark.usefixtures("always")
def test_groups_of_channels(runner: Runner, turn: int) -> None:
    """Every other group on each CPU."""
    layers = Layers()
    for (shape, filters, groups, stride), dtype in zip(
        GROUPS[turn % 2 :: 2], in_turn([*BYTE], turn // 2), strict=False
    ):
        data = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        window = {"kernel": (3, 3), "pad": (1, 1), "stride": (stride, stride)}
        sums = layers.convolution(data, filters, num_group=groups, **window)
        layers.finish(layers.requantized(layers.convolution(layers.requantized(sums, dtype), 8, (1, 1))))
    layers.check(runner=runner)


@pytest.mark.usefixtures("always")
def test_which_groups_it_serves() -> None:
    """Those that fill vectors, alone or merged with neighbours, but for single channels."""

    def served(cpu: str, channels: int, groups: int) -> int | None:
        """How many groups are left, if it serves."""
        operator = Convolution(kernel=(3, 3), num_filter=channels, num_group=groups, no_bias=True)
        weight = np.ones((channels, channels // groups, 3, 3), np.int8)
        given, made = ((1, channels, size, size) for size in (10, 8))
        types = TensorType(given, "uint8"), weight, TensorType(made, "int32")
        found = winograd_of(operator, *types, MACHINES[cpu])
        return None if found is None else found.groups

    sizes = (64, 2), (64, 16), (96, 12), (48, 2), (60, 3), (64, 64)
    assert [served("x86-64-v3", *size) for size in sizes] == [2, 8, 12, 2, None, None]
    assert [served("cascadelake", *size) for size in sizes] == [2, 4, 6, 1, 1, None]


def of_ends(
    serves: Callable[[TapSums, int, int], bool],
    ends: tuple[int, int],
    dtype: str,
    channels: int,
    weights: Sequence[list[int]],
    stride: int = 1,
) -> Layers:
    """Convolutions of so many channels, whose data are nothing but two ends, and weights of a few values."""
    layers, (lo, hi) = Layers(), ends
    for values in weights:
        data = layers.random.choice([lo, hi], (1, channels, 6 * stride + 1, 9 * stride + 1))
        data[..., : 4 * stride] = hi
        data[..., -4 * stride :] = lo
        weight = layers.random.choice(values, (16, channels, 3, 3)).astype(np.int8)
        weight[0], weight[1] = values[0], values[-1]
        assert serves(TapSums.of(weight), lo, hi)
        given = layers.hidden("clip", layers.input(data.astype(dtype)), a_min=float(lo), a_max=float(hi))
        window = {"kernel": (3, 3), "stride": (stride, stride)}
        layers.add("Convolution", given, layers.parameter(weight), num_filter=16, no_bias=True, **window)
    return layers


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("algorithm", "channels"), [(F4, 112), (F4_OF_STRIDE_2, 1824)], ids=["1", "2"])
def test_the_ends_of_ranges(runner: Runner, turn: int, algorithm: Algorithm, channels: int) -> None:
    """Sums between wrap around many times; results are close to the largest that are found again.

    Of one dtype each, which CPUs and algorithms take in turn.
    """
    dtype = [*BYTE][(turn + algorithm.stride) % 2]
    weights = [127], [-128], [-128, 127], [-128, -127, 0, 127]
    layers = of_ends(algorithm.serves, BYTE[dtype], dtype, channels, weights, algorithm.stride)
    layers.check(runner=runner)


@pytest.mark.usefixtures("always")
@pytest.mark.sampled(4)
def test_the_ends_of_words_that_large_tiles_of_stride_2_serve(runner: Runner) -> None:
    """256 channels of the largest products are the most that 36 y leaves room for."""
    weights = [127], [-127], [-127, 127], [-127, -126, 0, 127]
    of_ends(F4_OF_STRIDE_2.serves, (0, 1820), "int16", 256, weights, 2).check(runner=runner)


@pytest.mark.usefixtures("by_small_tiles")
def test_small_tiles_of_any_size(runner: Runner, turn: int) -> None:
    """Each size of bytes, or of words of few bits."""
    ends = in_turn([*BYTE.values(), *FEW_BITS.values()], turn // 2)
    between(ends, SIZES[(turn + 2) % 4 :: 4]).check(runner=runner)


def between(ends: Iterable[tuple[int, int]], sizes: Any) -> Layers:
    """Convolutions of sizes of data between two of the ends in turn, with bytes and words behind them."""
    layers = Layers()
    for (shape, filters, pad, stride), (lo, hi) in zip(sizes, ends, strict=False):
        dtype = next((dtype for dtype, both in BYTE.items() if both == (lo, hi)), "int16")
        data = layers.hidden("clip", layers.input(layers.integers(shape, dtype, lo, hi)), a_min=lo, a_max=hi)
        made = layers.convolution(data, filters, (3, 3), pad=pad, stride=(stride, stride))
        layers.finish(made)
        layers.finish(layers.requantized(layers.convolution(layers.requantized(made, "uint8"), 8, (1, 1))))
    return layers


@pytest.mark.usefixtures("by_small_tiles")
@pytest.mark.parametrize(("algorithm", "channels"), [(F2, 56), (F2_OF_STRIDE_2, 224)], ids=["1", "2"])
def test_the_ends_of_ranges_of_small_tiles(runner: Runner, turn: int, algorithm: Algorithm, channels: int) -> None:
    """56 channels of the largest products are the most that 4 y leaves room for, 224 those of which int32 holds y.

    Of one of the ranges each, which CPUs and algorithms take in turn.
    """
    ends = [*FEW_BITS.values()][(turn + algorithm.stride) % 2]
    weights = [127], [-127], [-127, 127], [-127, -126, 0, 127]
    layers = of_ends(algorithm.serves, ends, "int16", channels, weights, algorithm.stride)
    said = f"{algorithm.points} for 4 results of 3 x 3 taps (Winograd)"
    assert all(said in each for each in told_of(layers, "x86-64-v3"))
    layers.check(runner=runner)


def told_of(layers: Layers, cpu: str) -> list[str]:
    """What is said of the products of its convolutions."""
    return [call.products for call in explain(layers.graph(), (), TARGETS[cpu]).calls if call.products]


@pytest.mark.usefixtures("always")
def test_both_bytes_of_words(runner: Runner, turn: int) -> None:
    """Of any size, a quarter of them on each CPU, whatever the words are."""
    layers = between(in_turn(list(WORDS.values()), turn // 4), SIZES[(turn + 1) % 4 :: 4])
    assert any("72 for 16 results" in each for each in told_of(layers, "cascadelake"))
    layers.check(runner=runner)


@pytest.mark.usefixtures("always")
def test_the_ends_of_ranges_of_words(runner: Runner, turn: int) -> None:
    """Whose results are close to the largest of 32 bits: the sum of 256 times one that is shifted out of them in part
    and another. Each CPU takes one of the ranges."""
    ends = [*WORDS.values()][turn % 2]
    channels = 56 if ends[0] else 57
    layers = of_ends(F4.serves_bytes, ends, "int16", channels, ([127], [-127], [-127, 127], [-127, -126, 0, 127]))
    assert all("72 for 16 results of 3 x 3 taps (Winograd)" in each for each in told_of(layers, "x86-64-v3"))
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
    """Bias, residual sum, several requantizations, and bytes that another reader stores without a sign; two threads
    share output channels, or stripes."""
    layers = Layers()
    sizes = [((1, 128, 12, 12), 256, 1), ((2, 64, 14, 14), 64, 1), ((2, 160, 12, 12), 192, 2)]
    for shape, filters, stride in sizes[2 - threads :][:2]:
        data = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)))
        first = layers.convolution(data, filters, (3, 3), pad=(1, 1), stride=(stride, stride))
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


@cache
def quantized(channels: int, size: int, filters: int, stride: int) -> tuple[QuantizedModel, dict[str, np.ndarray]]:
    """Integers of a network of three layers, and samples of it."""
    random, builder = np.random.default_rng(0), GraphBuilder()
    x = builder.input("x", TensorType((1, channels, size, size), "float32"))
    for number, (outputs, inputs, kernel, step) in enumerate(
        [(filters, channels, 3, stride), (filters, filters, 3, 1), (16, filters, 1, 1)]
    ):
        weight = random.standard_normal((outputs, inputs, kernel, kernel)).astype(np.float32) / kernel / inputs**0.5
        pad = (kernel // 2,) * 2
        window = {"kernel": (kernel, kernel), "stride": (step, step), "pad": pad}
        record = find_operator("Convolution")(num_filter=outputs, no_bias=True, **window)
        x = builder.apply(record, [x, builder.parameter(f"weight{number}", weight)], f"conv{number}")
        x = builder.apply(find_operator("relu")(), [x], f"relu{number}")
    data = {"x": random.standard_normal((4, channels, size, size)).astype(np.float32)}
    config = mrt.QuantizationConfig(preset="mrt")
    return mrt.quantize(builder.graph([x]), data, config, runner=NumpyRunner()), data


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "cascadelake"])
@pytest.mark.parametrize(
    ("batch", "channels", "size", "filters", "stride"), [(1, 16, 28, 64, 2), (4, 48, 7, 32, 1), (1, 48, 7, 32, 1)]
)
def test_quantized_networks(cpu: str, batch: int, channels: int, size: int, filters: int, stride: int) -> None:
    """Bytes of whole tiles are stored together; of those at the ends of lines, only what is within the result."""
    if cpu not in runnable():
        pytest.skip(f"this machine does not run code for {cpu}")
    model, data = quantized(channels, size, filters, stride)
    whole = model.rebatched(4)
    integers = whole.quantize_inputs(data)
    run = TvmRunner({"mcpu": cpu, "threads": 1}).prepare(model.rebatched(batch).graph)
    found = [run({"x": integers["x"][place : place + batch]})[0] for place in range(0, 4, batch)]
    np.testing.assert_array_equal(np.concatenate(found), whole.graph.evaluate(integers)[0])
