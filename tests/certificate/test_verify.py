"""mrt verify: an untouched model passes, every kind of tampering is named."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mrt.calibration import Range
from mrt.certificate import CERTIFICATE_FILE, certify, verify
from mrt.compilation import TargetConfig
from mrt.errors import VerificationError
from mrt.model import QuantizedModel, assemble, load
from mrt.module_record import ModuleRecord, Provenance, Versions
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution


def small_model() -> QuantizedModel:
    """One convolution with bias and relu, quantized with made-up ranges."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 5, 5)))
    weight = builder.parameter("w", rng.standard_normal((4, 3, 3, 3)).astype(np.float32))
    bias = builder.parameter("b", rng.standard_normal((1, 4, 1, 1)).astype(np.float32))
    conv = builder.apply(Convolution(kernel=(3, 3), num_filter=4, no_bias=True), [x, weight], "conv")
    out = builder.apply(Relu(), [builder.apply(BroadcastAdd(), [conv, bias], "add")], "out")
    graph = builder.graph([out])
    ranges = {name: Range(-3.0, 3.0) for name in ("x", "conv", "add")} | {"out": Range(0.0, 3.0)}
    return assemble(expand_graph(graph, ranges, QuantizationConfig()), None, ranges)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_model().save(tmp_path / "model")
    return tmp_path / "model"


