"""Graph files: a round trip of every dtype, clear errors, and writes that leave nothing half done."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mrt.errors import GraphError, ModelFileError
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.files import (
    atomic_write_all,
    graph_to_bytes,
    indented_json,
    read_file,
    read_graph,
    write_graph,
)
from mrt.symbol.operators.activation import Relu

VALUES = {
    "float32": np.array([[0.1, -np.inf], [1e30, -0.0]], np.float32),
    "int8": np.array([-128, 127], np.int8),
    "uint8": np.array([0, 255], np.uint8),
    "int16": np.array([-(2**15)], np.int16),
    "int32": np.array([[[-(2**31)]]], np.int32),
    "int64": np.array([2**63 - 1], np.int64),
    "bool": np.array([True, False]),
    "scalar": np.array(7, np.int32),
    "empty": np.zeros((0, 3), np.int8),
    "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "ünusual / name\n": np.array([1.5], np.float32),
}


def sample_graph() -> Graph:
    builder = GraphBuilder()
    data = builder.input("data", TensorType((1, 2)))
    outputs = [builder.parameter(name, value, origin="data") for name, value in VALUES.items()]
    return builder.graph([builder.apply(Relu(), [data], "relu"), *outputs])


def test_round_trip(tmp_path: Path) -> None:
    graph = sample_graph()
    write_graph(graph, tmp_path / "graph.json", tmp_path / "params.safetensors")
    again = read_graph(tmp_path / "graph.json", str(tmp_path / "params.safetensors"))
    assert str(again) == str(graph)
    for name, value in VALUES.items():
        np.testing.assert_array_equal(again.parameters[name], value, strict=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.json", "params.safetensors"]


def test_the_same_graph_gives_the_same_bytes_in_every_process() -> None:
    code = "from test_files import *; print(graph_to_bytes(sample_graph()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    written = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(written) == 1


@pytest.mark.parametrize("name", ["graph.json", "params.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "binary"])
def test_damaged_files_are_named(tmp_path: Path, name: str, damage: str) -> None:
    write_graph(sample_graph(), tmp_path / "graph.json", tmp_path / "params.safetensors")
    path = tmp_path / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "truncated": content[: len(content) // 2], "binary": b"\xff\xfe" * 40}[damage])
    with pytest.raises(ModelFileError, match=name):
        read_graph(tmp_path / "graph.json", tmp_path / "params.safetensors")


def test_a_missing_parameter_is_named(tmp_path: Path) -> None:
    write_graph(sample_graph(), tmp_path / "graph.json", tmp_path / "params.safetensors")
    builder = GraphBuilder()
    none = builder.graph([builder.input("data", TensorType((1, 2)))])
    write_graph(none, tmp_path / "none.json", tmp_path / "params.safetensors")
    with pytest.raises(ModelFileError, match=r"graph.json: parameter .* is missing; float32\[2, 2\] is needed"):
        read_graph(tmp_path / "graph.json", tmp_path / "params.safetensors")


def test_the_name_that_safetensors_reserves_is_refused() -> None:
    builder = GraphBuilder()
    with pytest.raises(GraphError, match="reserves"):
        graph_to_bytes(builder.graph([builder.parameter("__metadata__", np.zeros(1, np.float32))]))


@pytest.mark.parametrize("length", [0, 1, 4095, 4096])
def test_a_file_is_read_whole_up_to_the_limit(tmp_path: Path, length: int) -> None:
    path, content = tmp_path / "file", os.urandom(length)
    path.write_bytes(content)
    (tmp_path / "link").symlink_to(path)
    assert read_file(path, length) == read_file(path, 2**40) == content
    assert read_file(tmp_path / "link", length, follow=True) == content
    with pytest.raises(ModelFileError, match="it is a link; a regular file is needed"):
        read_file(tmp_path / "link", length)
    if length:
        with pytest.raises(ModelFileError, match=rf"file holds {length} bytes; at most {length - 1} are read"):
            read_file(path, length - 1)


def socket_at(path: Path) -> None:
    """It outlives what made it."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (os.mkfifo, "is a named pipe; a regular file is needed"),
        (Path.mkdir, "is a folder; a regular file is needed"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device; a regular file is needed"),
        (socket_at, "cannot read .*No such device"),
        (lambda path: path.symlink_to("absent"), "cannot read .*No such file"),
        (lambda path: None, "cannot read .*No such file"),
    ],
)
@pytest.mark.usefixtures("soon")
def test_what_is_no_regular_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], None], said: str
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    made(Path("place"))
    with pytest.raises(ModelFileError, match=said):
        read_file(Path("place"), 100, follow=True)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, status = tmp_path / "file", os.fstat
    path.write_bytes(b"old")

    def late(descriptor: int) -> os.stat_result:
        found = status(descriptor)
        path.write_bytes(b"longer")
        return found

    monkeypatch.setattr("mrt.symbol.files.os.fstat", late)
    with pytest.raises(ModelFileError, match="was changed while it was read"):
        read_file(path, 100)


def test_a_write_replaces_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write_all({path: b"old"})
    atomic_write_all({path: b"new"})
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "file"
    atomic_write_all({path: b"old"})

    def fail(descriptor: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ModelFileError if isinstance(error, OSError) else KeyboardInterrupt) as raised:
        atomic_write_all({path: b"new"})
    if isinstance(error, OSError):
        assert str(raised.value) == f"cannot write {path}: No space left on device"
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_several_files_are_written_all_or_none(tmp_path: Path) -> None:
    """Also where the last one's place is taken by a folder."""
    (tmp_path / "second").mkdir()
    with pytest.raises(ModelFileError, match="cannot write .*second: Is a directory"):
        atomic_write_all({tmp_path / "first": b"1", tmp_path / "second": b"2"})
    assert [entry.name for entry in tmp_path.iterdir()] == ["second"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot write .*absent"):
        atomic_write_all({tmp_path / "absent" / "file": b""})
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelFileError, match="Not a directory"):
        atomic_write_all({tmp_path / "file" / "inside": b""})


@pytest.mark.parametrize(
    "value",
    [
        *({}, [], 'a"é\n', 0.1, None, True, -(2**63)),
        {"a": [], "b": {}, "ü, \n": {"c": [1, "x,\n y", [2.5, [None]], {"d": ()}]}},
        [[[1e-300, float("inf")], [0.1]], (1, 2)],
    ],
)
def test_json_is_that_of_the_standard_library(value: object) -> None:
    assert indented_json(value) == json.dumps(value, indent=1)


@pytest.mark.parametrize("shape", [(), (3,), (1, 4, 1, 1), (2, 1, 3), (0, 2)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_arrays_are_written_as_their_lists(shape: tuple[int, ...], dtype: str) -> None:
    array = np.asarray(np.random.default_rng(0).standard_normal(shape) * 1e5, dtype)
    assert indented_json({"x": [array]}) == json.dumps({"x": [array.tolist()]}, indent=1)
