"""docs/deploy.md: its programs are compiled and run as they are printed, on the digits network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from c_programs import STRICT, compile_c

import mrt
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, NumpyRunner

ROOT = Path(__file__).parents[2]
DIGITS, PAGE = ROOT / "examples" / "digits", (ROOT / "docs" / "deploy.md").read_text()
SAMPLES = 7
pytestmark = pytest.mark.slow


def block(language: str, heading: str) -> str:
    """The first program of a section in a language."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[0]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Array, Array]:
    """A folder with all ways out, what the module says of some images, and the scores before the softmax."""
    with np.load(DIGITS / "data.npz", allow_pickle=False) as data:
        calibration, x = (data[f"x_{split}"].astype(np.float32) / 16 for split in ("calibration", "test"))
    config = QuantizationConfig(preset="fast")
    model = mrt.quantize(mrt.load_model(DIGITS / "digits.onnx"), calibration[:32], config, runner=NumpyRunner())
    model, folder = model.rebatched(1), tmp_path_factory.mktemp("shipped")
    model.to_library(folder / "deploy", name="digits")
    model.to_c(folder / "firmware", name="digits")
    model.to_onnx(folder / "deploy" / "digits.onnx", batch="any", ends="float")
    module = model.compile()
    module.save(folder / "deploy" / "model.so")
    np.save(folder / "images.npy", x[:SAMPLES])
    scores = model.dequantize_outputs(model.rebatched(SAMPLES).graph.evaluate(model.quantize_inputs(x[:SAMPLES])))
    return folder, np.asarray(module(x[:SAMPLES])), scores[0]


def of_program(folder: Path, code: str, *flags: str | Path) -> Array:
    (folder / "main.c").write_text(code)
    compile_c(*STRICT, folder / "main.c", *flags, "-o", folder / "main")
    fed = np.load(folder / "images.npy").tobytes()
    done = subprocess.run([folder / "main"], input=fed, capture_output=True, check=True)
    return np.array([line.split() for line in done.stdout.splitlines()], np.float32)


def of_script(folder: Path, code: str) -> Array:
    (folder / "chances.npy").unlink(missing_ok=True)
    alone = {**os.environ, "TVM_USE_RUNTIME_LIB": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Array = np.load(folder / "chances.npy")
    return found


def test_the_library_in_c_and_in_python(shipped: tuple[Path, Array, Array]) -> None:
    folder, chances, _ = shipped
    heading, deploy = "A shared library with a C interface", folder / "deploy"
    linked = (f"-I{deploy}", f"-L{deploy}", "-ldigits", f"-Wl,-rpath,{deploy}")
    np.testing.assert_array_equal(of_program(folder, block("c", heading), *linked), chances)
    np.testing.assert_array_equal(of_script(folder, block("python", heading)), chances)


def test_c99(shipped: tuple[Path, Array, Array]) -> None:
    folder, _, scores = shipped
    flags = (f"-I{folder / 'firmware'}", folder / "firmware" / "digits.c")
    np.testing.assert_array_equal(of_program(folder, block("c", "C99"), *flags), scores)


def test_onnx_and_the_module(shipped: tuple[Path, Array, Array]) -> None:
    folder, chances, _ = shipped
    np.testing.assert_allclose(of_script(folder, block("python", "ONNX")), chances, atol=1e-6)
    np.testing.assert_array_equal(of_script(folder, block("python", "`model.so` in Python")), chances)