def refresh_digests(folder: Path) -> None:
    """What a careful forger would do: the certificate vouches for the altered files."""
    path = folder / CERTIFICATE_FILE
    certificate = json.loads(path.read_text())
    for name in certificate["files"]:
        certificate["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    path.write_text(json.dumps(certificate))


def edit_json(path: Path, change: object) -> None:
    data = json.loads(path.read_text())
    change(data)  # type: ignore[operator]
    path.write_text(json.dumps(data))


def test_an_untouched_model_passes(folder: Path) -> None:
    summary = verify(folder)
    assert summary.max_bits <= 32
    assert summary.operators > 0
    assert summary.digest == hashlib.sha256((folder / CERTIFICATE_FILE).read_bytes()).hexdigest()


def test_a_changed_byte_is_found(folder: Path) -> None:
    path = folder / "params.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(VerificationError, match="params.safetensors: its SHA-256"):
        verify(folder)


def test_a_widened_weight_is_found(folder: Path) -> None:
    path = folder / "params.safetensors"
    arrays = load_file(path)
    arrays["w"] = np.full_like(arrays["w"], 127)
    save_file(arrays, path)
    refresh_digests(folder)
    with pytest.raises(VerificationError, match=r"is derived|bits, 32 are allowed"):
        verify(folder)


def test_an_altered_shift_is_found(folder: Path) -> None:
    path = folder / "params.safetensors"
    arrays = load_file(path)
    name = next(n for n in arrays if "shifted_by" in n)
    arrays[name] = np.zeros_like(arrays[name])
    save_file(arrays, path)
    refresh_digests(folder)
    with pytest.raises(VerificationError):
        verify(folder)


@pytest.mark.parametrize("refreshed", [False, True])
def test_swapped_parameters_are_found(tmp_path: Path, refreshed: bool) -> None:
    """Two weights of one shape and dtype change places, which no type can tell."""
    folder = tmp_path / "model"
    two_layers().save(folder)
    verify(folder)
    arrays = load_file(folder / "params.safetensors")
    assert (arrays["w1"].shape, arrays["w1"].dtype) == (arrays["w2"].shape, arrays["w2"].dtype)
    arrays["w1"], arrays["w2"] = arrays["w2"], arrays["w1"]
    save_file(arrays, folder / "params.safetensors")
    if refreshed:
        refresh_digests(folder)
    with pytest.raises(VerificationError, match="is derived" if refreshed else "params.safetensors: its SHA-256"):
        verify(folder)


def two_layers() -> QuantizedModel:
    """Two convolutions, the weights of the second being the wider sums."""
    builder = GraphBuilder()
    symbol = builder.input("x", TensorType((1, 2, 3, 3)))
    for index, weight in ((1, [[1.0, 0.1], [0.2, 1.0]]), (2, [[1.0, 1.0], [-1.0, 0.9]])):
        parameter = builder.parameter(f"w{index}", np.array(weight, np.float32).reshape(2, 2, 1, 1))
        operator = Convolution(kernel=(1, 1), num_filter=2, no_bias=True)
        symbol = builder.apply(operator, [symbol, parameter], f"conv{index}")
    ranges = {name: Range(-2.0, 2.0) for name in ("x", "conv1", "conv2")}
    return assemble(expand_graph(builder.graph([symbol]), ranges, QuantizationConfig()), None, ranges)


def test_parameters_exchanged_in_the_graph_are_found(tmp_path: Path) -> None:
    """Every node, tensor and type stays; the two convolutions read each other's weight."""
    folder = tmp_path / "model"
    two_layers().save(folder)

    def exchange(data: dict[str, list[dict[str, object]]]) -> None:
        for node in data["nodes"]:
            node["name"] = {"w1": "w2", "w2": "w1"}.get(str(node["name"]), node["name"])

    edit_json(folder / "graph.json", exchange)
    refresh_digests(folder)
    with pytest.raises(VerificationError, match="is derived"):
        verify(folder)


@pytest.mark.parametrize(
    ("reader", "source", "found"),
    [
        ("out", "conv", "is derived"),
        ("out_scaled", "add", "is derived"),
        ("out_shifted", "conv", "is derived"),
        ("add", "w", "shapes do not broadcast"),
        ("conv", "out", "an earlier node is needed"),
    ],
)
def test_a_rewired_input_is_found(folder: Path, reader: str, source: str, found: str) -> None:
    """An operator is made to read another tensor: past a bias, past a relu, past a factor, a parameter, a later one."""

    def rewire(data: dict[str, list[dict[str, list[list[int]]]]]) -> None:
        names = [node["name"] for node in data["nodes"]]
        data["nodes"][names.index(reader)]["inputs"][0] = [names.index(source), 0, 0]

    edit_json(folder / "graph.json", rewire)
    refresh_digests(folder)
    with pytest.raises(VerificationError, match=found):
        verify(folder)


@pytest.mark.parametrize("name", ["x", "w", "conv", "out_scaled", "out_int16"])
@pytest.mark.parametrize(("end", "change"), [("hi", 1), ("hi", -1), ("lo", 1), ("lo", -1), ("bits", -1), ("bits", 1)])
def test_a_bound_loosened_or_tightened_by_hand_is_found(folder: Path, name: str, end: str, change: int) -> None:
    """By one, at either end, of the input, a parameter, an operator."""

    def move(data: dict[str, dict[str, dict[str, int]]]) -> None:
        data["tensors"][name][end] += change

    edit_json(folder / CERTIFICATE_FILE, move)
    with pytest.raises(VerificationError, match=f"{name}: the certificate states|its counts do not match"):
        verify(folder)


def test_a_bound_loosened_to_the_limit_is_found(folder: Path) -> None:
    edit_json(folder / CERTIFICATE_FILE, lambda data: data["tensors"]["conv"].update(hi=2**31 - 1))
    with pytest.raises(VerificationError, match="conv: the certificate states .* another version of MRT"):
        verify(folder)


def test_a_widened_input_range_is_found(folder: Path) -> None:
    edit_json(folder / "quantization.json", lambda data: data["inputs"][0].update(hi=2**30))
    refresh_digests(folder)
    with pytest.raises(VerificationError):
        verify(folder)


def test_a_float_operator_is_found(folder: Path) -> None:
    def smuggle(data: dict[str, list[dict[str, object]]]) -> None:
        node = next(n for n in data["nodes"] if n["op"] == "relu")
        node["op"] = "sigmoid"

    edit_json(folder / "graph.json", smuggle)
    refresh_digests(folder)
    with pytest.raises(VerificationError):
        verify(folder)


def test_a_cast_to_float_is_found(folder: Path) -> None:
    """It fits every type around it, unlike a sigmoid."""

    def smuggle(data: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        node = next(n for n in data["nodes"] if n["op"] == "Cast")
        node["attrs"]["dtype"] = "float32"

    edit_json(folder / "graph.json", smuggle)
    refresh_digests(folder)
    with pytest.raises(VerificationError, match=r"out_int16 \(Cast\) is float32; integers of at most 32 bits"):
        verify(folder)


def test_a_float_parameter_is_found(folder: Path) -> None:
    arrays = load_file(folder / "params.safetensors")
    arrays["w"] = arrays["w"].astype(np.float32)
    save_file(arrays, folder / "params.safetensors")
    refresh_digests(folder)
    with pytest.raises(VerificationError, match=r"w .*float32|float32.*w"):
        verify(folder)


@pytest.mark.parametrize("name", ["graph.json", "params.safetensors", "quantization.json", CERTIFICATE_FILE])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(VerificationError, match=name):
        verify(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 99}', "null"])
def test_a_malformed_certificate_is_named(folder: Path, text: str) -> None:
    (folder / CERTIFICATE_FILE).write_text(text)
    with pytest.raises(VerificationError, match=CERTIFICATE_FILE):
        verify(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(files=["graph.json"]),
        lambda data: data["files"].update({"graph.json": 1}),
        lambda data: data.update(operators={"relu": "many"}),
        lambda data: data.update(operators=[]),
        lambda data: data["tensors"]["conv"].update(shape=7),
        lambda data: data["tensors"]["conv"].update(bits={}),
    ],
)
def test_facts_of_a_wrong_type_are_named(folder: Path, change: object) -> None:
    edit_json(folder / CERTIFICATE_FILE, change)
    with pytest.raises(VerificationError, match=f"{CERTIFICATE_FILE}|the certificate"):
        verify(folder)


@pytest.mark.parametrize("name", [CERTIFICATE_FILE, "quantization.json"])
def test_a_file_nested_too_deeply_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("[" * 200_000)
    if name != CERTIFICATE_FILE:
        refresh_digests(folder)
    with pytest.raises(VerificationError, match=name):
        verify(folder)


def test_a_graph_nested_as_deeply_as_its_reader_takes_is_named(folder: Path) -> None:
    nested: list[object] = []
    for _ in range(700):
        nested = [nested]
    edit_json(folder / "graph.json", lambda data: data.update(more=nested))
    refresh_digests(folder)
    with pytest.raises(VerificationError, match=r"graph\.json"):
        verify(folder)


def test_an_infinite_input_range_is_named(folder: Path) -> None:
    path = folder / "quantization.json"
    path.write_text(path.read_text().replace('"lo": -127', '"lo": -1e999', 1))
    refresh_digests(folder)
    with pytest.raises(VerificationError, match=r"quantization\.json"):
        verify(folder)


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        (lambda data: data["outputs"].clear(), "the outputs"),
        (lambda data: data["outputs"][0].update(shape=[1, 2, 3, 3]), "the outputs"),
        (lambda data: data["outputs"][0].update(name="conv"), "the outputs"),
        (lambda data: data["outputs"][0].update(scale=float("nan")), "finite numbers"),
        (lambda data: data["outputs"][0].update(hi=1), "is derived"),
        (lambda data: data["outputs"][0].pop("scale"), "malformed"),
        (lambda data: data["inputs"][0].update(dtype="int16"), "the inputs"),
        (lambda data: data["inputs"][0].update(scale=-1.0), "must be positive"),
    ],
)
def test_inputs_and_outputs_that_are_not_the_graphs_are_found(folder: Path, change: object, needed: str) -> None:
    edit_json(folder / "quantization.json", change)
    refresh_digests(folder)
    with pytest.raises(VerificationError, match=needed):
        verify(folder)


