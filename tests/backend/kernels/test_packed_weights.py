"""Weights of few bits that share bytes in memory, compiled, against the records: ends of ranges and awkward shapes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import Bundle
from layers import in_turn
from tvm import te

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.kernels.dot_instructions import choose_dot
from mrt.backend.kernels.generic.packed_weights import WeightPacking, choose_packing
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.lowering.plan_calls import plan_calls
from mrt.backend.machine import Machine
from mrt.backend.schedule import serial
from mrt.symbol import Interval, Runner

ENDS = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1)}
SHAPES = ((1, 36, 40), (1, 64, 130), (2, 7, 33), (3, 100, 16))
"""Rows, inputs and outputs; few of them multiples of anything."""


def layer(bundle: Bundle, shape: tuple[int, int, int], bits: int, dtype: str) -> None:
    """A fully connected layer whose data and weights are at the ends of their ranges, and all between."""
    rows, inputs, outputs = shape
    weight = bundle.integers((outputs, inputs), "int8", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    weight[0], weight[1] = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    data = bundle.random.choice(ENDS[dtype], (rows, inputs)).astype(dtype)
    data[0] = ENDS[dtype][0]
    given = [bundle.input(data), bundle.parameter(weight)]
    if bits % 2:
        given.append(bundle.parameter(bundle.integers((outputs,), "int32", -(2**20), 2**20)))
    bundle.add("FullyConnected", *given, num_hidden=outputs, no_bias=bits % 2 == 0)


def layers(dtypes: Iterator[str]) -> Bundle:
    """Of the next dtype each."""
    bundle = Bundle()
    for bits in (2, 3, 4, 8):
        for shape in SHAPES[:2] if bits == 3 else SHAPES[bits % 4 :][:2]:
            layer(bundle, shape, bits, next(dtypes))
    return bundle


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("always_packed")
def test_ends_of_ranges(runner: Runner, turn: int) -> None:
    layers(in_turn(list(ENDS), turn)).check(runner=runner)


@pytest.mark.usefixtures("always_packed")
def test_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial, "WORTH_THREADS", 0)
    layers(repeat("int16")).check(runner=TvmRunner({"kind": "llvm", "mcpu": "native", "threads": 2}))


@pytest.mark.usefixtures("always_packed")
def test_convolution_of_few_positions() -> None:
    bundle = Bundle()
    for size, kernel, pad in ((1, 1, 0), (2, 1, 0), (2, 3, 1), (3, 2, 0)):
        data = bundle.input(bundle.random.choice(ENDS["uint8"], (1, 20, size, size)).astype("uint8"))
        weight = bundle.parameter(bundle.integers((33, 20, kernel, kernel), "int8", -8, 7))
        if pad:
            data = bundle.hidden("Pad", data, pad_width=(0, 0, 0, 0, pad, pad, pad, pad))
        bundle.add("Convolution", data, weight, kernel=(kernel, kernel), num_filter=33, no_bias=True)
    bundle.check()


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_a_weight_takes_its_bits(bits: int) -> None:
    weight = np.random.default_rng(0).integers(0, 2**bits, (4, 3, 16, 16, 4)).astype(np.int8)
    assert WeightPacking(bits, 2).pack(weight).nbytes * 8 == weight.size * bits


def fields_by_tvm(packing: WeightPacking, packed: np.ndarray, dtype: str) -> np.ndarray:
    """The fields of packed weights [step / steps, plane, lane, depth], as [step, lane, depth]."""
    held = te.placeholder(packed.shape, "uint8")

    def element(step: Any, number: Any, *at: Any) -> Any:
        return packing.field(lambda plane: held(step, plane, *at), number, dtype)

    fields = te.compute((len(packed), packing.steps, *packed.shape[2:]), element)
    result = tvm.runtime.tensor(np.zeros([int(n) for n in fields.shape], dtype))
    tvm.compile(te.create_prim_func([held, fields]), "llvm")(tvm.runtime.tensor(packed), result)
    return result.numpy().reshape(-1, *packed.shape[2:])


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_fields_are_the_weights(bits: int, has_bias: bool) -> None:
    """As TVM computes them: at the top of a byte or, with a bias, at its bottom, and in int16."""
    weight = np.random.default_rng(0).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (1, 8, 16, 4)).astype(np.int8)
    packing = WeightPacking(bits, 1, 2 ** (bits - 1) if has_bias and bits < 8 else 0)
    packed = packing.pack(weight)[0, :, 0]
    for dtype in ("int8", "int16"):
        expected = (weight[0].astype(int) + packing.bias) << packing.scale(dtype)
        np.testing.assert_array_equal(fields_by_tvm(packing, packed, dtype), expected)


def chosen(
    weight: Any, dtype: str, positions: int, cpu: str, ends: tuple[int, int] | None = None, width: int = 0
) -> Any:
    machine = Machine.of({"kind": "llvm", "mcpu": cpu, "threads": 1})
    data = Interval.of(*(ends or ENDS[dtype]), (positions, weight.shape[1]))
    dot = choose_dot(dtype, weight, "int32", machine, Pairs(data))
    return choose_packing(weight, dot, (len(weight) // dot.lanes, weight.shape[1], positions), data, machine, width)


def test_where_it_pays() -> None:
    weight = np.tile(np.array([[-8, 7]], np.int8), (1024, 512))
    assert chosen(weight, "uint8", 1, "cascadelake").packing.bits == 4
    assert chosen(weight, "uint8", 8, "cascadelake").packing.bits == 4
    assert chosen(weight, "uint8", 9, "cascadelake") is None, "products count"
    assert chosen(weight[:256], "uint8", 2, "cascadelake") is None, "the second cache holds it"
    assert chosen(weight * 16, "uint8", 1, "cascadelake") is None, "bytes are full"
    assert chosen(weight, "uint8", 4, "sapphirerapids") is None, "tiles multiply"
    assert chosen(weight * 16, "int16", 1, "x86-64-v3").packing.bits == 8, "and not the 16 that pmaddwd takes"


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_pairs_of_few_bits_are_added_up_in_int16(cpu: str) -> None:
    """The fields of all steps that share bytes, at most 2^bits - 1 each, times 255: they stay below 2^15."""
    for bits in (2, 3, 4):
        weight = np.tile(np.array([[-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]], np.int8), (1024, 512))
        for dtype, splits in (("uint8", False), ("int8", False), ("int16", True)):
            ends = (-(2**12), 2**12) if splits else None
            found = chosen(weight, dtype, 1, cpu, ends)
            assert (found.splits, found.joint, found.dot.depth) == (splits, True, 4)
            assert found.packing.bias == 2 ** (found.packing.bits - 1)
            assert 2 * 255 * (2**found.packing.bits - 1) * found.packing.steps < 2**15
    assert not chosen(weight, "uint8", 1, "cascadelake").joint


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_no_pair_of_packed_weights_is_left_to_saturate(cpu: str) -> None:
    """Weights of 7 bits in bytes, whose data are int16, are multiplied with both bytes of these."""
    for most, splits in ((64, True), (65, False)):
        found = chosen(np.full((1024, 1024), most, np.int8), "int16", 1, cpu, (-(2**9), 2**9))
        assert (found.splits, found.joint, found.packing.bias) == (splits, False, 0)


def test_weights_of_slices_have_no_sign_where_the_bytes_of_int16_have_one() -> None:
    weight = np.tile(np.array([[-2, 1]], np.int8), (1024, 512))
    for cpu, width, most, signs in (
        ("cascadelake", 32, 2**15 - 129, ("int8", "uint8")),
        ("cascadelake", 32, 2**15 - 128, ("uint8", "int8")),
        ("cascadelake", 0, 2**15 - 129, ("uint8", "int8")),
        ("x86-64-v4", 32, 2**15 - 129, ("uint8", "int8")),
    ):
        found = chosen(weight, "int16", 1, cpu, (-(2**15), most), width)
        assert (found.dot.data, found.dot.weight) == signs and found.splits
        assert found.taken_off == (0 if signs[1] == "uint8" else -128)


@pytest.mark.parametrize(("bits", "dtype", "fetches"), [(4, "uint8", False), (2, "uint8", True), (4, "int16", True)])
def test_steps_prefetch_where_they_take_longer_than_memory(bits: int, dtype: str, fetches: bool) -> None:
    bundle = Bundle()
    layer(bundle, (1, 256, 1024), bits, dtype)
    machine = Machine.of({"kind": "llvm", "mcpu": "x86-64-v3", "threads": 1})
    known = {name: Interval.of(-4096, 4095, value.shape) for name, value in bundle.feeds.items() if dtype == "int16"}
    plan = plan_calls(bundle.graph(), machine, lambda key, name, make: name, {}, known)
    (call,) = (call for call in plan.calls if call.lowered and call.lowered.packed)
    assert ("llvm.prefetch" in call.lowered.function(machine).script()) == fetches


@pytest.mark.parametrize("bits", [2, 4])
def test_fields_are_not_unpacked_where_products_are_formed(bits: int) -> None:
    """GFNI's product of matrices of bits would shift and mask at once, in the units of `vpdpbusd` on Zen 4."""
    bundle = Bundle()
    layer(bundle, (1, 256, 1024), bits, "uint8")
    machine = Machine.of({"kind": "llvm", "mcpu": "icelake-server", "threads": 1})
    module_builder = ModuleBuilder(machine)
    module_builder.add(bundle.graph(), "main")
    kernels = compile_executable(module_builder.module(), machine).kernels
    code = "".join(str(kernel.inspect_source("asm")) for kernel in kernels)
    assert "vpdpbusd" in code and "vgf2p8affineqb" not in code


