"""Kernels: every family, on every level of the CPU, for the shapes that layouts and tiles find awkward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from compiled import Bundle
from emulated import emulated

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.explain import explain
from mrt.backend.kernels.dot_instructions import choose_dot, joined_bytes, weight_bytes
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.symbol import Runner, Symbol

TARGETS: dict[str, dict[str, Any]] = {
    cpu: {"kind": "llvm", "mcpu": cpu}
    for cpu in ("x86-64", "x86-64-v3", "x86-64-v4", "alderlake", "cascadelake", "sapphirerapids")
}
"""No vectors of 256 bits; AVX2; AVX-512 without products of bytes; those in 256 bits; those in 512."""


def runnable() -> list[str]:
    """The targets whose instructions this machine has."""
    needed = {
        "x86-64": "sse2",
        "x86-64-v3": "avx2",
        "x86-64-v4": "avx512bw",
        "alderlake": "avx_vnni",
        "sapphirerapids": "amx_int8",
    }
    flags = set()
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                flags = set(line.split())
                break
    return [cpu for cpu in TARGETS if needed.get(cpu, "avx512_vnni") in flags]


EMULATED: dict[str, dict[str, Any]] = {
    "neoverse-n1": {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1", "threads": 1},
    "cortex-a57": {"mtriple": "aarch64-linux-gnu", "threads": 2},
}
"""By the CPU that is emulated: with products of bytes and without."""


@pytest.fixture(params=[*TARGETS, *EMULATED])
def runner(request: pytest.FixtureRequest) -> Runner:
    if request.param in EMULATED:
        return emulated(EMULATED[request.param], request.param)
    if request.param not in runnable():
        pytest.skip(f"this machine does not run code for {request.param}")
    return TvmRunner(TARGETS[request.param])


class Layers(Bundle):
    """Chains as an integer network has them, so that tensors lie as their readers request."""

    def parameter_of(self, shape: tuple[int, ...], dtype: str, lo: int, hi: int) -> Symbol:
        return self.parameter(self.integers(shape, dtype, lo, hi))

    def requantized(self, data: Symbol, dtype: str = "uint8") -> Symbol:
        """Bias, multiplier, shift, clip and cast of every output channel."""
        shape = (1, data.shape[1], *(1,) * (data.type.rank - 2))
        limits = {"uint8": (0.0, 255.0), "int8": (-127.0, 127.0), "int16": (-32767.0, 32767.0)}[dtype]
        biased = self.hidden("broadcast_add", data, self.parameter_of(shape, "int16", -3000, 3000))
        scaled = self.hidden("broadcast_mul", biased, self.parameter_of(shape, "int8", 1, 5))
        shifted = self.hidden("right_shift", scaled, self.parameter_of(shape, "int8", 0, 8))
        clipped = self.hidden("clip", shifted, a_min=limits[0], a_max=limits[1])
        return self.hidden("Cast", clipped, dtype=dtype)

    def convolution(self, data: Symbol, filters: int, kernel: tuple[int, ...], **attributes: Any) -> Symbol:
        groups = attributes.get("num_group", 1)
        weight = self.parameter_of((filters, data.shape[1] // groups, *kernel), "int8", -127, 127)
        attributes = {"kernel": kernel, "num_filter": filters, "no_bias": True, **attributes}
        return self.hidden("Convolution", data, weight, **attributes)

    def padded(self, data: Symbol, *widths: int, value: int = 0) -> Symbol:
        return self.hidden("Pad", data, pad_width=(0, 0, 0, 0, *widths), constant_value=float(value))

    def sliced(
        self, data: Symbol, lengths: Sequence[int], filters: int, kernel: tuple[int, ...], **more: Any
    ) -> Symbol:
        """The sum of convolutions of slices of the channels, each times a factor for each output channel."""
        terms = []
        for index, length in enumerate(lengths):
            begin = sum(lengths[:index])
            part = self.hidden("slice_axis", data, axis=1, begin=begin, end=begin + length)
            factors = self.parameter_of((filters, *(1,) * len(kernel)), "int16", 1, 256)
            terms.append(self.hidden("broadcast_mul", self.convolution(part, filters, kernel, **more), factors))
        return self.hidden("add_n", *terms)

    def finish(self, data: Symbol) -> None:
        self.add("relu", data)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_convolutions(runner: Runner, dtype: str) -> None:
    layers = Layers()
    for shape, filters, kernel, attributes in [
        ((3, 3, 9, 11), 7, (3, 3), {}),
        ((1, 17, 7, 5), 33, (1, 1), {}),
        ((2, 16, 13, 13), 16, (2, 3), {"stride": (3, 2)}),
        ((1, 5, 9, 9), 20, (1, 1), {"stride": (2, 3)}),
        ((1, 18, 9, 23), 48, (3, 3), {"dilate": (2, 1), "pad": (2, 1)}),
        ((1, 32, 1, 1), 40, (1, 1), {}),
        ((1, 64, 4, 4), 32, (4, 4), {}),
        ((1, 32, 6, 6), 64, (3, 3), {"num_group": 2}),
        ((1, 12, 6, 6), 24, (3, 3), {"num_group": 4}),
        ((2, 4, 19), 9, (5,), {"stride": (2,)}),
        ((1, 3, 4, 5, 6), 18, (2, 3, 2), {}),
        ((1, 16, 5, 5), 1, (1, 1), {}),
        ((1, 1, 7, 6), 1, (3, 3), {}),
    ]:
        first = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        layers.finish(layers.requantized(layers.convolution(first, filters, kernel, **attributes)))
    layers.check(runner=runner)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_depthwise_convolutions(runner: Runner, dtype: str) -> None:
    layers = Layers()
    for shape, kernel, attributes in [
        ((2, 32, 9, 7), (3, 3), {}),
        ((1, 19, 8, 8), (3, 3), {"stride": (2, 2)}),
        ((2, 40, 6, 9), (3, 3), {"pad": (1, 1)}),
        ((1, 16, 8, 6), (2, 3), {"stride": (2, 1)}),
        ((1, 3, 8, 8), (5, 5), {"dilate": (1, 2), "pad": (2, 4)}),
        ((1, 48, 12, 12), (8, 7), {}),
        ((1, 19, 12, 12), (8, 7), {}),
        ((1, 1, 6, 6), (3, 3), {}),
        ((1, 24, 15), (4,), {"stride": (3,)}),
    ]:
        first = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        depthwise = layers.convolution(first, shape[1], kernel, num_group=shape[1], **attributes)
        layers.finish(layers.requantized(layers.convolution(layers.requantized(depthwise), 8, (1,) * len(kernel))))
    layers.check(runner=runner)


def test_what_windows_give_is_read_along_rows(runner: Runner) -> None:
    """Channels are in the lanes of a convolution, whatever axis its only reader requests; a copy serves that one."""
    layers = Layers()
    for shape, filters, kernel, groups in [((1, 16, 5, 4), 19, (3, 3), 1), ((1, 9, 21), 9, (2,), 9)]:
        given = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)))
        data = layers.requantized(layers.convolution(given, filters, kernel, num_group=groups))
        weight = layers.parameter_of((24, data.shape[-1]), "int8", -127, 127)
        layers.add("FullyConnected", data, weight, num_hidden=24, no_bias=True, flatten=False)
        data = layers.requantized(layers.convolution(given, 40, kernel), "int8")
        layers.add("batch_dot", data, data, transpose_b=True)
    layers.check(runner=runner)


def test_windows_over_one_channel_read_no_other() -> None:
    """Its padding in memory is shorter than that of what is made of it."""
    layers = Layers()
    given = layers.input(layers.integers((2, 1, 6, 16), "int8"))
    layers.add("Pooling", given, pool_type="sum", global_pool=True)
    layers.add("Pooling", given, pool_type="max", kernel=(5, 11))
    layers.finish(layers.convolution(layers.hidden("relu", given), 1, (6, 10)))
    layers.check()


def test_a_pad_has_its_border_wherever_its_data_lies() -> None:
    """Around what has rows last, and around the transpose of what has channels last for another reader."""
    layers = Layers()
    given = layers.requantized(layers.input(layers.integers((1, 16, 5, 20), "int16", -200, 200)))
    weight = layers.parameter_of((24, 20), "int8", -127, 127)
    attributes = {"num_hidden": 24, "no_bias": True, "flatten": False}
    rows = layers.requantized(layers.hidden("FullyConnected", given, weight, **attributes))
    layers.add("Pooling", layers.padded(rows, 2, 3, 2, 2), kernel=(2, 5), stride=(1, 3), pool_type="max")
    layers.finish(layers.convolution(layers.padded(rows, 1, 1, 1, 1), 8, (3, 3)))
    turned = layers.hidden("transpose", given, axes=(0, 3, 1, 2))
    layers.finish(layers.convolution(layers.padded(turned, 1, 2, 0, 1), 8, (3, 3)))
    layers.finish(layers.convolution(given, 8, (1, 1)))
    layers.check()


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_convolutions_in_slices(runner: Runner, dtype: str) -> None:
    """Slices of 16, of 4 and of 1 channel, of different lengths, and the last one short."""
    layers = Layers()
    for shape, lengths, filters, kernel, attributes in [
        ((1, 32, 8, 8), (16, 16), 24, (3, 3), {}),
        ((2, 35, 5, 7), (16, 16, 3), 48, (1, 1), {}),
        ((1, 16, 9, 9), (4, 4, 4, 4), 16, (3, 3), {"stride": (2, 2), "pad": (1, 1)}),
        ((1, 12, 7, 7), (4, 4, 4), 7, (1, 1), {}),
        ((1, 5, 6, 6), (1, 1, 1, 1, 1), 20, (3, 3), {"dilate": (2, 1)}),
        ((1, 24, 6, 6), (4, 12, 8), 16, (2, 3), {}),
        ((1, 21, 11), (8, 8, 5), 33, (4,), {}),
    ]:
        first = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        layers.finish(layers.requantized(layers.sliced(first, lengths, filters, kernel, **attributes)))
    layers.check(runner=runner)


def test_wide_and_narrow_factors(runner: Runner) -> None:
    """16-bit data, 16-bit weights, both, and data that two convolutions request in different dtypes."""
    layers = Layers()
    narrow = layers.requantized(layers.input(layers.integers((1, 20, 6, 6), "int16", -200, 200)), "int8")
    wide = layers.requantized(layers.input(layers.integers((1, 20, 6, 6), "int16", -20000, 20000)), "int16")
    for data in (narrow, wide):
        for dtype, reach in (("int8", 7), ("int16", 300)):
            weight = layers.parameter_of((24, 20, 3, 3), dtype, -reach, reach)
            layers.add("Convolution", data, weight, kernel=(3, 3), num_filter=24, no_bias=True)
    layers.check(runner=runner)


def test_extremes_stay_exact(runner: Runner) -> None:
    """255 times 127, and -128 times -127, in every product: what saturating instructions lose."""
    layers = Layers()
    for value, dtype, weight in ((255, "uint8", 127), (-128, "int8", -127), (-128, "int8", 127)):
        given = layers.input(np.full((1, 64, 5, 5), value, dtype))
        data = layers.hidden("clip", given, a_min=-1e4, a_max=1e4)
        factors = layers.parameter(np.full((16, 64, 3, 3), weight, np.int8))
        layers.add("Convolution", data, factors, kernel=(3, 3), num_filter=16, no_bias=True)
        flat = layers.hidden("Flatten", data)
        layers.add(
            "FullyConnected", flat, layers.parameter(np.full((9, 1600), weight, np.int8)), num_hidden=9, no_bias=True
        )
    layers.check(runner=runner)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_products_of_computed_matrices(runner: Runner, dtype: str) -> None:
    """Odd numbers of rows, columns and terms, several matrices, operands that are transposed or not dense."""
    layers = Layers()
    for left, right, attributes in [
        ((3, 7, 13), (3, 13, 33), {}),
        ((3, 13, 7), (3, 13, 33), {"transpose_a": True}),
        ((1, 9, 16), (1, 20, 16), {"transpose_b": True}),
        ((2, 2, 5, 18), (2, 2, 18, 1), {}),
        ((1, 1, 1), (1, 1, 1), {}),
    ]:
        a = layers.requantized(layers.input(layers.integers(left, "int16", -200, 200)), dtype)
        b = layers.requantized(layers.input(layers.integers(right, "int16", -200, 200)), "int8")
        layers.finish(layers.hidden("batch_dot", a, b, **attributes))
    a = layers.requantized(layers.input(layers.integers((2, 5, 24), "int16", -200, 200)), dtype)
    rows = [layers.parameter_of((40, 24), "int8", -127, 127) for _ in range(2)]
    made = [layers.hidden("FullyConnected", a, row, num_hidden=40, no_bias=True, flatten=False) for row in rows]
    query, key = (layers.requantized(each, "int8") for each in made)
    turned = layers.hidden("transpose", key, axes=(0, 2, 1))
    layers.finish(layers.requantized(layers.hidden("batch_dot", query, turned)))
    heads = [
        layers.hidden("transpose", layers.hidden("Reshape", each, shape=(2, 5, 4, 10)), axes=(0, 2, 1, 3))
        for each in (query, key)
    ]
    layers.finish(layers.hidden("batch_dot", *heads, transpose_b=True))
    layers.finish(layers.hidden("batch_dot", heads[0], layers.parameter_of((2, 4, 10, 3), "uint8", 0, 255)))
    flat = layers.hidden("Flatten", query)
    layers.finish(
        layers.hidden(
            "FullyConnected", flat, layers.parameter_of((9, 200), "int8", -127, 127), num_hidden=9, no_bias=True
        )
    )
    layers.check(runner=runner)


def test_products_of_matrices_stay_exact_at_the_extremes(runner: Runner) -> None:
    layers = Layers()
    for value, dtype, weight, other in (
        (255, "uint8", -128, "int8"),
        (-128, "int8", -128, "int8"),
        (-128, "int8", 255, "uint8"),
        (-(2**15), "int16", -(2**15), "int16"),
    ):
        given = [
            layers.input(np.full(shape, n, kind))
            for shape, n, kind in (((2, 3, 1), value, dtype), ((2, 1, 5), weight, other))
        ]
        layers.finish(layers.hidden("batch_dot", *(layers.hidden("clip", x, a_min=-1e5, a_max=1e5) for x in given)))
        if other != "int16":
            given = [
                layers.input(np.full(shape, n, kind))
                for shape, n, kind in (((2, 3, 130), value, dtype), ((2, 130, 5), weight, other))
            ]
            layers.finish(layers.hidden("batch_dot", *(layers.hidden("clip", x, a_min=-1e5, a_max=1e5) for x in given)))
    layers.check(runner=runner)


def softmax_of(layers: Layers, data: Symbol) -> Symbol:
    """Shares of each row, as integer networks compute them: powers from a table, one division."""
    highest = layers.hidden("max", data, axis=(-1,), keepdims=True)
    below = layers.hidden("clip", layers.hidden("broadcast_sub", data, highest), a_min=-128.0, a_max=0.0)
    table = layers.parameter(np.round(5e6 * np.exp(np.arange(-128, 1) / 40)).astype(np.int32))
    power = layers.hidden("table_lookup", layers.hidden("Cast", below, dtype="int8"), table, offset=128)
    total = layers.hidden("sum", power, axis=(-1,), keepdims=True)
    total = layers.hidden("clip", total, a_min=5e6, a_max=2.0**31 - 1)
    half = layers.hidden("floor_divide", total, layers.parameter(np.full((1,) * data.type.rank, 2, np.int8)))
    scaled = layers.hidden("broadcast_mul", power, layers.parameter(np.full((1,) * data.type.rank, 127, np.int8)))
    return layers.hidden("floor_divide", layers.hidden("broadcast_add", scaled, half), total)


def normalized(layers: Layers, data: Symbol) -> list[Symbol]:
    """Rows less their means over the roots of their squares' sums, for two readers."""
    total = layers.hidden("sum", data, axis=(-1,), keepdims=True)
    centred = layers.hidden(
        "broadcast_sub",
        layers.hidden("broadcast_mul", data, layers.parameter(np.full((1,) * data.type.rank, data.shape[-1], np.int8))),
        total,
    )
    short = layers.hidden("right_shift", centred, layers.parameter(np.full((1,) * data.type.rank, 3, np.int8)))
    squares = layers.hidden("sum", layers.hidden("elemwise_mul", short, short), axis=(-1,), keepdims=True)
    root = layers.hidden("integer_sqrt", layers.hidden("clip", squares, a_min=1.0, a_max=2.0**31 - 1), fraction_bits=3)
    return [
        layers.hidden(
            "floor_divide",
            layers.hidden("broadcast_mul", centred, layers.parameter(np.full((1,) * data.type.rank, n, np.int16))),
            root,
        )
        for n in (900, -700)
    ]


