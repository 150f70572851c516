"""`mrt quantize`: what its options stand for, what it refuses, and that `mrt run` finds it done."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import mrt
from mrt.cli import app
from mrt.cli.described import Described, Flags, described
from mrt.cli.kept import kept_configuration
from mrt.config import ModelSection, config_yaml, load_config
from mrt.datasets import load_dataset
from mrt.errors import MRTError
from mrt.stages.network import read_network
from mrt.symbol import Graph, TensorType
from tests.test_cli import save_network

LOADERS = """
import numpy as np

X = np.arange(40 * 16, dtype=np.float32).reshape(40, 1, 4, 4)

def split(split):
    return X if split == "calibration" else -X

def batches():
    return ((X[n : n + 8], np.arange(8)) for n in range(0, 40, 8))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with networks of one and of two inputs and data of several kinds."""
    monkeypatch.chdir(tmp_path)
    save_network(tmp_path / "net.onnx")
    two = helper.make_graph(
        [helper.make_node("Add", ["ids", "mask"], ["sum"])],
        "two",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("ids", "mask")],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, None)],
    )
    onnx.save(helper.make_model(two, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "two.onnx")
    x = np.arange(40 * 16).reshape(40, 1, 4, 4) % 256
    np.savez(tmp_path / "floats.npz", x=x.astype(np.float32), y=np.arange(40))
    np.savez(tmp_path / "pixels.npz", image=x.astype(np.uint8))
    np.savez(tmp_path / "few.npz", x=x[:6].astype(np.float32), y=np.zeros(6, np.int64))
    np.savez(tmp_path / "both.npz", ids=np.ones((20, 4), np.float32), mask=np.ones((20, 4), np.float32))
    np.save(tmp_path / "pixels.npy", x.astype(np.uint8).transpose(0, 2, 3, 1))
    np.save(tmp_path / "labels.npy", np.arange(40))
    (tmp_path / "loaders.py").write_text(LOADERS)
    return tmp_path


def of(model: str = "net.onnx", data: str | None = None, test: str | None = None, **keys: Any) -> Described:
    options = {"output": None, "samples": None, "target": None, "batch": None, "shapes": (), "settings": ()}
    given = {name: keys.pop(name, value) for name, value in options.items()}
    return described(Flags(model=model, data=data, test=test, data_keys=keys, **given))


def samples(found: Described, part: str) -> np.ndarray:
    """Of the input that comes first."""
    inputs = {symbol.name: symbol.type for symbol in found.graph.inputs}
    dataset = load_dataset(getattr(found.config.data, part), inputs, f"data.{part}")
    return np.concatenate([batch[next(iter(inputs))] for batch in dataset.batches(7)])


def test_what_was_quantized_is_run_again_by_the_configuration_beside_it(folder: Path) -> None:
    def call(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.output
        return result.stdout

    given = [
        "quantize",
        "net.onnx",
        "--data",
        "few.npz",
        "--y",
        "y",
        "--set",
        "quantize.preset=fast",
        "--set",
        "report=false",
    ]
    told = call(*given, "--output", "made")
    written = (folder / "made" / "mrt.yaml").read_text()
    assert written in told and "mrt run made/mrt.yaml repeats this" in told
    assert "path: ../net.onnx" in written and "npz: ../few.npz" in written and "output: ." in written
    assert mrt.verify(folder / "made").max_bits <= 32
    for again in (["run", "made/mrt.yaml"], [*given, "--output", "made"]):
        told = call(*again)
        assert "nothing is done" in told and "evaluate: done" not in told


def test_what_lies_beside_a_result_says_how_it_was_made(folder: Path) -> None:
    made = of(data="few.npz", y="y", output=folder / "made").config
    kept = folder / "made" / "mrt.yaml"
    kept.parent.mkdir()
    kept.write_bytes(kept_configuration(made, kept.parent))
    (folder / "other.yaml").write_bytes(config_yaml(load_config(kept, ("prepare.cut_softmax=false",)), "by hand"))
    run("other.yaml")
    assert load_config(kept) == load_config(folder / "other.yaml") != made
    assert "nothing is done" in run("made/mrt.yaml") and "nothing is done" in run("made")
    kept.write_text("# mine\n" + kept.read_text())
    run("other.yaml", "--set", "prepare.cut_softmax=true")
    assert kept.read_text().startswith("# mine")


def run(*arguments: str) -> str:
    """What `mrt run` says, which only prepares."""
    result = CliRunner().invoke(app, ["run", *arguments, "--to", "prepare"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_part_of_the_data_is_held_out(folder: Path) -> None:
    found = of(data="floats.npz", y="y")
    calibration, test = samples(found, "calibration"), samples(found, "test")
    assert (len(calibration), len(test)) == (20, 20)
    whole = np.load("floats.npz")["x"]
    np.testing.assert_array_equal(np.sort(np.concatenate([calibration, test])[:, 0, 0, 0]), np.sort(whole[:, 0, 0, 0]))
    assert not np.array_equal(calibration, whole[:20]), "they would be of the first classes alone"
    assert "of 40 samples, drawn by seed 0, 20 calibrate and 20 others are scored" in found.remarks[-1]
    assert len(samples(of(data="floats.npz", y="y", samples=30), "test")) == 10
    few = of(data="few.npz")
    np.testing.assert_array_equal(samples(few, "calibration"), samples(few, "test"))
    assert "the same calibrate and are scored" in few.remarks[-1]


def test_what_is_scored_may_lie_elsewhere(folder: Path) -> None:
    found = of(data="pixels.npz", test="few.npz", scale="1/255", samples=10)
    assert (len(samples(found, "calibration")), len(samples(found, "test"))) == (10, 6)
    assert samples(found, "test").max() <= 1


def test_labels_are_asked_of_what_is_scored_alone(folder: Path) -> None:
    x = np.zeros((20, 1, 4, 4), np.float32)
    np.savez(folder / "unlabelled.npz", x=x)
    np.savez(folder / "scored.npz", x=x, labels=np.arange(20))
    np.save(folder / "x.npy", np.concatenate([x, x]))
    found = of(data="unlabelled.npz", test="scored.npz", y="labels").config.data
    assert found.calibration.y is None and found.test.y == "labels"  # type: ignore[union-attr]
    found = of(
        data="unlabelled.npz", test="x.npy", labels="labels.npy", settings=("data.test.slice=[0,20]",)
    ).config.data
    assert str(found.test.labels).endswith("labels.npy")  # type: ignore[union-attr]
    with pytest.raises(MRTError, match=r"--y is for an \.npz file; --test x.npy is an .npy file"):
        of(data="scored.npz", test="x.npy", y="labels")


def test_images_that_calibrate_need_no_line_among_the_labels(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for place in ("train", "val"):
        (folder / place).mkdir()
        for number in range(3):
            image.new("L", (4, 4), number).save(folder / place / f"{place}{number}.png")
    (folder / "val.txt").write_text("val0.png 3\nval2.png 1\n")
    found = of(data="train", test="val", labels="val.txt", mode="L", scale="1").config.data
    assert load_dataset(found.calibration, {"x": TensorType((1, 1, 4, 4), "float32")}, "c").size == 3
    assert list(load_dataset(found.test, {"x": TensorType((1, 1, 4, 4), "float32")}, "t").labels) == [3, 1]


def test_functions_give_splits_or_batches_that_are_parted_in_their_order(folder: Path) -> None:
    split = of(data="loaders.py:split")
    np.testing.assert_array_equal(samples(split, "calibration"), -samples(split, "test"))
    batches = of(data="loaders.py:batches")
    whole = np.concatenate([samples(batches, "calibration"), samples(batches, "test")])
    np.testing.assert_array_equal(whole, np.arange(40 * 16, dtype=np.float32).reshape(40, 1, 4, 4))


def test_arrays_go_to_the_inputs_of_their_names(folder: Path) -> None:
    assert samples(of("two.onnx", "both.npz"), "test").shape == (10, 4)
    assert samples(of("two.onnx", "both.npz", x=("ids=mask", "mask=ids")), "test").shape == (10, 4)
    found = of(data="pixels.npy", layout="NHWC->NCHW", scale="1/255", labels="labels.npy")
    assert found.config.data.calibration is not None and found.config.data.calibration.scale == 1 / 255
    assert samples(found, "test").shape == (20, 1, 4, 4)


def test_options_are_keys_of_the_configuration(folder: Path) -> None:
    found = of(data="floats.npz", batch=4, target="{mcpu: znver4}", settings=("quantize.activation.bits=6",))
    config = found.config
    assert (config.compile.batch, config.compile.target.mcpu, config.quantize.activation.bits) == (4, "znver4", 6)
    assert config.output == folder / "out" / "net"
    foreign = of(data="floats.npz", target="{mtriple: riscv64-linux-gnu, features: [m]}")
    assert foreign.last == "compile" and "riscv64-linux-gnu is not run here" in foreign.remarks[-1]


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({}, "--data is missing"),
        ({"data": "pixels.npz"}, r"integers \(uint8\) for input x.*--scale 1 .*--scale 1/255"),
        ({"data": "pixels.npz", "mean": "0.5"}, "integers .* --scale 1 "),
        ({"data": "pixels.npy", "scale": "1"}, r"\[4, 4, 1\], the network takes \[1, 4, 4\]; --layout 'NHWC->NCHW'"),
        ({"data": "both.npz"}, "holds ids, mask; the network has the inputs x: name an array for x by --x ARRAY"),
        ({"model": "two.onnx", "data": "floats.npz"}, "name an array for ids, mask by --x INPUT=ARRAY"),
        ({"model": "two.onnx", "data": "pixels.npy"}, "one input, the network has ids, mask"),
        ({"model": "nothing", "data": "nowhere"}, "--data nowhere does not exist; a folder of images"),
        ({"data": "loaders.py"}, "name its function: loaders.py:FUNCTION"),
        ({"data": "net.onnx"}, "--data net.onnx is no data that is read"),
        (
            {"data": "floats.npz", "resize": "4"},
            "--resize is for a folder of images; --data floats.npz is an .npz file",
        ),
        ({"data": "floats.npz", "mean": "1,2"}, "--data floats.npz: mean has 2 values, axis 1 .* another length"),
        ({"data": "floats.npz", "scale": "1/0"}, "--scale 1/0: a number"),
        ({"data": "floats.npz", "std": "0"}, "--std: data.calibration.std is .*a standard deviation must not be 0"),
        ({"data": "floats.npz", "samples": 40}, "--samples 40: floats.npz holds 40 samples"),
        ({"data": "floats.npz", "batch": 2**40}, "--batch: compile.batch is"),
        ({"model": "loaders.py", "data": "floats.npz"}, "name its function: loaders.py:FUNCTION"),
        (
            {"model": "loaders.py:batches", "data": "floats.npz"},
            "gives a generator; a torch.nn.Module with its example",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_the_option_that_says_it(
    folder: Path, given: dict[str, Any], needed: str
) -> None:
    with pytest.raises(MRTError, match=needed):
        of(**given)


def test_integers_that_a_network_takes_for_real_values_are_explained(folder: Path) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["x"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    form = [
        helper.make_tensor("scale", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("zero", TensorProto.INT8, [], [-3]),
    ]
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info("q", TensorProto.INT8, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        form,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "q.onnx")
    for data in ("floats.npz", "pixels.npz"):  # of another kind, and beyond the dtype
        with pytest.raises(MRTError, match=r"input q .*int8.*; of real values x it takes round\(x / 0.5\) -3, as int8"):
            of(model="q.onnx", data=data)
    np.save(folder / "q.npy", (np.arange(640).reshape(40, 1, 4, 4) % 200 - 100).astype(np.int8))
    assert of(model="q.onnx", data="q.npy").config.data.calibration is not None, "and no --scale is asked for"


def test_images_of_integers_are_no_real_values(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (folder / "images").mkdir()
    for number in range(3):
        image.new("L", (4, 4), number).save(folder / "images" / f"{number}.png")
    node = helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT)
    inputs = [helper.make_tensor_value_info("q", TensorProto.UINT8, [1, 1, 4, 4])]
    graph = helper.make_graph([node], "pixels", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "u.onnx")
    assert of(model="u.onnx", data="images", mode="L").config.data.calibration is not None
    with pytest.raises(MRTError, match="input q takes uint8, .*leave out --scale"):
        of(model="u.onnx", data="images", mode="L", scale="1/255")


def test_images_are_asked_for_as_the_network_takes_them(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(20):
        (folder / "images" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        image.new("RGB", (6, 5), (number, 0, 0)).save(folder / "images" / "ab"[number % 2] / f"{number}.png")
    for keys, needed in (
        ({}, "--mode L makes images grey"),
        ({"mode": "L", "resize": "4,4"}, r"integers \(uint8\)"),
        ({"scale": "1", "mode": "L"}, r"\[1, 5, 6\], the network takes \[1, 4, 4\]; --resize 4,4 .* --crop 4,4"),
    ):
        with pytest.raises(MRTError, match=needed):
            of(data="images", **keys)
    found = of(data="images", scale="1", mode="L", resize="4,4")
    test = load_dataset(found.config.data.test, {"x": found.graph.inputs[0].type}, "data.test")  # type: ignore[arg-type]
    assert test.labels is not None and set(test.labels) == {0, 1}, "both of the folders are among what is scored"


def test_paths_outside_of_the_working_directory_are_absolute(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:

    elsewhere = tmp_path_factory.mktemp("elsewhere")
    found = of(data="floats.npz", output=elsewhere).config
    text = config_yaml(found, "about", elsewhere).decode()
    assert f"path: {folder}/net.onnx" in text
    (elsewhere / "mrt.yaml").write_text(text)
    assert load_config(elsewhere / "mrt.yaml") == found


NETWORKS = """
import torch
from torch import nn

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())

