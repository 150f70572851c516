"""What a saved model holds is data: anything but what MRT writes is refused in one line, whoever signed it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import mrt
from mrt.certificate import CERTIFICATE_FILE, certify, verify
from mrt.errors import MRTError, QuantizationError, VerificationError
from mrt.symbol import GraphBuilder, Interval, NumpyRunner, TensorType
from mrt.symbol.limits import ELEMENTS_VARIABLE
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.normalization import Softmax
from tests.certificate.test_verify import edit_json, refresh_digests, small_model

Facts = dict[str, Any]
QUANTIZATION, GRAPH = "quantization.json", "graph.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_model().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def tailed(tmp_path: Path) -> Path:
    """A model whose softmax was cut off."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4)))
    doubled = builder.apply(BroadcastAdd(), [x, x], "y")
    graph = builder.graph([builder.apply(Softmax(), [doubled], "probabilities")])
    model = mrt.quantize(graph, [np.ones((2, 4), np.float32)], runner=NumpyRunner())
    assert model.postprocess is not None
    model.save(tmp_path / "tailed")
    return tmp_path / "tailed"


def assert_refused(folder: Path, match: str | None = None) -> None:
    """Both that check and that load refuse it, by one line."""
    for act in (verify, mrt.load):
        with pytest.raises(VerificationError, match=match) as caught:
            act(folder)
        text = str(caught.value)
        assert "\n" not in text
        text.encode()


def put(kind: str, **values: object) -> Callable[[Facts], None]:
    return lambda data: data[kind][0].update(values)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("inputs", lo=5, hi=-5), r"x holds \[5, -5\]"),
        (put("inputs", lo=200, hi=300), r"x holds \[200, 300\]; an interval within \[-128, 127\]"),
        (put("inputs", lo=0, hi=-(2**31)), "x holds"),
        (put("inputs", lo=-(2**70)), "x holds"),
        (put("inputs", zero_point=2**31), "zero point 2147483648"),
        (put("outputs", zero_point=40_000), r"zero point 40000; its int16 holds \[-32768, 32767\]"),
        (put("outputs", zero_point=2**40), "zero point"),
        (put("inputs", zero_point=0.0), "zero_point is 0.0"),
        (put("inputs", zero_point=True), "zero_point is True"),
        (put("inputs", lo="-127"), "lo is '-127'"),
        (put("inputs", hi=127.0), r"hi is 127\.0"),
        (put("inputs", is_given=0), "is_given is 0"),
        (put("inputs", is_given=None), "is_given is None"),
        (put("inputs", scale=0.0), "must be positive"),
        (put("inputs", scale=1e-45), "normal in float32"),
        (put("inputs", scale=1e39), "normal in float32"),
        (put("inputs", scale="1"), "scale is '1'"),
        (put("inputs", scale=[]), "scale is"),
        (put("inputs", scale=[True]), "scale is"),
        (put("inputs", scale=[[1.0], [1.0, 2.0]]), "scale is"),
        (put("inputs", scale=[1.0, 2.0]), "broadcasts to"),
        (put("inputs", scale=[[[[[1.0]]]]]), "broadcasts to"),
        (put("inputs", shape=[1, 3, 5, 5.0]), "shape.3 is 5.0"),
        (put("inputs", shape=[0, 3, 5, 5]), "at least 1"),
        (put("inputs", dtype="int64"), "dtype is 'int64'"),
        (put("inputs", dtype="i1"), "dtype is 'i1'"),
        (put("inputs", name=7), "name is 7"),
        (put("inputs", note="hidden"), "note is no key"),
        (lambda data: data.update(extra=1), "extra is no key"),
        (lambda data: data.pop("notes"), "notes is missing"),
        (lambda data: data.update(notes="text"), "notes is 'text'"),
        (lambda data: data.update(format_version=True), "format_version True"),
        (lambda data: data["thresholds"].update(x={"lo": 1.0, "hi": -1.0}), "lo <= hi"),
        (lambda data: data["thresholds"].update(x={"lo": "a", "hi": 1.0}), "thresholds.x.lo"),
        (lambda data: data["scales"].update(conv=-1.0), r"scales\.conv"),
        (lambda data: data["scales"].update(conv=[1.0] * 7), r"scales\.conv has shape \(7,\)"),
        (lambda data: data["scales"].update(nothing=1.0), "no tensor of this name"),
        (lambda data: data["zero_points"].update(conv=0.5), r"zero_points\.conv"),
        (lambda data: data["zero_points"].update(conv=2**80), r"zero_points\.conv"),
        (lambda data: data["corrections"].update(conv=[None]), r"corrections\.conv"),
    ],
)
def test_a_fact_of_another_kind_is_named(folder: Path, change: Callable[[Facts], None], match: str) -> None:
    edit_json(folder / QUANTIZATION, change)
    refresh_digests(folder)
    assert_refused(folder, f"{QUANTIZATION}.*{match}")


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "[" * 100_000])
def test_a_number_that_is_none_is_named(folder: Path, text: str) -> None:
    path = folder / QUANTIZATION
    path.write_text(path.read_text().replace('"lo": -127', f'"lo": {text}', 1))
    refresh_digests(folder)
    assert_refused(folder, QUANTIZATION)