@pytest.mark.parametrize("shape", [(3, 33, 19), (1, 5, 16), (2, 2, 7, 40), (4, 3)])
def test_rows(runner: Runner, shape: tuple[int, ...]) -> None:
    """Softmax and normalization of rows that fill vectors or do not, written padded or in the graph's order."""
    layers = Layers()
    plain = layers.input(layers.integers(shape, "int8", -100, 100))
    weight = layers.parameter_of((shape[-1], shape[-1]), "int8", -3, 3)
    product = layers.hidden("FullyConnected", plain, weight, num_hidden=shape[-1], no_bias=True, flatten=False)
    padded = layers.hidden("Cast", layers.hidden("clip", product, a_min=-127.0, a_max=127.0), dtype="int8")
    for data in (plain, padded):
        for result in (softmax_of(layers, data), *normalized(layers, data)):
            layers.add("clip", result, a_min=-20000.0, a_max=20000.0)
    layers.check(runner=runner)


def test_rows_are_computed_by_one_function() -> None:
    layers = Layers()
    weight = layers.parameter_of((24, 24), "int8", -3, 3)
    given = layers.input(layers.integers((2, 9, 24), "int8", -100, 100))
    product = layers.hidden("FullyConnected", given, weight, num_hidden=24, no_bias=True, flatten=False)
    data = layers.hidden("Cast", layers.hidden("clip", product, a_min=-127.0, a_max=127.0), dtype="int8")
    layers.add("Cast", softmax_of(layers, data), dtype="uint8")
    calls = explain(layers.graph(), []).calls
    assert [call.operators[0] for call in calls if call.operators != ("copy",)] == ["FullyConnected", "max"]


