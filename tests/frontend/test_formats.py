"""The formats of model files: one record a folder, found by one tuple, and told apart by how files begin."""

from __future__ import annotations

import configparser
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import mrt
from mrt.errors import GraphError, ModelFileError
from mrt.frontend.formats import FORMATS, add_format, format_of
from mrt.frontend.shared.format import Format

ROOT = Path(mrt.__file__).parents[1]
NO_FILES = {"relax", "shared", "tvm"}
"""Relax modules lie in memory; the other folders hold what several readers share."""


def test_every_folder_has_its_format() -> None:
    folders = {path.parent.name for path in (ROOT / "mrt" / "frontend").glob("*/__init__.py")} - NO_FILES
    assert [format.name for format in FORMATS] == sorted(folders, key=[f.name for f in FORMATS].index)
    for format in FORMATS:
        assert import_module(f"mrt.frontend.{format.name}").FORMAT is format


def test_extras_can_be_installed() -> None:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    for format in FORMATS:
        assert format.extra is None or format.extra in settings["options.extras_require"], format.name


@pytest.mark.parametrize("format", [format for format in FORMATS if format.extra], ids=lambda format: format.name)
def test_what_is_not_installed_is_named(format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, str(format.extra), None)
    needed = rf"needs the package {format.extra}; install it with: pip install 'mrt-quantizer\[{format.extra}\]'"
    with pytest.raises(ModelFileError, match=needed):
        format.check_installed()


def test_no_reader_is_loaded_before_a_file_is_read() -> None:
    code = "import sys, mrt.frontend; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("lark", "onnx", "openvino", "tflite", "torch", "tvm")
    assert "'mrt'" in done.stdout and [name for name in heavy if f"'{name}'" in done.stdout] == []


@pytest.mark.parametrize(
    ("name", "start", "found"),
    [
        ("net", b"PK\x03\x04\0\0", "torch"),
        ("net.onnx", b"PK\x05\x06", "torch"),
        ("net", b"\x18\0\0\0TFL3", "tflite"),
        ("net.onnx", b"\x08\0\0\0TFL3", "tflite"),
        ("net", b'<?xml version="1.0"?>\n<net name="n">', "openvino"),
        ("net", b'\xef\xbb\xbf <net name="n">', "openvino"),
        ("net", b'\xef\xbb\xbf\n { "nodes"', "mxnet"),
        ("net", b"\x12\x01\0\0\0\0\0\0", "mxnet"),
        ("net", b'#[version = "0.0.5"]\ndef @main', "relay"),
        ("net", b"// a comment\n  def @main", "relay"),
        ("net.tflite", b"\x08\x07", "onnx"),
        ("net.onnx", b"", "onnx"),
        ("net.ONNX", b"damaged", "onnx"),
        ("net.tflite", b"damaged", "tflite"),
        ("net.pt2", b"damaged", "torch"),
    ],
)
def test_a_file_is_told_by_how_it_begins_and_else_by_its_suffix(
    tmp_path: Path, name: str, start: bytes, found: str
) -> None:
    (tmp_path / name).write_bytes(start)
    assert format_of(tmp_path / name).name == found


@pytest.mark.parametrize("start", [b"", b"a text", b"<?xml version='1.0'?><svg>", b"\x18\0\0TFL3", b"undef @main"])
def test_a_file_of_no_format_is_refused_with_those_that_are_read(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "net.bin").write_bytes(start)
    with pytest.raises(ModelFileError, match=r"net\.bin is no model that is read: .* is needed") as caught:
        format_of(tmp_path / "net.bin")
    assert [format.name for format in FORMATS if format.file not in str(caught.value)] == []


def test_a_format_has_its_name_alone() -> None:
    with pytest.raises(GraphError, match="two formats called onnx"):
        add_format(FORMATS[-1])