def pair():
    return network(), torch.zeros(1, 1, 4, 4)

def alone():
    return network()

def exported():
    return torch.export.export(network().eval(), (torch.zeros(1, 1, 4, 4),))

def file():
    return "net.onnx"

def graph():
    import mrt
    return mrt.from_torch(exported())
"""


def test_a_function_may_give_the_network(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    (folder / "nets.py").write_text(NETWORKS)
    x = np.random.default_rng(0).normal(size=(1, 1, 4, 4)).astype(np.float32)

    def read(function: str, **options: Any) -> Graph:
        return read_network(ModelSection.model_validate({"path": folder / f"nets.py:{function}", **options}))

    space: dict[str, Any] = {}
    exec(NETWORKS, space)
    network: Callable[[], Any] = space["network"]
    expected = network()(torch.from_numpy(x)).detach().numpy()
    for function, options in (
        ("pair", {}),
        ("alone", {"shapes": {"input": [1, 1, 4, 4]}}),
        ("exported", {}),
        ("graph", {}),
    ):
        graph = read(function, **options)
        (found,) = graph.evaluate({graph.inputs[0].name: x})
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert read("file").inputs[0].name == "x"
    with pytest.raises(MRTError, match=re.escape("gives a module alone; its example inputs are needed")):
        read("alone")