def test_concatenations_in_place(runner: Runner) -> None:
    """Parts of whole vectors, the last of any width; with borders, read by others too, and one of another Concat."""
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((3, 5, 9, 7), "int16", -200, 200)))
    squeezed = layers.requantized(layers.convolution(data, 16, (1, 1)))
    parts = [
        layers.requantized(layers.convolution(squeezed, 32, (1, 1))),
        layers.requantized(layers.convolution(layers.padded(squeezed, 1, 1, 1, 1), 16, (3, 3))),
        layers.requantized(layers.convolution(squeezed, 19, (1, 1))),
    ]
    joined = layers.hidden("Concat", *parts, dim=1)
    layers.finish(layers.convolution(layers.padded(joined, 1, 0, 1, 2), 16, (3, 3)))
    layers.finish(layers.convolution(joined, 33, (1, 1), pad=(1, 1)))
    layers.finish(layers.convolution(layers.padded(parts[1], 2, 2, 2, 2), 8, (3, 3)))
    again = layers.requantized(layers.convolution(joined, 16, (1, 1)))
    both = layers.hidden("Concat", again, joined, dim=1)
    layers.finish(layers.convolution(both, 16, (1, 1)))
    layers.add(
        "Pooling", layers.hidden("Concat", again, parts[0], dim=1), kernel=(3, 3), stride=(2, 2), pool_type="max"
    )
    layers.check(runner=runner)


