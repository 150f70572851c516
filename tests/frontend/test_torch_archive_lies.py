"""Archives of torch.export.save that are damaged or lie about their parameters: one MRTError."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import bounded
from hypothesis import given
from hypothesis import strategies as st
from torch_archives import PROGRAM, WEIGHTS, changed, edited, records_of
from torch_programs import random

import mrt
from mrt.errors import GraphError, ModelFileError, MRTError
from mrt.frontend.torch.archive import read_archive

torch = pytest.importorskip("torch")
nn = torch.nn


def lying_sizes(config: Any) -> None:
    config["config"]["conv.weight"]["tensor_meta"]["sizes"][0]["as_int"] = 2**40


def lying_strides(config: Any) -> None:
    config["config"]["conv.weight"]["tensor_meta"]["strides"][0]["as_int"] = 2**40


def negative_sizes(config: Any) -> None:
    config["config"]["conv.weight"]["tensor_meta"]["sizes"][0]["as_int"] = -4


def large_empty(config: Any) -> None:
    config["config"]["none"]["tensor_meta"]["sizes"][1]["as_int"] = 2**50


def other_shape(config: Any) -> None:
    meta = config["config"]["conv.weight"]["tensor_meta"]
    meta["sizes"], meta["strides"] = meta["sizes"][::-1], meta["strides"][::-1]


def no_parameter(config: Any) -> None:
    del config["config"]["conv.weight"]


def no_record(config: Any) -> None:
    config["config"]["conv.weight"]["path_name"] = "weight_99"


def outside(config: Any) -> None:
    config["config"]["conv.weight"]["path_name"] = "../../weight_0"


def other_dtype(config: Any) -> None:
    config["config"]["conv.weight"]["tensor_meta"]["dtype"] = 10


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (lying_sizes, r"conv.weight of shape \(1099511627776, 3, 3, 3\) has 108 elements stored"),
        (lying_strides, "conv.weight of shape .* has 108 elements stored"),
        (negative_sizes, r"conv.weight has sizes \[-4, 3, 3, 3\]"),
        (large_empty, r"the buffer none has shape \(0, 1125899906842624\), the program says \(0, 4\)"),
        (other_shape, r"the parameter conv.weight has shape \(3, 3, 3, 4\), the program says \(4, 3, 3, 3\)"),
        (no_parameter, "the parameter conv.weight is missing"),
        (no_record, "the values of conv.weight are missing"),
        (outside, "conv.weight is stored as a pickle"),
        (other_dtype, "conv.weight has dtype number 10"),
    ],
)
def test_a_lie_about_a_parameter_is_one_error(
    lie: Callable[[Any], None], message: str, saved: Path, tmp_path: Path
) -> None:
    path = changed(saved, tmp_path / "lie.pt2")(lambda records: edited(records, WEIGHTS, lie))
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=message):
            mrt.load_model(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (PROGRAM, b"[" * 100_000, "no whole archive"),
        (PROGRAM, b"{", "no whole archive"),
        (PROGRAM, b"[]", "is no object"),
        (PROGRAM, b"{}", "its lists are not as torch.export.save writes them"),
        (PROGRAM, b"\xff", "no whole archive"),
        (PROGRAM, None, "models/model.json is needed"),
        (WEIGHTS, None, "it has no data/weights/model_weights_config.json"),
        (WEIGHTS, b'{"config": {"x": 3}}', "its lists are not as"),
        ("archive_format", None, "is a zip archive, but none of torch.export.save"),
        ("archive_format", b"other", "an archive of another version"),
        ("byteorder", b"big", "another byte order"),
    ],
)
def test_a_record_that_is_damaged_or_missing_is_one_error(
    name: str, content: bytes | None, message: str, saved: Path, tmp_path: Path
) -> None:
    def damage(records: dict[str, bytes]) -> None:
        if content is None:
            del records[name]
        else:
            records[name] = content

    path = changed(saved, tmp_path / "damaged.pt2")(damage)
    with pytest.raises(ModelFileError, match=message):
        mrt.load_model(path)


def test_a_program_of_another_schema_is_refused(saved: Path, tmp_path: Path) -> None:
    path = changed(saved, tmp_path / "schema.pt2")(
        lambda records: edited(records, PROGRAM, lambda program: program["schema_version"].update(major=9))
    )
    with pytest.raises(ModelFileError, match="has schema version 9; 8 is read"):
        mrt.load_model(path)


def test_a_program_that_torch_does_not_read_is_one_error(saved: Path, tmp_path: Path) -> None:
    def cycle(program: Any) -> None:
        nodes = program["graph_module"]["graph"]["nodes"]
        nodes.reverse()

    path = changed(saved, tmp_path / "cycle.pt2")(lambda records: edited(records, PROGRAM, cycle))
    with pytest.raises(ModelFileError, match="torch does not read the program"):
        mrt.load_model(path)


def test_other_archives_are_told_apart(tmp_path: Path) -> None:
    weights, script, plain = (tmp_path / name for name in ("weights.pt", "script.pt", "plain.zip"))
    torch.save(nn.Linear(2, 2).state_dict(), weights)
    with pytest.raises(ModelFileError, match="holds a pickle of torch.save, which is never loaded"):
        mrt.load_model(weights)
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), random(1, 2)), str(script))
    with pytest.raises(ModelFileError, match="holds a TorchScript module"):
        mrt.load_model(script)
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("a/b.txt", "text")
    with pytest.raises(ModelFileError, match="is a zip archive, but none of torch.export.save"):
        mrt.load_model(plain)
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
    with pytest.raises(ModelFileError, match="written by torch before 2.8"):
        mrt.load_model(plain)


def test_a_compressed_archive_is_refused_before_it_is_unpacked(saved: Path, tmp_path: Path) -> None:
    path = changed(saved, tmp_path / "bomb.pt2", compression=zipfile.ZIP_DEFLATED)(
        lambda records: records.update({PROGRAM: b" " * 50_000_000})
    )
    assert path.stat().st_size < 1_000_000
    with bounded(16), pytest.raises(ModelFileError, match="its records are compressed"):
        mrt.load_model(path)


def test_a_file_that_ends_early_or_is_none_is_one_error(saved: Path, tmp_path: Path) -> None:
    content, path = saved.read_bytes(), tmp_path / "short.pt2"
    for length in (4, 30, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match="short.pt2 is no whole archive of torch.export.save"):
            mrt.load_model(path)
    path.write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(ModelFileError, match="is a zip archive, but none"):
        mrt.load_model(path)
    for wrong, message in ((tmp_path, "is a folder"), (tmp_path / "none.pt2", "does not exist")):
        with pytest.raises(ModelFileError, match=message):
            mrt.from_torch(wrong)


def test_a_bit_that_fell_is_noticed(saved: Path, tmp_path: Path) -> None:
    content, path = bytearray(saved.read_bytes()), tmp_path / "fallen.pt2"
    place = content.index(records_of(saved)["data/weights/weight_0"])
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="Bad CRC-32"):
        mrt.load_model(path)


def test_shapes_of_inputs_are_those_of_the_file(saved: Path) -> None:
    with pytest.raises(GraphError, match=r"input x: the shape \(1, 3, 6, 7\) is given; the file needs "):
        mrt.load_model(saved, shapes={"x": (1, 3, 6, 7)})


@given(changes=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=8))
def test_whatever_bytes_change_it_is_the_archive_or_an_error(
    changes: list[tuple[int, int]], saved: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(saved.read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    path = tmp_path_factory.getbasetemp() / "fuzzed.pt2"
    path.write_bytes(content)
    try:
        rewritten = read_archive(path)
    except MRTError as error:
        assert "\n" not in str(error)
        return
    assert rewritten == read_archive(saved)
