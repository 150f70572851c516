"""Parameter files: every layout and dtype, files of real MXNet, and what is damaged."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet_files import LAYOUTS, params_file, random, record, write_params

from mrt.errors import ModelFileError, MRTError
from mrt.frontend.mxnet.params import read_params

DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_dtype(layout: str) -> None:
    arrays = {f"arg:{dtype}": (random(2, 3) * 9).astype(dtype) for dtype in DTYPES}
    arrays["aux:größe 'w'"] = random(4)
    read = read_params(write_params(arrays, layout), "f")
    assert [*read] == [name[4:] for name in arrays]
    for name, array in arrays.items():
        assert read[name[4:]].dtype == array.dtype
        np.testing.assert_array_equal(read[name[4:]], array)


def test_bfloat16_is_float32() -> None:
    array = np.array([1.5, -(2.0**100), 0.0], np.float32)
    bits = (array.view(np.uint32) >> 16).astype("<u2")
    read = read_params(params_file([record((3,), bits.tobytes(), 12)], ["a"]), "f")["a"]
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, array)


def test_scalars_and_missing_arrays() -> None:
    """Rank 0 is one number in V3 and no array elsewhere; rank -1 is none in V3."""
    scalar = record((), np.float32(2.5).tobytes(), layout="V3")
    none = struct.pack("<Iii", LAYOUTS["V2"] or 0, 0, 0)
    none_v3 = struct.pack("<Iii", LAYOUTS["V3"] or 0, 0, -1)
    read = read_params(params_file([scalar, none, none_v3, record((), b"")[:12]], ["s", "n", "m", "o"]), "f")
    assert read["s"].shape == () and read["s"] == 2.5
    assert read["n"].size == read["m"].size == read["o"].size == 0


def test_files_of_mxnet(data_folder: Path) -> None:
    folder = data_folder / "mxnet" / "params_variety"
    expected: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    with np.load(folder / "expected.npz") as stored:
        for key in stored.files:
            file, name = key.replace("\\", "/").split("|", 1)
            expected.setdefault(file, {})[name.removeprefix("arg:").removeprefix("aux:")] = stored[key]
    for file in ("v0_handwritten", "v1_handwritten", "v2_dtypes", "v3_npshape"):
        read = read_params((folder / f"{file}.params").read_bytes(), file)
        assert read.keys() == expected[f"{file}.params"].keys()
        for name, array in read.items():
            assert array.dtype == expected[f"{file}.params"][name].dtype
            np.testing.assert_array_equal(array, expected[f"{file}.params"][name])
    assert read_params((folder / "empty.params").read_bytes(), "empty") == {}
    with pytest.raises(ModelFileError, match=r"v2_sparse holds sparse .*: .*rs \(row_sparse\), .*csr \(csr\); store"):
        read_params((folder / "v2_sparse.params").read_bytes(), "v2_sparse")
    with pytest.raises(ModelFileError, match="holds 2 arrays without names"):
        read_params((folder / "v2_unnamed_list.params").read_bytes(), "unnamed")


ONE = record((2,), bytes(8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no MXNet parameter file"),
        (b"PK\x03\x04 a zip file", "is no MXNet parameter file"),
        (params_file([ONE], ["a"]) + b"\0", "has 1 bytes after its end"),
        (params_file([ONE, ONE], ["arg:a", "aux:a"]), "two arrays called a"),
        (params_file([ONE, ONE], ["a"]), "holds 2 arrays, but 1 names"),
        (params_file([ONE], ["a"], (2**63, 1)), f"holds {2**63} arrays, but ends before"),
        (params_file([ONE], ["a"], (1, 2**63)), f"holds {2**63} names, but ends before"),
        (params_file([record((2**40,), bytes(8))], ["a"]), "is truncated"),
        (params_file([record((2**31, 2**31, 2**31), bytes(8))], ["a"]), "is truncated"),
        (params_file([record((0, 2**62), b"")], ["a"]), "array 0 has shape .*which no array can have"),
        (params_file([record((-2,), bytes(8))], ["a"]), r"array 0 has shape \(-2,\)"),
        (params_file([record((1,) * 33, bytes(4))], ["a"]), "array 0 has rank 33"),
        (params_file([record((2,), bytes(8), 99)], ["a"]), "array 0 has dtype 99"),
        (params_file([record((2,), bytes(8), storage=3)], ["a"]), "array 0 has storage type 3"),
        (params_file([b"\xff" * 24], ["a"]), "begins with 0xffffffff, which is no layout"),
        (params_file([ONE], ["a"])[:-1] + b"\xff", "name 0 is no UTF-8 text"),
    ],
)
def test_damaged_files_are_one_clear_error(content: bytes, message: str) -> None:
    """At once, and without the memory that a header asks for."""
    tracemalloc.start()
    started = time.perf_counter()
    with pytest.raises(ModelFileError, match=message) as caught:
        read_params(content, "model.params")
    assert time.perf_counter() - started < 60  # a hang, on any machine
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert str(caught.value).startswith("model.params") and "\n" not in str(caught.value)


def test_every_truncation_is_an_error() -> None:
    content = write_params({"arg:a": random(2, 3), "b": np.arange(3, dtype=np.int8)})
    for length in range(len(content)):
        with pytest.raises(ModelFileError):
            read_params(content[:length], "f")


SMALL = write_params({"arg:weight": random(2, 3), "aux:mean": np.arange(2, dtype=np.int8)})


@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=6), st.binary(max_size=8))
def test_mutated_files_give_arrays_or_an_error_of_ours(changes: list[tuple[int, int]], inserted: bytes) -> None:
    content = bytearray(SMALL)
    for place, value in changes:
        content[place] = value
    if changes:
        content[changes[0][0] : changes[0][0]] = inserted
    try:
        read_params(bytes(content), "f")
    except MRTError as error:
        assert str(error)