def test_why_a_concatenation_copies_is_told() -> None:
    def told(widths: tuple[int, ...]) -> list[str]:
        layers = Layers()
        data = layers.requantized(layers.input(layers.integers((1, 16, 5, 5), "int16", -200, 200)))
        parts = [layers.requantized(layers.convolution(data, width, (1, 1))) for width in widths]
        layers.finish(layers.convolution(layers.hidden("Concat", *parts, dim=1), 16, (1, 1)))
        return [call.ends for call in explain(layers.graph(), []).calls if "Concat" in call.operators]

    assert told((32, 16, 5)) == []
    (reason,) = told((20, 16))
    assert "has 20 channels" in reason


def test_residuals_pools_concatenations_and_flattened_rows(runner: Runner) -> None:
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((2, 3, 12, 10), "int16", -200, 200)), "int8")
    stem = layers.requantized(layers.convolution(layers.padded(data, 1, 2, 0, 1, value=-3), 24, (3, 3)))
    left = layers.requantized(layers.convolution(layers.padded(stem, 1, 1, 1, 1), 24, (3, 3)), "int16")
    right = layers.requantized(layers.convolution(stem, 24, (1, 1)), "int16")
    summed = layers.hidden("elemwise_add", layers.hidden("Cast", left, dtype="int32"), right)
    joined = layers.requantized(summed, "int8")
    pooled = layers.hidden("Pooling", joined, kernel=(3, 2), stride=(2, 2), pad=(1, 1), pool_type="max")
    total = layers.hidden("Pooling", joined, kernel=(3, 2), stride=(2, 2), pad=(1, 1), pool_type="sum")
    both = layers.hidden("Concat", pooled, layers.requantized(total, "int8"), dim=1)
    upsampled = layers.hidden("UpSampling", both, scale=2, sample_type="nearest")
    tail = layers.requantized(layers.convolution(layers.padded(upsampled, 0, 1, 2, 0), 10, (3, 3), stride=(2, 2)))
    flat = layers.hidden("Flatten", tail)
    weight = layers.parameter_of((11, flat.shape[1]), "int8", -127, 127)
    layers.add("FullyConnected", flat, weight, num_hidden=11, no_bias=True)
    layers.add("Pooling", tail, global_pool=True, kernel=(1, 1), pool_type="sum")
    layers.check(runner=runner)