@pytest.mark.parametrize("name", [CERTIFICATE_FILE, QUANTIZATION, GRAPH])
def test_a_key_that_stands_twice_is_refused(folder: Path, name: str) -> None:
    """Readers differ in which of the two they take, so that one file would mean two things."""
    path = folder / name
    text = path.read_text()
    path.write_text(
        text.replace("{", '{"nodes": [], "format_version": 1, ', 1).replace('"nodes": [], ', "", name != GRAPH)
    )
    if name != CERTIFICATE_FILE:
        refresh_digests(folder)
    assert_refused(folder, f"{name}.*stands twice")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(hidden=1),
        lambda data: data["nodes"][0].update(hidden=1),
        lambda data: data["nodes"][0]["attrs"].update(__hidden__="1"),
        lambda data: data["arg_nodes"].append(0),
        lambda data: data["node_row_ptr"].pop(),
        lambda data: data["nodes"].append({"op": "null", "name": "z", "inputs": [], "attrs": {}} | NEVER_READ),
        lambda data: data["attrs"].update(mxnet_version=["int", 10901.0]),
        lambda data: data["nodes"][0]["attrs"].update(__shape__="(1.0, 3, 5, 5)"),
        lambda data: next(n for n in data["nodes"] if n["op"] == "Convolution")["attrs"].update(workspace="1024"),
    ],
)
def test_a_graph_file_holds_nothing_that_is_not_read(folder: Path, change: Callable[[Facts], None]) -> None:
    edit_json(folder / GRAPH, change)
    refresh_digests(folder)
    assert_refused(folder)


NEVER_READ: Facts = {"attrs": {"__shape__": "(1,)", "__dtype__": "5", "__input__": "True"}}


def test_a_parameter_that_is_not_read_is_refused(folder: Path) -> None:
    path = folder / "params.safetensors"
    path.write_bytes(safetensors.numpy.save(safetensors.numpy.load(path.read_bytes()) | {"more": np.zeros(3, np.int8)}))
    refresh_digests(folder)
    assert_refused(folder, "it holds more")


def test_a_layout_of_lines_is_no_matter(folder: Path) -> None:
    for name in (GRAPH, QUANTIZATION):
        edit_json(folder / name, lambda data: None)
    refresh_digests(folder)
    verify(folder)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "../graph.json", "/dev/zero", "", "model.so", "postprocess.json"])
def test_only_the_files_of_a_model_are_vouched_for(folder: Path, name: str) -> None:
    edit_json(folder / CERTIFICATE_FILE, lambda data: data["files"].update({name: "0" * 64}))
    assert_refused(folder, f"{CERTIFICATE_FILE} names")


@pytest.mark.parametrize("name", ["x\0", "\ud800", "a\nb\x1b[31m", "x" * 10_000])
def test_names_that_no_terminal_prints_are_told_in_one_line(folder: Path, name: str) -> None:
    def rename(data: Facts) -> None:
        data["nodes"][0]["name"] = name

    edit_json(folder / GRAPH, rename)
    refresh_digests(folder)
    assert_refused(folder)


