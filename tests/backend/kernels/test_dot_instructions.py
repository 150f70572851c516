"""Which instruction multiplies, and that it is in the code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layers import TARGETS, Layers

from mrt.backend.build import compile_executable
from mrt.backend.explain import explain
from mrt.backend.kernels.dot_instructions import choose_dot, joined_bytes, weight_bytes
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.symbol import Interval
from mrt.symbol.operators.convolution import Convolution


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


@pytest.mark.parametrize(("cpu", "pairs"), [("x86-64-v3", "avx2.pmadd.ub.sw"), ("x86-64-v4", "avx512.pmaddubs.w.512")])
def test_pairs_are_added_up_in_int16_only_where_none_can_saturate(cpu: str, pairs: str) -> None:
    machine = Machine.of(TARGETS[cpu])
    any_byte = Interval.of(0, 255, (1, 2))
    for neighbours, fits in (((-64, 64), True), ((127, -127), True), ((64, 64), True), ((-64, -65), False)):
        weight = np.array([[*neighbours, 0]], np.int8)
        chosen = choose_dot("uint8", weight, "int32", machine, Pairs(any_byte))
        assert chosen.instruction.endswith(pairs) == fits
        assert choose_dot("uint8", weight, "int32", machine).depth == 2


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("dtype", "lo", "hi", "offset"),
    [
        ("uint8", 0, 129, 0),
        ("uint8", 0, 130, None),
        ("int8", 0, 127, 0),
        ("int8", -1, 113, 16),
        ("int8", -16, 113, 16),
        ("int8", -9, 114, None),
        ("int8", -8, 114, 8),
        ("int8", -2, 127, 2),
        ("int8", -3, 127, None),
        ("int8", -17, 97, 32),
        ("int8", -17, 98, None),
        ("int8", -33, 1, 128),
    ],
)
def test_what_data_reaches_decides_whether_pairs_may_saturate(
    cpu: str, dtype: str, lo: int, hi: int, offset: int | None
) -> None:
    """Two weights of 127, times what memory holds at most: 129 is the most that int16 takes."""
    machine, weight = Machine.of(TARGETS[cpu]), np.full((1, 4), 127, np.int8)
    dot = choose_dot(dtype, weight, "int32", machine, Pairs(Interval.of(lo, hi, (1, 4))))
    expected = ("int16", 0, 2) if offset is None else ("uint8", offset, 4)
    assert (dot.data, dot.offset, dot.depth) == expected


def test_neighbours_along_all_axes_but_the_channels_are_no_pairs() -> None:
    """Taps and output channels are multiplied by themselves; of channels each two that follow each other may be one."""
    machine, data = Machine.of(TARGETS["x86-64-v3"]), Interval.of(0, 255, (1, 4, 1, 1))
    weight = np.zeros((2, 4, 3, 1), np.int8)
    weight[:, 1] = 100
    assert choose_dot("uint8", weight, "int32", machine, Pairs(data)).depth == 4
    for neighbour in (0, 2):
        pair = weight.copy()
        pair[1, neighbour, 2] = 100
        assert choose_dot("uint8", pair, "int32", machine, Pairs(data)).depth == 2
    assert choose_dot("uint8", weight, "int32", machine, Pairs(data, are_neighbours=False)).depth == 2


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "cascadelake"])
def test_two_products_of_any_int16_are_a_dot(cpu: str) -> None:
    """Those of four factors of -2^15 leave 32 bits, but a sum that has them both is not proven to stay there."""
    assert choose_dot("int16", np.full((1, 4), -(2**15), np.int16), "int32", Machine.of(TARGETS[cpu])).depth == 2
    layer = Convolution(kernel=(1, 1), num_filter=1, no_bias=True)
    data, weight = (Interval.constant(np.full(shape, -(2**15))) for shape in ((1, 2, 1, 1), (1, 2, 1, 1)))
    assert [found.fits_int32 for found in layer.intermediates(data, weight)] == [False]


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


@pytest.mark.usefixtures("direct_sums")
def test_why_words_are_multiplied_is_told() -> None:
    layers = Layers()
    for lo, hi, dtype in ((0, 255, "uint8"), (-7, 4095, "int16")):
        given = layers.input(layers.integers((1, 16, 8, 8), dtype, lo, hi))
        layers.finish(layers.convolution(layers.hidden("clip", given, a_min=float(lo), a_max=float(hi)), 32, (3, 3)))
    for cpu, byte in (("cascadelake", "uint8 x int8"), ("x86-64-v3", "no exact dot of bytes in [0, 255]")):
        told = [call.products for call in explain(layers.graph(), (), TARGETS[cpu]).calls if call.products]
        assert ["since the data are int16 in [-7, 4095]" in each for each in told] == [False, True]
        assert byte in told[0]


def assembly(target: dict[str, Any], dtype: str, most: int = 127) -> str:
    """The machine code of one convolution with weights of such a magnitude, for a CPU that this machine need not be."""
    layers = Layers()
    data = layers.hidden("clip", layers.input(layers.integers((1, 16, 8, 8), dtype)), a_min=-1e4, a_max=1e4)
    weight = layers.parameter_of((32, 16, 3, 3), "int8", -most, most)
    attributes = {"kernel": (3, 3), "num_filter": 32, "no_bias": True}
    layers.add("relu", layers.hidden("Convolution", data, weight, **attributes))
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


@pytest.mark.usefixtures("direct_sums")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_weights_of_seven_bits_are_multiplied_as_bytes(cpu: str) -> None:
    assert {"vpmaddubsw", "vpmaddwd"} <= operations(assembly(TARGETS[cpu], "uint8", 63))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("cpu", "used"), [("neoverse-n1", "sdot"), ("cortex-a53", "smlal")])
def test_code_for_another_processor(cpu: str, used: str, dtype: str) -> None:
    """With dot products of bytes where it has them, else by widening multiplications."""
    found = operations(assembly({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu}, dtype))
    assert used in found