def test_a_border_of_several_readers_is_the_widest() -> None:
    """One pads by 1, one by 2, one has a pad of its own, one reads the tensor as it is, one pads with another value."""
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((1, 16, 8, 8), "int16", -200, 200)), "int8")
    for read, attributes in [
        (layers.padded(data, 1, 1, 1, 1), {}),
        (layers.padded(data, 2, 0, 1, 2), {}),
        (data, {"pad": (1, 2)}),
        (data, {}),
        (layers.padded(data, 1, 1, 1, 1, value=5), {}),
    ]:
        layers.finish(layers.convolution(read, 16, (3, 3), **attributes))
    layers.finish(data)
    layers.check()


def test_instructions_are_those_of_the_machine() -> None:
    weight = np.ones((16, 16, 1, 1), np.int8)
    expected = {
        "x86-64": "llvm.x86.sse2.pmadd.wd",
        "x86-64-v3": "llvm.x86.avx2.pmadd.wd",
        "x86-64-v4": "llvm.x86.avx512.pmaddw.d.512",
        "alderlake": "llvm.x86.avx512.vpdpbusd.256",
        "cascadelake": "llvm.x86.avx512.vpdpbusd.512",
    }
    for cpu, instruction in expected.items():
        assert choose_dot("uint8", weight, "int32", Machine.of(TARGETS[cpu])).instruction == instruction


