"""Look-up tables compiled, against the record: bit for bit, alone and fused with what stands around them."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Bundle
from layers import assembly, runnable

from mrt.backend import TvmRunner
from mrt.backend.computes import table as table_compute
from mrt.symbol.parabolas import SEGMENTS, Frame, Parabolas, near_parabolas, parabolas_of

DTYPES = ("int8", "uint8", "int16", "int32")
RUNNERS = {cpu: TvmRunner({"mcpu": cpu}) for cpu in runnable()}
if "cascadelake" in RUNNERS:
    RUNNERS["slow gathers"] = TvmRunner({"mcpu": "cascadelake", "features": ["-fast-gather"]})


@pytest.mark.parametrize("cpu", RUNNERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_of_every_storage(dtype: str, cpu: str) -> None:
    """Of each shape entries of every other dtype, of the next CPU the others."""
    bundle, turn = Bundle(), list(RUNNERS).index(cpu)
    low, high = {"int8": (-128, 127), "uint8": (0, 255)}.get(dtype, (-3000, 2999))
    for number, shape in enumerate(((2, 3, 4, 5), (1, 99, 64), (1000,), (1,), (256,))):
        ends = np.resize([low, high], shape).astype(dtype)
        x = bundle.input(np.where(bundle.integers(shape) > 100, ends, bundle.integers(shape, dtype, low, high)))
        for entries in DTYPES[(number + turn) % 2 :: 2]:
            table = bundle.parameter(bundle.integers((high - low + 1,), entries))
            bundle.add("table_lookup", x, table, offset=-low)
    bundle.check(runner=RUNNERS[cpu])


@pytest.mark.parametrize("cpu", RUNNERS)
@pytest.mark.parametrize("entries", ["uint8", "int16"])
def test_tables_of_all_places(entries: str, cpu: str) -> None:
    """Of every int16, and of as many integers that only 32 bits hold."""
    bundle = Bundle()
    table = bundle.parameter(bundle.integers((65536,), entries))
    for dtype, first in (("int16", -32768), ("int32", 100_000), ("int32", -40_000)):
        x = bundle.input(np.arange(first, first + 65536).reshape(64, 1024).astype(dtype))
        held = bundle.hidden("clip", x, a_min=float(first), a_max=float(first + 65535))
        bundle.add("table_lookup", held, table, offset=-first)
    bundle.check(runner=RUNNERS[cpu])


def drawn_parabolas(dtype: str, ends: bool) -> Parabolas:
    """Of all places of 16 bits, by drawn numbers, or by the largest that are allowed."""
    random, most = np.random.default_rng(0), 2**14 - 1
    low, levels = {"uint8": (0, 256), "int8": (-128, 256), "int16": (-2048, 4096)}.get(dtype, (-(2**15), 2**16))
    rises, bends = (
        random.choice([-most, most], SEGMENTS) if ends else random.integers(-300, 300, SEGMENTS) for _ in range(2)
    )
    bases = random.integers(0, 2**16, SEGMENTS).astype(np.uint16)
    frame = Frame(0, 2**16 - 1, low, levels)
    return Parabolas(frame, bases, rises.astype(np.int16), bends.astype(np.int16))


@pytest.mark.parametrize("cpu", RUNNERS)
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("entries", DTYPES)
def test_tables_on_parabolas(monkeypatch: pytest.MonkeyPatch, entries: str, ends: bool, cpu: str) -> None:
    """Of every place, for vectors of all lengths, and where sums leave 16 bits.

    CPUs and entries take every other short length in turn. Where places of int16 are looked up in drawn numbers, those
    of int32 are in the largest, and so on in turn.
    """
    parabolas = drawn_parabolas(entries, ends)
    monkeypatch.setattr(table_compute, "parabolas_of", lambda _: parabolas)
    bundle = Bundle()
    table = bundle.parameter(parabolas.entries(2**16).astype(entries))
    firsts = ("int16", -(2**15)), ("int32", 100_000)
    turn, shapes = list(RUNNERS).index(cpu) + DTYPES.index(entries), ((1, 80), (3, 56), (5, 100), (7, 49), (2, 3, 8))
    for number, shape in enumerate(((64, 1024), *shapes[turn % 2 :: 2])):
        places = np.resize(np.arange(2**16), shape) if shape != (5, 100) else bundle.integers(shape, "int32", 0, 2**16)
        dtype, first = firsts[(number + ends) % 2]
        x = bundle.input((places + first).astype(dtype))
        held = bundle.hidden("clip", x, a_min=float(first), a_max=float(first + 2**16 - 1))
        bundle.add("table_lookup", held, table, offset=-first)
    bundle.check(runner=RUNNERS[cpu])


@pytest.mark.parametrize(("cpu", "used"), [("x86-64-v3", False), ("x86-64-v4", True), ("cascadelake", True)])
def test_which_registers_hold_parabolas(monkeypatch: pytest.MonkeyPatch, cpu: str, used: bool) -> None:
    parabolas = drawn_parabolas("int16", False)
    monkeypatch.setattr(table_compute, "parabolas_of", lambda _: parabolas)
    bundle = Bundle()
    table = bundle.parameter(parabolas.entries(2**16).astype(np.int16))
    bundle.add("table_lookup", bundle.input(bundle.integers((64, 64), "int16")), table, offset=2**15)
    assert ("vpmulhrsw" in assembly(bundle.graph(), {"mcpu": cpu, "threads": 1})) is used


@pytest.mark.parametrize("cpu", RUNNERS)
@pytest.mark.parametrize("filters", [16, 48, 64])
def test_smooth_tables_behind_layers(filters: int, cpu: str) -> None:
    """Which are found to lie on parabolas; of an even number of blocks two are looked up at once."""
    x = np.arange(-(2**15), 2**15) / 2**12
    steps = x / (1 + np.exp(-x)) * 500
    table = near_parabolas(steps, np.rint(steps).astype(np.int64))
    assert parabolas_of(table) is not None
    bundle = Bundle()
    for entries, by in (("int16", 0), ("uint8", 4), ("int32", 0)):
        data = bundle.input(bundle.integers((1, 24, 5, 8), "int16", -300, 300))
        weight = bundle.parameter(bundle.integers((filters, 24, 1, 1), "int8"))
        value = bundle.hidden("Convolution", data, weight, kernel=(1, 1), num_filter=filters, no_bias=True)
        value = bundle.hidden("right_shift", value, bundle.parameter(np.full((1, filters, 1, 1), 3, np.int8)))
        value = bundle.hidden("Cast", bundle.hidden("clip", value, a_min=-(2.0**15), a_max=2.0**15 - 1), dtype="int16")
        made = ((table - table.min()) >> by if by else table).astype(entries)
        bundle.add("table_lookup", value, bundle.parameter(made), offset=2**15)
    bundle.check(runner=RUNNERS[cpu])


@pytest.mark.parametrize("cpu", RUNNERS)
def test_tables_behind_an_odd_number_of_blocks(cpu: str) -> None:
    """Whose sums would be read in pairs that overlap, were nothing looked up."""
    bundle = Bundle()
    for entries in ("uint8", "int16", "int32"):
        x = bundle.input(bundle.integers((1, 24, 5, 8), "int16", -300, 300))
        weight = bundle.parameter(bundle.integers((48, 24, 1, 1), "int8"))
        value = bundle.hidden("Convolution", x, weight, kernel=(1, 1), num_filter=48, no_bias=True)
        value = bundle.hidden("right_shift", value, bundle.parameter(np.full((1, 48, 1, 1), 6, np.int8)))
        value = bundle.hidden("Cast", bundle.hidden("clip", value, a_min=-2000, a_max=2000), dtype="int16")
        bundle.add("table_lookup", value, bundle.parameter(bundle.integers((4001,), entries)), offset=2000)
    bundle.check(runner=RUNNERS[cpu])


def test_tables_between_other_operators() -> None:
    bundle = Bundle()
    x = bundle.input(bundle.integers((1, 8, 12, 12), "int8"))
    weight = bundle.parameter(bundle.integers((16, 8, 3, 3), "int8"))
    table = bundle.parameter(bundle.integers((256,), "int8"))
    value = bundle.hidden("Convolution", x, weight, kernel=(3, 3), num_filter=16, no_bias=True)
    shift = bundle.parameter(np.full((1, 16, 1, 1), 10, np.int8))
    value = bundle.hidden("right_shift", value, shift)
    value = bundle.hidden("Cast", bundle.hidden("clip", value, a_min=-128, a_max=127), dtype="int8")
    value = bundle.hidden("table_lookup", value, table, offset=128)
    value = bundle.hidden("elemwise_add", value, value)
    bundle.add(
        "relu", bundle.hidden("table_lookup", bundle.hidden("Cast", value, dtype="int16"), table_of(bundle), offset=256)
    )
    rows = bundle.input(bundle.integers((5, 64), "uint8"))
    matrix = bundle.parameter(bundle.integers((10, 64), "int8"))
    found = bundle.hidden("table_lookup", rows, table)
    bundle.add("FullyConnected", found, matrix, num_hidden=10, no_bias=True)
    bundle.check()


def table_of(bundle: Bundle) -> object:
    return bundle.parameter(bundle.integers((512,), "int16"))


@pytest.mark.parametrize("cpu", RUNNERS)
def test_tables_behind_each_other(cpu: str) -> None:
    """What compilers take to follow the places does not grow with each table."""
    bundle = Bundle()
    x = bundle.input(bundle.integers((1, 42, 32), "int8", -128, 127))
    for _ in range(8):
        x = bundle.hidden("table_lookup", x, bundle.parameter(bundle.integers((256,), "int8", -128, 127)), offset=128)
    for length in (256, 54):
        places = bundle.hidden("clip", x, a_min=-128.0, a_max=float(length - 129))
        table = bundle.parameter(bundle.integers((length,), "int32", -(2**31), 2**31 - 1))
        bundle.add("table_lookup", places, table, offset=128)
    bundle.check(runner=RUNNERS[cpu])
