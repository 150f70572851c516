"""Archives of torch.export.save: read as the program that was saved, without running anything that a file may hold."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_programs import compare, export, random, randomized

import mrt
from mrt.errors import GraphError, ModelFileError, MRTError, UnsupportedOperatorError
from mrt.frontend.torch.archive import read_archive

torch = pytest.importorskip("torch")
nn = torch.nn

PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"


class Network(nn.Module):
    """A little of all: parameters, of which one is a part of another, statistics, constants."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = randomized(nn.BatchNorm2d(4))
        self.linear = nn.Linear(4, 3)
        self.register_buffer("scale", random(3), persistent=False)
        self.register_buffer("none", torch.zeros(0, 4))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        with torch.no_grad():
            y = self.linear(y) * self.scale
        return y + torch.tensor([1.0, 2, 3]), y.argmax(1)


NETWORK = Network().eval()
IMAGES = random(2, 3, 6, 6)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "network.pt2"
    torch.export.save(export(NETWORK, IMAGES, dynamic_shapes=({0: torch.export.Dim("batch")},)), path)
    return path


def records_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def changed(path: Path, target: Path, **options: Any) -> Callable[[Callable[[dict[str, bytes]], None]], Path]:
    """Writes an archive whose records were changed in place by a function."""

    def write(change: Callable[[dict[str, bytes]], None]) -> Path:
        records = records_of(path)
        change(records)
        with zipfile.ZipFile(target, "w", **options) as archive:
            for name, content in records.items():
                archive.writestr(f"network/{name}", content)
        return target

    return write


def edited(records: dict[str, bytes], name: str, edit: Callable[[Any], None]) -> None:
    """Edits a record that is JSON."""
    document = json.loads(records[name])
    edit(document)
    records[name] = json.dumps(document).encode()


# Files as they are