def test_a_dot_of_bytes_is_used_only_where_its_sums_fit() -> None:
    """int8 data is taken as 128 more: 383 per unit of weight, against 2^31 - 1."""
    machine = Machine.of(TARGETS["cascadelake"])
    depth = (2**31 - 1) // (383 * 127)
    fits, exceeds = (np.full((1, n, 1, 1), 127, np.int8) for n in (depth, depth + 1))
    assert choose_dot("int8", fits, "int32", machine).depth == 4
    assert choose_dot("int8", exceeds, "int32", machine).depth == 2
    assert choose_dot("uint8", exceeds, "int32", machine).depth == 4
    assert choose_dot("int16", np.full((1, 4), -(2**15), np.int16), "int32", machine).depth == 1


def test_wide_weights_are_multiplied_byte_by_byte_where_their_sums_fit() -> None:
    machine = Machine.of(TARGETS["cascadelake"])
    wide, wider = (np.full((1, 4), value, np.int16) for value in (2**15 - 129, 2**15 - 128))
    assert [choose_dot("int8", weight, "int32", machine).parts for weight in (wide, wider)] == [2, 3]
    many = np.full((1, 300), 2**15 - 129, np.int16)
    dots = [choose_dot(data, many, "int32", machine) for data in ("uint8", "int16")]
    assert [(dot.data, dot.parts) for dot in dots] == [("int16", 1)] * 2


