"""The example package, installed as its users do, taken through every way into and out of a model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import plugin_networks as networks
import pytest
from children import PACKAGE, child_environment

import mrt

SAMPLES = np.random.default_rng(1).standard_normal((16, *networks.SHAPE[1:])).astype(np.float32)

Call = Callable[..., str]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed the example package."""
    if find_spec("pip") is None or find_spec("setuptools") is None:
        pytest.skip("pip and setuptools, which build the example package, are not installed")
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(PACKAGE, folder / "source")  # pip builds within it
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", folder / "site", folder / "source"], check=True)
    return folder / "site"


@pytest.fixture(scope="module")
def call(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Calls Python where the package is installed, in the folder of a finished `mrt run`, and gives what it prints."""
    folder = tmp_path_factory.mktemp("run")

    def call(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=folder, env=child_environment(site), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    networks.save_network(folder / "net.onnx")
    np.savez(folder / "data.npz", x=SAMPLES)
    (folder / "config.yaml").write_text(networks.CONFIG)
    call("-m", "mrt.cli", "run", "config.yaml", "--to", "compile")
    return call


@pytest.fixture(scope="module")
def folder(call: Call) -> Path:
    """The folder of the run."""
    return Path(call("-c", "import os; print(os.getcwd())").strip())


COMMANDS = """
import json
from typer.testing import CliRunner
from mrt.cli import app
for command in ("verify out", "inspect out --tensors", "export out --format onnx --batch 16"):
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    print(json.dumps(done.stdout))
"""


@pytest.fixture(scope="module")
def told(call: Call) -> list[str]:
    """What `mrt verify`, `mrt inspect` and `mrt export` say of the model."""
    return [json.loads(line) for line in call("-c", COMMANDS).splitlines()]


def test_run_measures_the_operator_as_any(folder: Path) -> None:
    certificate = json.loads((folder / "out" / "certificate.json").read_text())
    assert certificate["operators"]["acme_cyclic_shift"] == 2
    assert (folder / "out" / "model.so").is_file()


VERIFIED = """
import sys, mrt
print(mrt.verify("out"))
assert "cyclic_shift" in sys.modules
print([name for name in sys.modules if name.startswith(("tvm", "onnx", "mrt.backend", "mrt.quantization"))])
"""


def test_verify_takes_the_record_and_nothing_else(call: Call, told: list[str]) -> None:
    said, loaded = call("-c", VERIFIED).splitlines()
    assert said.startswith("integer-only: ") and "model.so is recorded as compiled from it" in said
    assert loaded == "[]"
    assert said in told[0]


def test_inspect_shows_the_operator(told: list[str]) -> None:
    assert "acme_cyclic_shift" in told[1]


COMPUTED = """
import json, numpy as np, mrt
model = mrt.load("out").rebatched(16)
x = np.load("data.npz")["x"]
module = model.compile(batch=16)
fed = model.quantize_inputs(x)
np.savez("computed.npz", x=fed["x"], evaluated=model.graph.evaluate(fed)[0], real=module(x),
         compiled=module.run_integer(fed))
header, source, *_ = model.to_c("c")
print(json.dumps(source.read_text()))
try:
    model.to_relay("net.relay")
except mrt.MRTError as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture(scope="module")
def computed(call: Call) -> list[str]:
    """The C source of the model, and why it is refused in Relay; its integers are in computed.npz."""
    return [json.loads(line) for line in call("-c", COMPUTED).splitlines()]


def test_load_compile_and_export_give_the_same_integers(computed: list[str], told: list[str], folder: Path) -> None:
    assert "acme_cyclic_shift" in computed[0], "C is made from the compute"
    assert "model.onnx" in told[2]
    arrays = np.load(folder / "computed.npz")
    session = onnxruntime.InferenceSession(folder / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    (exported,) = session.run(None, {"x": arrays["x"]})
    np.testing.assert_array_equal(arrays["compiled"], arrays["evaluated"])
    np.testing.assert_array_equal(exported, arrays["evaluated"])
    expected = networks.reference(SAMPLES)
    assert np.abs(arrays["real"] - expected).max() < 0.02 * np.abs(expected).max()


def test_a_format_without_an_exporter_refuses_the_operator(computed: list[str]) -> None:
    assert "no form in Relay's integer operators: acme_cyclic_shift (2: rows, turned)" in computed[1]


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda folder: mrt.load_model(folder / "net.onnx"), r"acme\.CyclicShift ×2 \(rows, turned\)"),
        (lambda folder: mrt.load(folder / "out"), "acme_cyclic_shift is not known; if a plug-in brings it, install"),
        (lambda folder: mrt.verify(folder / "out"), "acme_cyclic_shift is not known; if a plug-in brings it, install"),
    ],
)
def test_without_the_package_its_operator_is_refused(folder: Path, read: Callable[[Path], object], said: str) -> None:
    with pytest.raises(mrt.MRTError, match=said):
        read(folder)


UNTOUCHED = """
import sys
from mrt.quantization.expansion import expanded_operators
from mrt.symbol import GraphBuilder, TensorType, find_operator
builder = GraphBuilder()
print(builder.apply(find_operator("relu")(), [builder.input("x", TensorType((1, 2)))]), "cyclic_shift" in sys.modules)
print("acme_cyclic_shift" in expanded_operators(), "cyclic_shift" in sys.modules)
"""


def test_a_graph_of_built_in_operators_loads_no_plugin_before_it_is_quantized(call: Call) -> None:
    assert call("-c", UNTOUCHED).splitlines() == ["<relu (relu) float32[1, 2]> False", "True True"]