def test_a_float_graph_has_no_certificate() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    graph = builder.graph([builder.apply(Relu(), [x], "y")])
    with pytest.raises(VerificationError, match="float32"):
        certify(graph, {}, {})


def put_module(folder: Path, digest: str, content: bytes = b"never loaded") -> None:
    """A module of the model with that digest: to verify it, its code does not matter."""
    versions = Versions(mrt="1", tvm="1", llvm="1")
    made_from = Provenance(model=digest, target=TargetConfig(), versions=versions, batch=1, workers=1)
    (folder / "model.so").write_bytes(content)
    (folder / "model.so.json").write_bytes(ModuleRecord.of(content, made_from).to_json())


def test_a_module_that_is_recorded_as_of_the_model_passes(folder: Path) -> None:
    without = verify(folder)
    assert without.module is None and str(without).endswith("; no compiled module")
    put_module(folder, without.digest)
    found = verify(folder)
    digest = hashlib.sha256(b"never loaded").hexdigest()
    assert found.module is not None and found.module.sha256 == digest
    assert str(found).endswith(f"; model.so is recorded as compiled from it, SHA-256 {digest}")
    assert replace(found, module=None) == without


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "model.so").unlink(), r"model\.so is missing, model\.so\.json is there"),
        (lambda folder: (folder / "model.so.json").unlink(), r"model\.so\.json, the record of model\.so, is missing"),
        (lambda folder: (folder / "model.so").write_bytes(b"never loadeD"), "one of them was changed"),
        (lambda folder: (folder / "model.so").write_bytes(b"never"), "holds 5 bytes .* states 12 bytes"),
        (lambda folder: (folder / "model.so").write_bytes(b""), "holds 0 bytes"),
        (lambda folder: (folder / "model.so.json").write_bytes(b""), r"model\.so\.json is no record"),
        (lambda folder: put_module(folder, "0" * 64), f"compiled from the model with the digest {'0' * 64}, the model"),
        (lambda folder: edit_json(folder / "model.so.json", lambda data: data.update(note="")), "note is no key"),
    ],
)
def test_a_module_that_is_not_the_recorded_one_is_named(
    folder: Path, damage: Callable[[Path], object], said: str
) -> None:
    put_module(folder, verify(folder).digest)
    damage(folder)
    with pytest.raises(VerificationError, match=f"{said}.*compile it anew"):
        verify(folder)
    assert load(folder).files, "the graph is as it was, and what is compiled anew"