def test_the_bytes_of_every_word_join_to_it() -> None:
    words = np.arange(-(2**15), 2**15).astype(np.int16)
    np.testing.assert_array_equal(joined_bytes(weight_bytes(words).astype(np.int64)), words)


def assembly(target: dict[str, Any], dtype: str) -> str:
    """The machine code of one convolution, for a CPU that this machine need not be."""
    layers = Layers()
    data = layers.hidden("clip", layers.input(layers.integers((1, 16, 8, 8), dtype)), a_min=-1e4, a_max=1e4)
    layers.add("relu", layers.convolution(data, 32, (3, 3)))
    machine = Machine.of(target)
    module_builder = ModuleBuilder(machine)
    module_builder.add(layers.graph(), "main")
    kernels = compile_executable(module_builder.module(), machine).kernels[0]
    return str(kernels.inspect_source("asm"))


def operations(code: str) -> set[str]:
    """The mnemonics in an assembly text."""
    return {line.split()[0] for line in code.splitlines() if line[:1].isspace() and line.strip()}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("cpu", "used"),
    [("x86-64", "pmaddwd"), ("x86-64-v3", "vpmaddwd"), ("x86-64-v4", "vpmaddwd"), ("cascadelake", "vpdpbusd")],
)
def test_no_instruction_saturates(cpu: str, used: str, dtype: str) -> None:
    found = operations(assembly(TARGETS[cpu], dtype))
    assert used in found
    assert not {name for name in found if name.lstrip("v").startswith(("pmaddubsw", "pdpbusds", "pdpwssds"))}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("cpu", "used"), [("neoverse-n1", "sdot"), ("cortex-a53", "smlal")])
def test_code_for_another_processor(cpu: str, used: str, dtype: str) -> None:
    """With dot products of bytes where it has them, else by widening multiplications."""
    found = operations(assembly({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu}, dtype))
    assert used in found
