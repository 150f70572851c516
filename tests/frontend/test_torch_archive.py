"""Archives of torch.export.save: read as the program that was saved, without running anything that a file may hold."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_archives import IMAGES, NETWORK, PROGRAM, WEIGHTS, changed, edited, records_of
from torch_programs import Apart, compare, evaluated, export, random

import mrt
from mrt.errors import ModelFileError, UnsupportedOperatorError
from mrt.frontend.torch.archive import read_archive

torch = pytest.importorskip("torch")
nn = torch.nn


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


def test_weights_of_other_floats_are_read(tmp_path: Path) -> None:
    kinds = (torch.float16, torch.bfloat16, torch.float64)
    layers = {str(kind): nn.Linear(4, 3).to(kind) for kind in kinds}
    inputs, path = [random(2, 4, seed=place).to(kind) for place, kind in enumerate(kinds)], tmp_path / "model.pt2"
    torch.export.save(export(Apart(layers), *inputs), path)
    found = evaluated(mrt.load_model(path), *(x.float() for x in inputs))
    for result, (kind, layer), x in zip(found, layers.items(), inputs, strict=True):
        wanted = layer.float()(x.float()).detach().numpy()
        np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6, err_msg=kind)


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
