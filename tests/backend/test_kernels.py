"""Kernels: every family, on every level of the CPU, for the shapes that layouts and tiles find awkward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Bundle

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.emit import Emitter
from mrt.backend.kernels.instructions import choose_dot
from mrt.backend.machine import Machine
from mrt.symbol import Symbol

TARGETS: dict[str, dict[str, Any]] = {
    cpu: {"kind": "llvm", "mcpu": cpu} for cpu in ("x86-64", "x86-64-v3", "x86-64-v4", "alderlake", "cascadelake")
}
"""No vectors of 256 bits; AVX2; AVX-512 without products of bytes; those in 256 bits; those in 512."""


def runnable() -> list[str]:
    """The targets whose instructions this machine has."""
    needed = {"x86-64": "sse2", "x86-64-v3": "avx2", "x86-64-v4": "avx512bw", "alderlake": "avx_vnni"}
    flags = set()
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                flags = set(line.split())
                break
    return [cpu for cpu in TARGETS if needed.get(cpu, "avx512_vnni") in flags]


@pytest.fixture(params=list(TARGETS))
def runner(request: pytest.FixtureRequest) -> TvmRunner:
    if request.param not in runnable():
        pytest.skip(f"this machine does not run code for {request.param}")
    return TvmRunner(TARGETS[request.param])


class Layers(Bundle):
    """Chains as an integer network has them, so that tensors lie as their readers wish."""

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

    def finish(self, data: Symbol) -> None:
        self.add("relu", data)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_convolutions(runner: TvmRunner, dtype: str) -> None:
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
def test_depthwise_convolutions(runner: TvmRunner, dtype: str) -> None:
    layers = Layers()
    for shape, kernel, attributes in [
        ((2, 32, 9, 7), (3, 3), {}),
        ((1, 19, 8, 8), (3, 3), {"stride": (2, 2)}),
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


def test_wide_and_narrow_factors(runner: TvmRunner) -> None:
    """16-bit data, 16-bit weights, both, and data that two convolutions wish for in different dtypes."""
    layers = Layers()
    narrow = layers.requantized(layers.input(layers.integers((1, 20, 6, 6), "int16", -200, 200)), "int8")
    wide = layers.requantized(layers.input(layers.integers((1, 20, 6, 6), "int16", -20000, 20000)), "int16")
    for data in (narrow, wide):
        for dtype, reach in (("int8", 7), ("int16", 300)):
            weight = layers.parameter_of((24, 20, 3, 3), dtype, -reach, reach)
            layers.add("Convolution", data, weight, kernel=(3, 3), num_filter=24, no_bias=True)
    layers.check(runner=runner)


def test_extremes_stay_exact(runner: TvmRunner) -> None:
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


def test_residuals_pools_concatenations_and_flattened_rows(runner: TvmRunner) -> None:
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


def assembly(target: dict[str, Any], dtype: str) -> str:
    """The machine code of one convolution, for a CPU that this machine need not be."""
    layers = Layers()
    data = layers.hidden("clip", layers.input(layers.integers((1, 16, 8, 8), dtype)), a_min=-1e4, a_max=1e4)
    layers.add("relu", layers.convolution(data, 32, (3, 3)))
    machine = Machine.of(target)
    emitter = Emitter(machine)
    emitter.add(layers.graph(), "main")
    kernels = compile_executable(emitter.module(), machine).mod.imports[0]
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
