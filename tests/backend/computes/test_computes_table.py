"""Look-up tables compiled, against the record: bit for bit, alone and fused with what stands around them."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Bundle

DTYPES = ("int8", "uint8", "int16", "int32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_of_every_storage(dtype: str) -> None:
    bundle = Bundle()
    low, high = {"int8": (-128, 127), "uint8": (0, 255)}.get(dtype, (-3000, 2999))
    for shape in ((2, 3, 4, 5), (1, 99, 64), (1000,), (1,), (256,)):
        ends = np.resize([low, high], shape).astype(dtype)
        x = bundle.input(np.where(bundle.integers(shape) > 100, ends, bundle.integers(shape, dtype, low, high)))
        for entries in DTYPES:
            table = bundle.parameter(bundle.integers((high - low + 1,), entries))
            bundle.add("table_lookup", x, table, offset=-low)
    bundle.check()


def test_a_table_of_65536_entries() -> None:
    bundle = Bundle()
    x = bundle.input(np.arange(-32768, 32768).reshape(64, 1024).astype(np.int16))
    bundle.add("table_lookup", x, bundle.parameter(bundle.integers((65536,), "int16")), offset=32768)
    bundle.check()


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
