"""TVM is loaded without PyTorch, whose tensors it takes all the same where PyTorch is imported later."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import sys
import mrt.backend, mrt.runtime
assert "torch" not in sys.modules, "TVM has loaded PyTorch"
import torch
import tvm
held = tvm.runtime.from_dlpack(torch.arange(6.0).reshape(2, 3))
assert held.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
assert torch.from_dlpack(held).sum() == 15
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed, so nothing could load it")
def test_pytorch_is_loaded_by_whoever_needs_it() -> None:
    child = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


def test_pytorch_that_is_loaded_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    from mrt import lean_tvm

    held = object()
    monkeypatch.setitem(sys.modules, "torch", held)
    lean_tvm._load_tvm()
    assert sys.modules["torch"] is held
