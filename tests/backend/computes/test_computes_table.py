"""Look-up tables compiled, against the record: bit for bit, alone and fused with what stands around them."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Bundle
from layers import runnable

from mrt.backend import TvmRunner

DTYPES = ("int8", "uint8", "int16", "int32")
RUNNERS = {cpu: TvmRunner({"mcpu": cpu}) for cpu in runnable()}
if "cascadelake" in RUNNERS:
    RUNNERS["slow gathers"] = TvmRunner({"mcpu": "cascadelake", "features": ["-fast-gather"]})


@pytest.mark.parametrize("cpu", RUNNERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_of_every_storage(dtype: str, cpu: str) -> None:
    bundle = Bundle()
    low, high = {"int8": (-128, 127), "uint8": (0, 255)}.get(dtype, (-3000, 2999))
    for shape in ((2, 3, 4, 5), (1, 99, 64), (1000,), (1,), (256,)):
        ends = np.resize([low, high], shape).astype(dtype)
        x = bundle.input(np.where(bundle.integers(shape) > 100, ends, bundle.integers(shape, dtype, low, high)))
        for entries in DTYPES:
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
