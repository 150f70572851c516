"""The project as a whole: files that must agree with each other, documents that must be true."""

from __future__ import annotations

import configparser
import json
import os
import re
import runpy
import shlex
import sys
import zipfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import numpy as np
import onnx
import pytest
import typer
from packaging.version import Version
from pydantic import BaseModel

import mrt
from mrt.cli import app
from mrt.config import FolderDataset, LoaderDataset, NpyDataset, NpzDataset, RunConfig, load_config
from mrt.frontend.onnx.node import find_converter
from mrt.plugins import PARTS, PARTS_OF_FORMATS
from mrt.symbol.operator import registered_operators

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "digits"
KEYWORDS = ROOT / "examples" / "keywords"
EMBEDDED = sorted(ROOT.glob("configs/*.yaml"))
CONFIGS = [*EMBEDDED, *sorted(ROOT.glob("benchmarks/configs/*.yaml"))]
DOCUMENTS = sorted(
    path for where in ("*", "docs/**/*", "examples/*/*", "benchmarks/*/*") for path in ROOT.glob(f"{where}.md")
)


def test_version_is_normal() -> None:
    assert str(Version(mrt.__version__)) == mrt.__version__


@pytest.mark.parametrize("package", ["mrt", "expansions"])
def test_every_folder_of_a_package_is_installed(package: str) -> None:
    """Setuptools leaves out folders without an __init__.py."""
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configurations_are_valid(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRT_DATA", os.environ.get("MRT_DATA", str(tmp_path)))
    config = load_config(path)
    assert config.data.calibration is not None
    assert config.data.test is not None
    assert config.output == ROOT / "out" / path.stem


def test_digits_example_is_small_and_whole() -> None:
    assert (DIGITS / "digits.onnx").stat().st_size < 300_000
    config = load_config(ROOT / "configs" / "digits.yaml")
    assert config.model.path == DIGITS / "digits.onnx"
    with np.load(DIGITS / "data.npz", allow_pickle=False) as data:
        assert data["x_calibration"].shape == (200, 1, 8, 8)
        assert data["x_test"].shape == (500, 1, 8, 8)
        for split in ("calibration", "test"):
            x, y = data[f"x_{split}"], data[f"y_{split}"]
            assert (x.min(), x.max()) == (0, 16)
            assert len(x) == len(y)
            assert set(y) == set(range(10))
        calibration = {image.tobytes() for image in data["x_calibration"]}
        assert not any(image.tobytes() in calibration for image in data["x_test"])


@pytest.mark.parametrize("path", EMBEDDED, ids=lambda path: path.stem)
def test_embedded_examples_need_nothing_but_the_repository(path: Path) -> None:
    """Their models and data are files of git's, and none depends on a variable of the environment."""
    config = load_config(path)
    assert "${" not in path.read_text()
    assert isinstance(config.data.calibration, NpzDataset) and isinstance(config.data.test, NpzDataset)
    for file in (config.model.path, config.data.calibration.npz, config.data.test.npz):
        assert file.is_file() and file.is_relative_to(ROOT / "examples" / path.stem)
        assert file.stat().st_size < 300_000


def test_keywords_calibrate_on_other_samples_than_test_and_are_as_accurate_as_their_readme_says() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    config = load_config(ROOT / "configs" / "keywords.yaml")
    session = onnxruntime.InferenceSession(str(config.model.path))
    with np.load(KEYWORDS / "data.npz", allow_pickle=False) as data:
        assert (data["x_calibration"].shape, data["x_test"].shape) == ((100, 49, 10, 1), (300, 49, 10, 1))
        calibration = {sample.tobytes() for sample in data["x_calibration"]}
        assert not any(sample.tobytes() in calibration for sample in data["x_test"])
        x = (data["x_test"].astype(np.float32) - 83).transpose(0, 3, 1, 2) * np.float32(0.5847029)
        right = sum(
            int(session.run(None, {"input": x[n : n + 1]})[0].argmax() == y) for n, y in enumerate(data["y_test"])
        )
    assert f"{right} of the 300 test samples" in (KEYWORDS / "README.md").read_text()


def test_keywords_are_made_to_the_byte(data_folder: Path, tmp_path: Path) -> None:
    runpy.run_path(str(KEYWORDS / "make.py"))["make"](data_folder, tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["LICENSE", "data.npz", "keywords.onnx"]
    assert [name for name in made if content(tmp_path / name) != content(KEYWORDS / name)] == []


def content(path: Path) -> object:
    """What a file holds; of an archive its members: the headers before Python 3.11.4 have other bytes."""
    if path.suffix != ".npz":
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_digits_network_is_as_accurate_as_its_readme_says() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(DIGITS / "digits.onnx"))
    with np.load(DIGITS / "data.npz", allow_pickle=False) as data:
        image = data["x_test"].astype(np.float32) / np.float32(16)
        right = int((session.run(None, {"image": image})[0].argmax(axis=1) == data["y_test"]).sum())
    assert f"{right} of the 500 test samples" in (DIGITS / "README.md").read_text()


def test_make_targets_of_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for path in DOCUMENTS
        for target in re.findall(r"(?:^    |`|\S=\S+ )make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "lint", "format", "bench"} <= named <= targets
    ci = set(re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert {"lint", "test-all"} <= ci <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_of_documents_exist(path: Path) -> None:
    text = path.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []
    roots = "mrt|expansions|configs|examples|benchmarks|docs|tests"
    paths = re.findall(rf"(?<![\w./])((?:{roots})/[\w./-]*\w)", text)
    assert [name for name in paths if not (ROOT / name).exists()] == []


def test_glossary_is_sorted_and_says_where_terms_are_defined() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| (?!term )(.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    terms = [term.lower() for term, _, _ in rows]
    assert len(terms) > 50
    assert terms == sorted(set(terms))
    for term, _, places in rows:
        files = [ROOT / name for name in re.findall(r"`([^`]+)`", places)]
        files += [ROOT / "docs" / link for link in re.findall(r"\]\(([^)#]+)", places)]
        assert files, term
        assert [file for file in files if not file.is_file()] == [], term


def test_commands_of_documents_are_those_of_the_program() -> None:
    """Each `mrt` line of a document has a command and options that exist, and sets keys that exist."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines = [(path.name, line) for path in DOCUMENTS if path.name != "CHANGELOG.md" for line in _commands_of(path)]
    assert {line.split()[0] for _, line in lines} == set(commands)
    for name, line in lines:
        command, *words = shlex.split(line, comments=True)
        known = {option for p in commands[command].params for option in (*p.opts, *p.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, (name, line)
        for word, value in pairwise(words):
            assert word != "--set" or value == "SECTION.KEY=VALUE" or _is_key(value.partition("=")[0]), (name, line)
            assert word != "--target" or value == "native" or isinstance(json.loads(value), dict), (name, line)


def test_options_of_the_program_are_documented() -> None:
    text = "\n".join(path.read_text() for path in DOCUMENTS if path.name != "CHANGELOG.md")
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = [(name, (*p.opts, *p.secondary_opts)) for name, command in commands.items() for p in command.params]
    named = [(name, found) for name, words in options if (found := [w for w in words if w.startswith("--")])]
    assert [(name, found) for name, found in named if not any(option in text for option in found)] == []


def _commands_of(path: Path) -> list[str]:
    """What stands behind `mrt` in indented lines, in consoles and between backticks."""
    text = path.read_text().replace("\\\n", " ")
    found = re.findall(r"^(?:    |\$ )(?:PYTHONPATH=\S+ )?mrt ([a-z]+(?: .*)?)$", text, re.MULTILINE)
    return [*found, *re.findall(r"`mrt ([a-z]+(?: [^`\n]*)?)`", text)]


def _is_key(name: str) -> bool:
    """Whether a configuration has such a key, whatever the value."""
    keys = name.split(".")
    kinds: set[object] = {RunConfig}
    for number, key in enumerate(keys):
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        fields = [field for kind in models for n, field in kind.model_fields.items() if key in (n, field.alias)]
        if not fields:
            return number > 0 and not models and Mapping in {get_origin(kind) for kind in kinds}
        kinds = {part for field in fields for part in _parts(field.annotation)}
    return True


def _parts(annotation: object) -> list[object]:
    """The alternatives of a type, with what Annotated wraps."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return [part for inner in get_args(annotation) for part in _parts(inner)]
    return [annotation]


@pytest.mark.slow
def test_python_example_of_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code[1], names)
    data, y = names["data"], names["y"]
    assert np.mean(np.argmax(np.asarray(y), axis=1) == data["y_test"]) > 0.97  # type: ignore[index]
    assert mrt.verify(tmp_path / "out" / "digits").max_bits <= 32


def test_operators_are_documented() -> None:
    text = (ROOT / "docs" / "operators.md").read_text()
    registered = {record.op for record in registered_operators() if record.__module__.startswith("mrt.")} - {"null"}
    documented = set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))
    assert documented == registered


def test_onnx_operators_are_documented() -> None:
    text = (ROOT / "docs" / "operators.md").read_text()
    found = re.search(r"^Read from opset 9 to 28: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    covered = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if schema.domain == "" and find_converter(onnx.helper.make_node(schema.name, [], [])) is not None
    }
    assert set(re.split(r",\s+", found[1])) == covered


def test_mxnet_operators_are_documented() -> None:
    from mrt.frontend.mxnet.node import covered_operators

    text = (ROOT / "docs" / "operators.md").read_text()
    found = re.search(r"^By all their names: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert set(re.split(r",\s+", found[1].replace("`", ""))) == covered_operators()


def test_relay_operators_are_documented() -> None:
    from mrt.frontend.relay.node import covered_operators

    text = (ROOT / "docs" / "operators.md").read_text()
    found = re.search(r"^Read from text: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert set(re.split(r",\s+", found[1])) == covered_operators()


def test_relax_operators_are_documented() -> None:
    import tvm

    from mrt.frontend.relax.node import find_converter

    text = (ROOT / "docs" / "operators.md").read_text()
    found = re.search(r"^Read: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    names = [str(name) for name in tvm.ir.Op.list_op_names() if str(name).startswith("relax.")]
    covered = {name.removeprefix("relax.") for name in names if find_converter(name) is not None}
    assert set(re.split(r",\s+", found[1])) == covered


def test_torch_operators_are_documented() -> None:
    pytest.importorskip("torch")
    from mrt.frontend.torch.node import covered_operators

    text = (ROOT / "docs" / "operators.md").read_text()
    found = re.search(r"^Read from PyTorch programs: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    covered = {name.partition(".")[0] for name in covered_operators()}
    assert set(re.split(r",\s+", found[1].replace("`", ""))) == covered


def test_tflite_operators_are_documented() -> None:
    from mrt.frontend.tflite.node import covered_operators

    text = (ROOT / "docs" / "operators.md").read_text()
    found = re.search(r"^Read from TFLite files: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert set(re.split(r",\s+", found[1])) == covered_operators()


def test_openvino_operators_are_documented() -> None:
    pytest.importorskip("openvino")
    from mrt.frontend.openvino.node import covered_operators

    text = (ROOT / "docs" / "operators.md").read_text()
    found = re.search(r"^Read from OpenVINO models: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert set(re.split(r",\s+", found[1])) == covered_operators()


def test_the_plugin_that_is_documented_is_the_one_that_is_tested() -> None:
    """Its files stand in the document from their first line to their last; the last block is of another plug-in."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    example = ROOT / "tests" / "plugins" / "cyclic_shift"
    *blocks, _ = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert "\n\n".join(blocks) == (example / "cyclic_shift.py").read_text()
    assert re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL) == [
        (example / "pyproject.toml").read_text()
    ]


def test_parts_of_plugins_are_documented() -> None:
    text = (ROOT / "docs" / "plugins.md").read_text()
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|", text, re.MULTILINE))
    assert rows.keys() == {*PARTS, *(f"{part}.FORMAT" for part in PARTS_OF_FORMATS)}
    for part, package in PARTS_OF_FORMATS.items():
        folders = {path.parent.name for path in (ROOT / "mrt" / package).glob(f"*/{part}/")}
        assert set(re.findall(r"`(\w+)`", rows[f"{part}.FORMAT"])) == folders


def test_keys_of_configurations_are_documented() -> None:
    text = (ROOT / "docs" / "config.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(RunConfig.model_fields)
    for name, field in RunConfig.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys = [inner.alias or key for key, inner in kind.model_fields.items()]
            assert [key for key in keys if f"`{key}" not in sections[name]] == []
    for kind in (NpzDataset, NpyDataset, FolderDataset, LoaderDataset):
        assert [key for key in kind.model_fields if f"`{key}`" not in sections["data"]] == []


def test_documented_keys_of_configurations_exist() -> None:
    text = (ROOT / "docs" / "config.md").read_text()
    sections = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = [(name, row) for name, section in sections if name != "output" for row in _rows_of_keys(section)]
    assert len(rows) > 60
    keys = [f"{name}.{key}" for name, row in rows for key in re.findall(r"`([^`]+)`", row)]
    beyond = {key for key in keys if not _is_key(key) and not _is_key(key.replace("data.", "data.calibration."))}
    assert beyond == set()


def _rows_of_keys(section: str) -> list[str]:
    """The first cells of the tables whose head is `key`."""
    tables = re.findall(r"^\| key \|.*\n\|[-| ]+\n((?:\|.*\n)+)", section, re.MULTILINE)
    return [row.split("|")[1] for table in tables for row in table.splitlines()]


def test_supported_pythons_agree() -> None:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    classifiers = set(re.findall(r"Python :: (3\.\d+)", settings["metadata"]["classifiers"]))
    assert classifiers == {"3.10", "3.11", "3.12", "3.13"}
    assert settings["options"]["python_requires"] == ">=3.10, <3.14"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in classifiers


def test_console_script_and_plugin_point_at_what_exists() -> None:
    from mrt.cli import main

    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    points = settings["options.entry_points"]
    assert points["console_scripts"].split() == ["mrt", "=", f"{main.__module__}:{main.__name__}"]
    assert points["mrt.plugins"].split() == ["expansions", "=", "expansions"]
