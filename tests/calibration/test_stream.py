"""A stream of batches gives the same chunks however it is cut, or one clear error."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrt.calibration.stream import chunks
from mrt.errors import DataError
from mrt.symbol import TensorType, variable

A, B = variable("a", TensorType((1, 2, 3))), variable("b", TensorType((1,), "int32"))
DATA = {"a": np.arange(66, dtype=np.float32).reshape(11, 2, 3), "b": np.arange(11)}


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 11), max_size=5), length=st.integers(1, 13), limit=st.integers(1, 15))
def test_chunks(cuts, length: int, limit: int) -> None:
    bounds = [0, *sorted(cuts), 11]
    batches = [{k: v[a:b] for k, v in DATA.items()} for a, b in pairwise(bounds)]
    found = list(chunks(batches, [A, B], length, limit))
    total = min(limit, 11)
    assert [c.first for c in found] == list(range(0, total, length))
    assert sum(c.count for c in found) == total
    for chunk in found:
        for name, value in DATA.items():
            expected = value[np.minimum(np.arange(chunk.first, chunk.first + length), total - 1)]
            np.testing.assert_array_equal(chunk.arrays[name], expected)
    assert found[0].arrays["b"].dtype == np.int32


def test_reads_no_further_than_needed() -> None:
    def endless():
        for _ in range(3):
            yield {k: v[:4] for k, v in DATA.items()}
        raise AssertionError("read on")

    assert sum(c.count for c in chunks(endless(), [A, B], 5, 12)) == 12


def test_one_array_for_one_input() -> None:
    for given_ in (DATA["a"], [DATA["a"]], {"a": DATA["a"]}, iter([DATA["a"][:3], DATA["a"][3:]])):
        assert sum(c.count for c in chunks(given_, [A], 4, None)) == 11


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"a": DATA["a"]}, r"batch 0 lacks the array b; arrays for \['a', 'b'\] are needed"),
        ({**DATA, "c": DATA["b"]}, "holds c, which is no input"),
        ({**DATA, "a": DATA["a"][0]}, r"input a has rank 2.*\(N, 2, 3\) is needed"),
        ({**DATA, "a": DATA["a"][:, :1]}, r"input a has shape \(11, 1, 3\); \(N, 2, 3\) is needed"),
        ({**DATA, "b": DATA["b"][:5]}, "different numbers of samples"),
        ({**DATA, "b": DATA["b"] * 0.5}, "input b is float64; int32 is needed"),
        ({**DATA, "b": DATA["b"] + 2**40}, "overflows int32"),
        ({**DATA, "a": DATA["a"].astype(str)}, "input a is <U32"),
        (DATA["a"], "is one array; arrays by name"),
        ({**DATA, "a": np.where(DATA["b"][:, None, None] == 7, np.nan, DATA["a"])}, "input a .*nan in .*sample 7"),
        (
            {**DATA, "a": np.where(DATA["b"][:, None, None] == 9, 1e300, DATA["a"].astype(float))},
            "input a .*inf in .*sample 9",
        ),
    ],
)
def test_unusable_data(batch, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(chunks([batch], [A, B], 4, None))


@pytest.mark.parametrize("batches", [[], [{k: v[:0] for k, v in DATA.items()}]])
def test_no_samples(batches) -> None:
    with pytest.raises(DataError, match="no samples"):
        list(chunks(batches, [A, B], 4, None))
