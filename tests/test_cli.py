"""The command: exit statuses, and one line on stderr for whatever a user can mend."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner, Result

import mrt
from mrt.cli import app

CONFIG = """\
model: {path: net.onnx}
data:
  calibration: {npz: data.npz}
  test: {npz: data.npz, y: y}
output: out
"""


def save_network(path: Path, op: str = "Relu") -> None:
    """One convolution and one more operator, for float32 [1, 1, 4, 4]."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 1, 3, 3], np.linspace(-1, 1, 18).tolist())
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["conv"]), helper.make_node(op, ["conv"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_project(folder: Path) -> Path:
    """A network, data and a configuration that run."""
    save_network(folder / "net.onnx")
    x = np.random.default_rng(0).normal(size=(6, 1, 4, 4)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=np.zeros(6, np.int64))
    (folder / "config.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_project(tmp_path)


@pytest.fixture(scope="module")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the stages up to quantize were run."""
    folder = save_project(tmp_path_factory.mktemp("project"))
    assert call("run", folder / "config.yaml", "--to", "quantize").exit_code == 0
    return folder


@pytest.fixture
def quantized(run_once: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(run_once, tmp_path / "project"))


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def failure(*arguments: str | Path) -> str:
    """The one line on stderr of a command that fails with status 1."""
    result = call(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_run_makes_a_model_that_verify_accepts(folder: Path) -> None:
    result = call("run", folder / "config.yaml", "--output", folder / "made")
    assert result.exit_code == 0, result.output
    assert "top-1" in result.stdout and str(folder / "made") in result.stdout.replace("\n", "")
    assert not (folder / "out").exists()
    verified = call("verify", folder / "made")
    assert verified.exit_code == 0 and "integer-only" in verified.stdout
    parameters = folder / "made" / "params.safetensors"
    parameters.write_bytes(parameters.read_bytes()[:-1] + b"\x55")
    assert "params.safetensors" in failure("verify", folder / "made")


def test_inspect_shows_every_tensor_or_explains_one(folder: Path) -> None:
    assert call("run", folder / "config.yaml").exit_code == 0
    model = mrt.load(folder / "out")
    table = call("inspect", folder / "out", "--tensors")
    assert table.exit_code == 0, table.output
    assert [line.split(" ")[0] for line in table.stdout.split("\n\n")[0].splitlines()[1:]] == list(model.graph.by_name)
    assert " dB " in table.stdout and "over 6 samples" in table.stdout
    told = call("inspect", folder / "out", "--symbol", "conv")
    assert told.exit_code == 0 and "by bounds of Convolution" in told.stdout
    assert "convolve" in failure("inspect", folder / "out", "--symbol", "convolve")
    assert "the nearest are conv" in failure("inspect", folder / "out", "--symbol", "convv")


def test_inspect_shows_layers_of_a_model_that_was_not_measured(quantized: Path) -> None:
    shown = call("inspect", quantized / "out")
    assert shown.exit_code == 0, shown.output
    rows, below = shown.stdout.split("\n\n")
    assert [line.split(" ")[0] for line in rows.splitlines()[1:]] == ["x", "y"]
    assert "convolution 3×3" in rows and "not measured" in below
    assert "stage report" in failure("inspect", quantized / "out", "--sort", "share")
    assert "error, share, bits" in failure("inspect", quantized / "out", "--sort", "size")
    (only,) = json.loads(call("inspect", quantized / "out", "--sort", "headroom", "--worst", "1", "--json").stdout)
    widest = only["headroom"]["sum"]
    fact = mrt.load(quantized / "out").certificate.tensors[widest["name"]]
    assert (widest["lo"], widest["hi"]) == (fact.lo, fact.hi) and widest["operator"] in ("Convolution", "broadcast_add")


def test_inspect_shows_what_the_model_is_compiled_to(quantized: Path) -> None:
    result = call("inspect", quantized / "out", "--compiled", "--target", '{"kind": "llvm", "mcpu": "x86-64-v3"}')
    assert result.exit_code == 0, result.output
    told = result.stdout
    assert "Convolution + " in told
    assert "int16 x int16, 2 at once in 8 lanes (llvm.x86.avx2.pmadd.wd)" in told
    assert "ends: an output of the graph" in told
    assert any(line.endswith(" calls") for line in told.splitlines())
    assert "z80" in failure("inspect", quantized / "out", "--compiled", "--target", '{"kind": "llvm", "mcpu": "z80"}')


def test_inspect_shows_the_plan_once_the_network_is_calibrated(folder: Path) -> None:
    assert "calibrate" in failure("inspect", folder / "config.yaml", "--plan")
    assert not (folder / "out").exists()
    assert call("run", folder / "config.yaml", "--to", "calibrate").exit_code == 0
    shown = call("inspect", folder / "config.yaml", "--plan")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("x (input): [") and "    to conv, input 0: as it is\n" not in shown.stdout
    assert "    output: [-32767, 32767], scale " in shown.stdout
    one = call("inspect", folder / "config.yaml", "--plan", "--symbol", "conv")
    assert one.stdout in shown.stdout and one.stdout.startswith("conv (Convolution)")
    assert "the nearest are conv" in failure("inspect", folder / "config.yaml", "--plan", "--symbol", "convv")


def test_inspect_shows_where_accuracy_is_lost(folder: Path) -> None:
    assert "--to calibrate" in failure("inspect", folder / "config.yaml", "--sensitivity")
    assert not (folder / "out").exists()
    assert call("run", folder / "config.yaml", "--to", "calibrate").exit_code == 0
    assert "CONFIG.yaml" in failure("inspect", folder / "out", "--sensitivity")
    shown = call("inspect", folder / "config.yaml", "--sensitivity")
    assert shown.exit_code == 0, shown.output
    table, told = shown.stdout.split("\n\n")
    lines = [line.split() for line in table.splitlines()]
    assert lines[0][:5] == ["rounded", "operator", "what", "bits", "share"]
    assert ["conv", "Convolution", "weight", "8"] in [line[:4] for line in lines]
    assert sum(float(line[4]) for line in lines[1:]) == pytest.approx(100, abs=0.1 * len(lines))
    assert told.startswith("all rounded: ") and "1 held-apart sample" in told
    one = call("inspect", folder / "config.yaml", "--sensitivity", "--symbol", "conv")
    assert {line.split()[0] for line in one.stdout.split("\n\n")[0].splitlines()} == {"rounded", "conv"}


def test_compile_makes_the_module_anew_for_whoever_trusts_none(quantized: Path) -> None:
    """What is there is replaced and never loaded: here it is no library at all."""
    out = quantized / "out"
    assert "no compiled module" in call("verify", out).stdout
    assert call("inspect", out, "--compiled").stdout.startswith("no compiled module")
    for name in ("model.so", "model.so.json"):
        (out / name).write_text("not compiled")
    assert "model.so.json is no record" in failure("verify", out)
    assert "model.so.json is no record" in failure("inspect", out, "--compiled")
    made = call("compile", out, "--batch", "3", "--target", '{"threads": 1}')
    assert made.exit_code == 0, made.output
    digest, model = sha256((out / "model.so").read_bytes()).hexdigest(), mrt.load(out)
    assert digest in made.stdout and f"model: {model.digest}" in made.stdout and "threads: 1\n" in made.stdout
    assert f"SHA-256 {digest}" in call("verify", out).stdout
    assert call("inspect", out, "--compiled").stdout.startswith(made.stdout)
    integers = np.arange(-8, 8, dtype=model.inputs[0].dtype).reshape(1, 1, 4, 4)
    module = mrt.load_module(out / "model.so", model.digest)
    np.testing.assert_array_equal(module.run_integer(integers), model.graph.evaluate({"x": integers})[0])
    assert module.batch == 3


def test_compile_refuses_by_one_line_and_leaves_what_is_there(folder: Path) -> None:
    out = folder / "out"
    assert call("run", folder / "config.yaml", "--to", "compile").exit_code == 0
    before = (out / "model.so").read_bytes()
    assert "a whole number, 1 or more, is needed" in failure("compile", out, "--batch", "0")
    assert "z80" in failure("compile", out, "--target", '{"mcpu": "z80"}')
    assert "certificate.json is missing" in failure("compile", folder)
    (out / "graph.json").write_text("{}")
    assert "graph.json: its SHA-256" in failure("compile", out)
    assert (out / "model.so").read_bytes() == before


@pytest.mark.parametrize("columns", [60, 300])
def test_inspect_on_a_terminal_shows_every_tensor_too(quantized: Path, columns: int) -> None:
    terminal = {"FORCE_COLOR": "1", "COLUMNS": str(columns)}
    result = CliRunner().invoke(app, ["inspect", str(quantized / "out"), "--tensors"], env=terminal)
    assert result.exit_code == 0, result.output
    assert "\x1b[" in result.stdout and "…" not in result.stdout
    assert [
        name for name in mrt.load(quantized / "out").graph.by_name if columns > 60 and name not in result.stdout
    ] == []


def test_inspect_without_errors_and_without_a_model(quantized: Path) -> None:
    result = call("inspect", quantized / "out")
    assert result.exit_code == 0 and "not measured" in result.stdout
    assert " dB" not in result.stdout.split("\n\n")[0]
    (quantized / "out" / "errors.json").write_text("[")
    assert "errors.json is malformed" in failure("inspect", quantized / "out")
    assert "certificate.json" in failure("inspect", quantized)


def test_stages_and_keys_are_chosen_on_the_command_line(folder: Path) -> None:
    assert call("run", folder / "config.yaml", "--to", "calibrate").exit_code == 0
    assert not (folder / "out" / "graph.json").exists()
    resumed = call(
        "run", folder / "config.yaml", "--from", "quantize", "--to", "quantize", "--set", "quantize.activation.bits=4"
    )
    assert resumed.exit_code == 0, resumed.output
    assert mrt.load(folder / "out").inputs[0].hi == 7


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    assert "certificate.json" in failure("verify", tmp_path)


def test_a_truncated_model(folder: Path) -> None:
    content = (folder / "net.onnx").read_bytes()
    (folder / "net.onnx").write_bytes(content[: len(content) // 2])
    assert "net.onnx" in failure("run", folder / "config.yaml")
    assert not (folder / "out").exists()


def test_a_missing_model(folder: Path) -> None:
    assert "none.onnx" in failure("run", folder / "config.yaml", "--set", "model.path=none.onnx")


def test_an_uncovered_operator(folder: Path) -> None:
    save_network(folder / "net.onnx", "Bernoulli")
    # ONNX defines it by another one, which is random too.
    assert "RandomUniformLike" in failure("run", folder / "config.yaml")


def test_a_misspelt_key(folder: Path) -> None:
    (folder / "config.yaml").write_text(CONFIG + "quantize:\n  activation: {bit: 8}\n")
    message = failure("run", folder / "config.yaml")
    assert "config.yaml:7: quantize.activation.bit" in message and "quantize.activation.bits?" in message


def test_a_missing_array_a_wrong_rank_and_nan(folder: Path) -> None:
    assert "no array 'images'" in failure("run", folder / "config.yaml", "--set", "data.calibration.x=images")
    np.savez(folder / "flat.npz", x=np.zeros((6, 16)))
    assert "rank 4 is needed" in failure("run", folder / "config.yaml", "--set", "data.calibration.npz=flat.npz")
    np.savez(folder / "nan.npz", x=np.full((6, 1, 4, 4), np.nan))
    assert "NaN" in failure("run", folder / "config.yaml", "--set", "data.calibration.npz=nan.npz")
    assert not (folder / "out" / "graph.json").exists()


def test_an_output_that_is_a_file(folder: Path) -> None:
    (folder / "out").write_text("")
    assert "cannot be written" in failure("run", folder / "config.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_read_only_output(folder: Path) -> None:
    (folder / "out").mkdir(mode=0o555)
    assert "out cannot be written: Permission denied" in failure("run", folder / "config.yaml")


def test_a_file_system_error_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied", "here")

    monkeypatch.setattr("mrt.pipeline.run_pipeline", denied)
    assert failure("run", folder / "config.yaml") == "error: here: Permission denied\n"


def test_a_message_of_several_lines_becomes_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise mrt.MRTError("one\n  two")

    monkeypatch.setattr("mrt.pipeline.run_pipeline", fail)
    assert failure("run", folder / "config.yaml") == "error: one two\n"


def test_an_interrupt_is_status_130(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mrt.pipeline.run_pipeline", interrupt)
    assert call("run", folder / "config.yaml").exit_code == 130


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["walk"], ["run", "c.yaml", "--from", "start"], ["verify", "a", "b"], ["export", "a", "--format", "b"]],
)
def test_usage_errors_are_status_2(arguments: list[str]) -> None:
    assert call(*arguments).exit_code == 2


def test_version() -> None:
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"mrt {mrt.__version__}\n")


def test_python_runs_the_package_as_the_command() -> None:
    told = subprocess.run([sys.executable, "-m", "mrt", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"mrt {mrt.__version__}\n"


BUSY = """
import threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
from mrt.cli import main
main()
"""


def test_the_command_ends_at_once_whatever_threads_are_at_work() -> None:
    """Interrupted runs leave some; a thread of Python's that sleeps stands for them."""
    told = subprocess.run([sys.executable, "-c", BUSY, "--version"], capture_output=True, text=True, timeout=120)
    assert (told.returncode, told.stdout) == (0, f"mrt {mrt.__version__}\n")


FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
from mrt.cli import main
main()
"""


def test_a_disk_that_takes_no_more_is_one_line_and_leaves_no_half_file(folder: Path) -> None:
    """A limit on the size of files stands for a full disk: writes fail in the middle, as they do there."""
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, "run", str(folder / "config.yaml")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.returncode == 1, child.stderr
    assert child.stderr.startswith("error: cannot write ") and child.stderr.endswith(": File too large\n")
    assert child.stderr.count("\n") == 1
    assert [path for path in (folder / "out").rglob("*") if path.is_file()] == []
