"""ONNX files that are missing, damaged or spread over several files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import make_model, run_onnxruntime, single

from mrt.errors import ModelFileError, MRTError
from mrt.frontend import load_model
from mrt.frontend.onnx import from_onnx

WEIGHT = np.random.default_rng(7).standard_normal((40, 50)).astype(np.float32)


def model_with_weight() -> onnx.ModelProto:
    return single("MatMul", (2, 40), {"w": WEIGHT})


def save_externally(path: Path) -> None:
    onnx.save(
        model_with_weight(),
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location="w.data",
        size_threshold=0,
    )


def one_line(caught: pytest.ExceptionInfo[ModelFileError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_load_model_reads_onnx(tmp_path: Path) -> None:
    path = tmp_path / "model.ONNX"
    onnx.save(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ("N", 3)}), path, format="protobuf")
    assert load_model(path, batch=3).inputs[0].shape == (3, 3)
    assert load_model(str(path)).inputs[0].shape == (1, 3)


def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe, model = tmp_path / "model.onnx", model_with_weight()
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(pipe.write_bytes, model.SerializeToString())
        found = from_onnx(pipe)
    x = np.ones((2, 40), np.float32)
    np.testing.assert_array_equal(found.evaluate({"x": x})[0], from_onnx(model).evaluate({"x": x})[0])


@pytest.mark.parametrize("read", [load_model, from_onnx])
def test_missing_files_and_folders(read: object, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent\.onnx does not exist"):
        read(tmp_path / "absent.onnx")  # type: ignore[operator]
    with pytest.raises(ModelFileError, match="is a folder"):
        read(tmp_path)  # type: ignore[operator]


def test_unknown_suffix(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"model\.pt is no model that is read: .* or an ONNX file is needed"):
        load_model(path)


@pytest.mark.parametrize(
    "content", [b"", b"not a model", b"<html><body>404</body></html>", bytes(range(256)), b"\x00" * 100]
)
def test_files_that_are_no_models(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        load_model(path)
    assert str(path) in one_line(caught)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    content = single("MatMul", (2, 4), {"w": WEIGHT[:4, :5]}).SerializeToString()
    path = tmp_path / "model.onnx"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError) as caught:
            load_model(path)
        one_line(caught)


def test_damaged_files_end_in_an_error_of_one_line_or_a_graph(tmp_path: Path) -> None:
    """Whatever byte of a model is changed, nothing but MRT's own errors comes out."""
    names = {"t": np.array([0, -1]), "w": WEIGHT[:8, :5], "b": np.ones(5, np.float32)}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1], ceil_mode=1),
        helper.make_node("Reshape", ["p", "t"], ["r"]),
        helper.make_node("Gemm", ["r", "w", "b"], ["g"], alpha=0.5),
        helper.make_node("ReduceMean", ["g"], ["y"], axes=[1]),
    ]
    content = make_model(nodes, {"x": ("N", 2, 3, 4)}, constants=names).SerializeToString()
    rng = np.random.default_rng(8)
    path = tmp_path / "model.onnx"
    read = 0
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            load_model(path)
            read += 1
        except MRTError as error:
            assert "\n" not in str(error)
    assert 0 < read < len(content)


def test_an_initializer_with_too_few_bytes() -> None:
    model = model_with_weight()
    model.graph.initializer[0].raw_data = b"1234"
    with pytest.raises(ModelFileError, match=r"tensor w: its values do not fill shape \(40, 50\) of FLOAT"):
        from_onnx(model)


def test_external_data_are_read_from_beside_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    save_externally(path)
    assert path.stat().st_size < WEIGHT.nbytes
    x = np.ones((2, 40), np.float32)
    np.testing.assert_allclose(
        load_model(path).evaluate({"x": x})[0], run_onnxruntime(str(path), {"x": x})[0], rtol=1e-5, atol=1e-5
    )


def test_external_data_that_are_missing_or_truncated(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    save_externally(path)
    (tmp_path / "w.data").write_bytes(b"1234")
    with pytest.raises(ModelFileError, match="w.data ends after 4 of 8000 bytes") as caught:
        load_model(path)
    one_line(caught)
    (tmp_path / "w.data").unlink()
    with pytest.raises(ModelFileError, match="tensor w: its external data file .* is missing"):
        load_model(path)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "sub/../../secret.bin", "link.bin"])
def test_external_data_outside_the_folder_are_refused(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(WEIGHT.nbytes))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    save_externally(folder / "model.onnx")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelFileError, match="lies outside the model's folder"):
        load_model(folder / "model.onnx")


def test_external_data_without_a_folder(tmp_path: Path) -> None:
    save_externally(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    with pytest.raises(ModelFileError, match="give the path of the model file"):
        from_onnx(model)