def test_sums_fit_32_bits() -> None:
    """Shifted weights of bytes, and 256 times the high bytes of int16, may reach beyond what the whole sum does."""
    row = np.full((16, 2**17), 7, np.int8)
    assert chosen(row, "uint8", 1, "cascadelake") is None
    assert chosen(row[:, : 2**16], "uint8", 1, "cascadelake").packing.bits == 4
    assert chosen(row[:, : 2**18 // 7 * 4], "uint8", 1, "x86-64-v3").packing.bits == 4
    assert chosen(np.tile(row, (1, 8)), "uint8", 1, "x86-64-v3") is None, "with the bias of its fields"
    most = (2**31 - 1) // (7 * 2**13)
    assert chosen(row[:, : most // 16 * 16], "int16", 1, "cascadelake", (-(2**13), 2**13)).splits is False
    assert chosen(row[:, : most // 32 * 16], "int16", 1, "cascadelake", (-(2**13), 2**13)).splits is True


def test_the_module_holds_packed_weights() -> None:
    bundle = Bundle()
    layer(bundle, (1, 512, 1024), 4, "uint8")
    machine = Machine.of({"kind": "llvm", "mcpu": "cascadelake", "threads": 1})
    plan = plan_calls(bundle.graph(), machine, lambda key, name, make: name, {}, {})
    (call,) = (call for call in plan.calls if call.lowered and call.lowered.packed)
    sizes = [argument.value.numpy().nbytes for argument in call.arguments if hasattr(argument, "value")]
    assert max(sizes) == 512 * 1024 // 2
