"""TVM is loaded without other devices, and without PyTorch, whose tensors it takes all the same where PyTorch is
imported later; and a module runs without TVM's compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import mrt
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import NumpyRunner
from mrt.symbol.operators.linear import FullyConnected
from tests.quantization.networks import chain

FIRST = {
    ("mrt.runtime", None): "False None",
    ("mrt.execution.environment", "0"): "False 0",
    ("mrt.frontend.relax", "1"): "True 1",
    ("mrt.transform", None): "False None",
}
"""Modules that load TVM, by whichever a program begins, and what is set of `VARIABLE`: whether another device is loaded
then, and what is set afterwards. By mrt.backend a program begins that imports PyTorch later."""
VARIABLE = "TVM_DEVICE_BACKEND_AUTOLOAD"
PROGRAM = """
import importlib, os, sys
importlib.import_module(sys.argv[1])
assert "tvm" in sys.modules
assert "torch" not in sys.modules, "TVM has loaded PyTorch"
import tvm
assert "tvm.runtime.disco" not in sys.modules and tvm.runtime.disco is None
print("tvm.backend.cuda.ptx" in sys.modules, os.environ.get("TVM_DEVICE_BACKEND_AUTOLOAD"))
"""
IMPORTED_LATER = """
import torch
import tvm
held = tvm.runtime.from_dlpack(torch.arange(6.0).reshape(2, 3))
assert held.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
assert torch.from_dlpack(held).sum() == 15
"""


@pytest.mark.parametrize(("first", "asked"), FIRST)
def test_tvm_loads_neither_pytorch_nor_other_devices_that_nobody_asks_for(first: str, asked: str | None) -> None:
    """Where PyTorch is not installed, the first is no news."""
    variables = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if asked is not None:
        variables[VARIABLE] = asked
    child = subprocess.run([sys.executable, "-c", PROGRAM, first], capture_output=True, text=True, env=variables)
    assert (child.returncode, child.stdout.strip()) == (0, FIRST[first, asked]), child.stderr


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed, so nothing could load it")
def test_tensors_of_pytorch_are_taken_where_it_is_imported_later() -> None:
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM + IMPORTED_LATER, "mrt.backend"], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr


def test_pytorch_that_is_loaded_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    from mrt import lean_tvm

    held = object()
    monkeypatch.setitem(sys.modules, "torch", held)
    lean_tvm._load_tvm()
    assert sys.modules["torch"] is held


FROM_TORCH = """
import sys
import torch
import mrt
module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval()
mrt.from_torch(torch.export.export(module, (torch.randn(1, 3),)))
assert "tvm" in sys.modules and "tvm.backend.cuda.ptx" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed, so none of its programs is read")
def test_the_reader_of_pytorchs_programs_loads_no_more() -> None:
    child = subprocess.run([sys.executable, "-c", FROM_TORCH], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


ALONE = """
import sys
import numpy as np
from mrt.runtime import load_module
folder = sys.argv[1]
found = load_module(folder + "/model.so")(np.load(folder + "/x.npy"))
assert found.tobytes() == np.load(folder + "/y.npy").tobytes()
held = open("/proc/self/maps").read()
assert "libtvm_runtime.so" in held and "libtvm_compiler" not in held and "LLVM" not in held
assert not {"mrt.backend", "mrt.quantization", "mrt.export", "mrt.certificate"} & set(sys.modules)
"""


def test_a_module_runs_without_the_compiler(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    graph = chain((1, 8), (FullyConnected(4, no_bias=True), [random.standard_normal((4, 8))]))
    x = random.standard_normal((5, 8)).astype(np.float32)
    module = mrt.quantize(graph, x, QuantizationConfig(preset="fast"), runner=NumpyRunner()).compile()
    module.save(tmp_path / "model.so")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", module(x))
    child = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path)],
        env={**os.environ, "TVM_USE_RUNTIME_LIB": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr


def test_mrt_itself_loads_nothing_heavy() -> None:
    """So the command tells of an interruption by one line from its first moment."""
    program = "import sys, mrt; print(*{'numpy', 'tvm', 'torch', 'typer', 'pydantic'} & set(sys.modules), sep=',')"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (child.returncode, child.stdout.strip()) == (0, ""), child.stderr
    assert mrt.Graph.__module__.startswith("mrt.symbol") and mrt.Symbol.__module__.startswith("mrt.symbol")