@pytest.mark.parametrize("name", [CERTIFICATE_FILE, GRAPH, "params.safetensors", QUANTIZATION])
@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "link", "dangling"])
def test_only_regular_files_are_read(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    aside = folder.parent / "aside"
    path.rename(aside)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "link":
            path.symlink_to(aside)
        case "dangling":
            path.symlink_to(folder.parent / "nothing")
    with pytest.raises(MRTError, match=name):
        verify(folder)
    with pytest.raises(MRTError, match=name):
        mrt.load(folder)


def test_a_file_beyond_the_limit_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRT_MAX_FILE_BYTES", "100")
    assert_refused(folder, "at most 100 are read: set MRT_MAX_FILE_BYTES")
    monkeypatch.setenv("MRT_MAX_FILE_BYTES", "many")
    assert_refused(folder, "MRT_MAX_FILE_BYTES is 'many'; a positive whole number is needed")


@pytest.mark.parametrize("directory", [None, 3, b"bytes", ["list"]])
def test_what_is_no_path_is_named(directory: Any) -> None:
    assert_refused(directory, "is no path")


@pytest.mark.parametrize("missing", ["postprocess.json", "postprocess.safetensors"])
def test_half_of_a_tail_is_refused(tailed: Path, missing: str) -> None:
    verify(tailed)
    edit_json(tailed / CERTIFICATE_FILE, lambda data: data["files"].pop(missing))
    assert_refused(tailed, "both or neither")


def test_the_tail_is_checked(tailed: Path) -> None:
    (tailed / "postprocess.json").write_text("{}")
    refresh_digests(tailed)
    assert_refused(tailed, "postprocess.json")


def test_a_tail_that_takes_other_tensors_is_refused(tailed: Path) -> None:
    def widen(data: Facts) -> None:
        data["nodes"][0]["attrs"]["__shape__"] = "(1, 9)"

    edit_json(tailed / "postprocess.json", widen)
    refresh_digests(tailed)
    assert_refused(tailed, "postprocess.json takes")


def test_an_input_is_held_to_what_its_dtype_holds() -> None:
    """In the Python API, too: whoever certifies a graph states the ranges."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3), "int8"))
    graph = builder.graph([builder.apply(BroadcastAdd(), [x, x], "y")])
    for lo, hi in ((3, -3), (200, 300), (0, -(2**31))):
        with pytest.raises(QuantizationError, match="input x"):
            certify(graph, {"x": Interval.of(lo, hi, (1, 3))}, {})
    with pytest.raises(QuantizationError, match="input x has no range"):
        certify(graph, {}, {})


def test_a_tensor_without_elements_has_no_certificate() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3), "int8"))
    empty = builder.parameter("none", np.zeros((0, 3), np.int8))
    graph = builder.graph([builder.apply(BroadcastAdd(), [x, empty], "y")])
    with pytest.raises(VerificationError, match="at least one element"):
        certify(graph, {"x": Interval.of(0, 1, (1, 3))}, {})


FOUR = "(1, 1, 2, 2)"
HUGE: list[tuple[str, dict[str, str], dict[str, tuple[int, ...]]]] = [
    (op, attributes, weight)
    for n in (10**6, 2**31, 2**63 - 1, 2**63, 10**30)
    for op, attributes, weight in (
        ("repeat", {"repeats": str(n)}, {}),
        ("repeat", {"repeats": str(n), "axis": "2"}, {}),
        ("tile", {"reps": str((n, n))}, {}),
        ("Pad", {"pad_width": str((0, 0, 0, 0, n, n, n, n))}, {}),
        ("UpSampling", {"scale": str(n)}, {}),
        ("Pooling", {"kernel": "(1, 1)", "pad": str((n, n)), "stride": str((n, n)), "pool_type": "sum"}, {}),
        (
            "Convolution",
            {"kernel": "(1, 1)", "num_filter": "1", "no_bias": "True", "pad": str((n, n)), "stride": str((n, n))},
            {"w": (1, 1, 1, 1)},
        ),
        (
            "Convolution",
            {"kernel": "(2, 2)", "num_filter": "1", "no_bias": "True", "pad": str((n, n)), "dilate": str((n, n))},
            {"w": (1, 1, 2, 2)},
        ),
        (
            "Deconvolution",
            {"kernel": "(2, 2)", "num_filter": "1", "stride": str((n, n)), "pad": str((n // 2, n // 2))},
            {"w": (1, 1, 2, 2)},
        ),
        (
            "Deconvolution",
            {"kernel": "(2, 2)", "num_filter": "1", "dilate": str((n, n)), "pad": str((n // 2, n // 2))},
            {"w": (1, 1, 2, 2)},
        ),
    )
] + [("Reshape", {"shape": str((1,) * 71 + (4,))}, {}), ("expand_dims", {"axis": str(2**63)}, {})]

CHILD = """
import resource, sys
from mrt.certificate import verify
from mrt.errors import MRTError
resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
for folder in sys.argv[1:]:
    try:
        verify(folder)
        print("taken", folder)
    except MRTError as error:
        told = ("elements", "axes", "length", "is outside", "is not in the certificate")
        assert any(words in str(error) for words in told), error
print("done")
"""


def test_a_small_graph_allocates_no_more_than_it_says(tmp_path: Path) -> None:
    """In a process that gets 1 GiB: each is refused before its tensors are made, or has at most 16 million elements."""
    folders = [str(tmp_path / str(place)) for place in range(len(HUGE))]
    for where, (op, attributes, weights) in zip(folders, HUGE, strict=True):
        write_hostile(Path(where), op, attributes, weights)
    done = subprocess.run([sys.executable, "-c", CHILD, *folders], capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stdout + done.stderr


def test_a_user_allows_more_elements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hostile(tmp_path, "repeat", {"repeats": str(2**23)}, {})
    assert_refused(tmp_path, f"33554432 elements would be made, 16777216 are allowed.*set {ELEMENTS_VARIABLE}")
    monkeypatch.setenv(ELEMENTS_VARIABLE, str(2**25))
    assert_refused(tmp_path, "is not in the certificate")


def write_hostile(folder: Path, op: str, attributes: dict[str, str], weights: dict[str, tuple[int, ...]]) -> None:
    """A saved model of one operator on an input of four elements, signed by a certificate that states no tensor."""
    variables = [{"op": "null", "name": "x", "attrs": {"__shape__": FOUR, "__dtype__": "5", "__input__": "True"}}]
    variables += [
        {"op": "null", "name": n, "attrs": {"__shape__": str(s), "__dtype__": "5"}} for n, s in weights.items()
    ]
    operator = {"op": op, "name": "y", "attrs": attributes, "inputs": [[k, 0, 0] for k in range(len(variables))]}
    nodes = [*(node | {"inputs": []} for node in variables), operator]
    graph = {"nodes": nodes, "heads": [[len(nodes) - 1, 0, 0]], "attrs": {"format_version": ["int", 1]}}
    entry = {"name": "x", "shape": [1, 1, 2, 2], "dtype": "int8", "scale": 1.0, "zero_point": 0, "lo": 0, "hi": 1}
    facts = {"format_version": 1, "inputs": [entry | {"is_given": False}], "outputs": [], "notes": []}
    facts |= {"thresholds": {}, "scales": {}, "zero_points": {}}
    parameters = {name: np.ones(shape, np.int8) for name, shape in weights.items()}
    files = {
        GRAPH: json.dumps(graph).encode(),
        QUANTIZATION: json.dumps(facts).encode(),
        "params.safetensors": safetensors.numpy.save(parameters),
    }
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    counts: Facts = {"max_bits": 0, "tensor_count": 0, "operator_count": 0, "operators": {}, "tensors": {}}
    files[CERTIFICATE_FILE] = json.dumps({"format_version": 1, "files": digests} | counts).encode()
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