def test_a_model_that_was_saved_over_another_does_not_get_its_module(folder: Path) -> None:
    put_module(folder, verify(folder).digest)
    model = small_model()
    replace(model, notes=("changed",)).save(folder)
    with pytest.raises(VerificationError, match="compiled from the model with the digest"):
        verify(folder)


VERIFY = """
import sys
import mrt
summary = mrt.verify(sys.argv[1])
assert summary.module is not None
print([name for name in sys.modules if name.startswith(("tvm", "mrt.backend", "mrt.runtime", "mrt.quantization"))])
"""


def test_who_verifies_loads_no_machine_code(folder: Path) -> None:
    put_module(folder, verify(folder).digest)
    child = subprocess.run([sys.executable, "-c", VERIFY, folder], capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (0, "[]\n"), child.stderr


def test_a_model_that_is_replaced_meanwhile_is_the_former_or_the_new_one(tmp_path: Path) -> None:
    models = [small_model(), two_layers()]
    models[0].save(tmp_path)
    saves, ended = 0, threading.Event()

    def replace() -> None:
        nonlocal saves
        while not ended.wait(0.03):
            saves += 1
            models[saves % 2].save(tmp_path)

    other = threading.Thread(target=replace)
    other.start()
    try:
        found = {verify(tmp_path).digest for _ in range(80)}
    finally:
        ended.set()
        other.join()
    assert found == {model.digest for model in models} and saves > 1