def test_a_saved_program_is_read_as_the_program(saved: Path) -> None:
    graph = mrt.load_model(saved, batch=2)
    compare(graph, NETWORK, IMAGES)
    program = export(NETWORK, IMAGES, dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert str(mrt.from_torch(program, 2)) == str(graph)
    assert str(mrt.from_torch(saved, 2)) == str(graph)
    assert mrt.load_model(saved, batch=5).inputs[0].shape == (5, 3, 6, 6)


def test_the_content_tells_the_format(saved: Path, tmp_path: Path) -> None:
    for name in ("network.onnx", "network", "network.tflite"):
        path = tmp_path / name
        path.write_bytes(saved.read_bytes())
        assert len(mrt.load_model(path).outputs) == 2


def test_parameters_that_share_storage_are_read(tmp_path: Path) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = random(6, 4)
            self.first, self.last = nn.Parameter(whole[:3]), nn.Parameter(whole[2:].T)

        def forward(self, x: Any) -> Any:
            return x @ self.first.T @ self.first @ self.last

    model, path = Shared(), tmp_path / "shared.pt2"
    torch.export.save(export(model, random(2, 4)), path)
    compare(mrt.load_model(path), model, random(2, 4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_weights_of_other_floats_are_read(dtype: str, tmp_path: Path) -> None:
    model, x = nn.Linear(4, 3).to(getattr(torch, dtype)), random(2, 4).to(getattr(torch, dtype))
    path = tmp_path / "model.pt2"
    torch.export.save(export(model, x), path)
    found = mrt.load_model(path).evaluate({"input": x.float().numpy()})[0]
    np.testing.assert_allclose(found, model.float()(x.float()).detach().numpy(), rtol=1e-6, atol=1e-6)


def test_weights_of_another_device_are_read_on_this_one(saved: Path, tmp_path: Path) -> None:
    def move(records: dict[str, bytes]) -> None:
        for name in (PROGRAM, WEIGHTS):
            records[name] = records[name].replace(b'"type": "cpu", "index": null', b'"type": "cuda", "index": 0')

    path = changed(saved, tmp_path / "cuda.pt2")(move)
    assert b"cuda" in records_of(path)[WEIGHTS]
    compare(mrt.load_model(path, batch=2), NETWORK, IMAGES)


# Files that would run something


class Bomb:
    """What runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def pickled(path: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save((Bomb(path),), buffer)
    return buffer.getvalue()


def test_sample_inputs_are_not_unpickled(saved: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    def plant(records: dict[str, bytes]) -> None:
        records["data/sample_inputs/model.pt"] = pickled(ran)

    path = changed(saved, tmp_path / "bomb.pt2")(plant)
    compare(mrt.load_model(path, batch=2), NETWORK, IMAGES)
    assert not ran.exists()
    with contextlib.suppress(Exception):
        torch.export.load(path)
    assert ran.exists(), "torch does not run what the file holds: the test proves nothing"


def test_weights_are_not_unpickled(saved: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    def plant(records: dict[str, bytes]) -> None:
        records["data/weights/weight_0"] = pickled(ran)
        edited(records, WEIGHTS, lambda config: next(iter(config["config"].values())).update(use_pickle=True))

    path = changed(saved, tmp_path / "bomb.pt2")(plant)
    with pytest.raises(ModelFileError, match=r"conv.weight is stored as a pickle, which is never loaded"):
        mrt.load_model(path)
    assert not ran.exists()


def test_constants_are_not_unpickled(saved: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    def plant(records: dict[str, bytes]) -> None:
        records["data/constants/opaque_obj_0"] = pickle.dumps(Bomb(ran))
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        edited(records, "data/constants/model_constants_config.json", lambda config: config["config"].update(x=entry))

    with pytest.raises(ModelFileError, match="x is stored as a pickle"):
        mrt.load_model(changed(saved, tmp_path / "bomb.pt2")(plant))
    assert not ran.exists()


def everywhere(document: Any, key: str, value: Any) -> None:
    """Puts a value in the first place of a key."""
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if key in item and isinstance(item[key], str):
                item[key] = value
                return
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    raise AssertionError(f"no {key}")


CODE = "__import__('os').mkdir('ran')"
CONTAINER = json.dumps([1, {"type": "collections.defaultdict", "context": "{}", "children_spec": []}])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("expr_str", CODE, "a size in the program is .* arithmetic on sizes of inputs is needed"),
        ("expr_str", "Pow(Integer(9), Pow(Integer(9), Integer(9)))", "a size in the program is 'Pow"),
        ("expr_str", "Add(" * 600, "a size in the program is 'Add"),
        ("name", f"x):\n {CODE} #", "a name in the program is .* letters, digits and _ is needed"),
        ("name", "x, y", "a name in the program is"),
        ("parameter_name", f'x"{CODE}', "a text in the program is"),
        ("in_spec", CONTAINER, "the type of an input or output in the program is 'collections.defaultdict'"),
        ("in_spec", "[2, {}]", "the version of a tree of inputs in the program is '2'"),
        ("in_spec", "[", "no whole archive"),
    ],
)
def test_text_that_torch_would_run_is_refused(key: str, value: str, message: str, saved: Path, tmp_path: Path) -> None:
    path = changed(saved, tmp_path / "code.pt2")(
        lambda records: edited(records, PROGRAM, lambda program: everywhere(program, key, value))
    )
    with pytest.raises(ModelFileError, match=message):
        mrt.load_model(path)


@pytest.mark.parametrize(
    "target",
    [
        *("torch.hub.load", "torch.load", "_operator.call", "_operator.methodcaller", "math.trunc", "#other:thing"),
        *("torch.ops.aten.from_file.default", "torch.ops.aten.__class__.mro", "torch.ops.other.relu.default"),
        *("torch.ops.higher_order.cond", "torch.ops.aten.relu.__class__", "torch.ops.aten.relu", "os.system"),
    ],
)
def test_what_is_no_operator_of_pytorch_is_refused_by_name(target: str, saved: Path, tmp_path: Path) -> None:
    def replace(program: Any) -> None:
        for node in program["graph_module"]["graph"]["nodes"][1:3]:
            node["target"] = target

    path = changed(saved, tmp_path / "operator.pt2")(lambda records: edited(records, PROGRAM, replace))
    shown = target.removeprefix("torch.ops.").replace("#", r"\?")
    with pytest.raises(UnsupportedOperatorError, match=rf"uses 1 operator not covered: {shown} ×2 \("):
        mrt.load_model(path)


def test_guards_are_not_run(saved: Path, tmp_path: Path) -> None:
    def plant(program: Any) -> None:
        program["guards_code"] = [f"{CODE} or True"]
        program["graph_module"]["metadata"] = {"custom": CODE}

    path = changed(saved, tmp_path / "guards.pt2")(lambda records: edited(records, PROGRAM, plant))
    rewritten = zipfile.ZipFile(io.BytesIO(read_archive(path)))
    assert not any(b"__import__" in rewritten.read(name) for name in rewritten.namelist())
    compare(mrt.load_model(path, batch=2), NETWORK, IMAGES)


# Files that lie


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
    started = time.perf_counter()
    with pytest.raises(ModelFileError, match="its records are compressed"):
        mrt.load_model(path)
    assert time.perf_counter() - started < 1


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
    with pytest.raises(GraphError, match="says the shapes of its inputs itself"):
        mrt.load_model(saved, shapes={"x": (1, 3, 6, 6)})


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
