"""Converters found by the operator that they convert."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from mrt.errors import GraphError
from mrt.frontend.shared.registry import Converters


def test_one_converter_for_each_operator() -> None:
    converters: Converters[Callable[[int], int]] = Converters("Test")
    assert converters.register("neg", "minus")(int.__neg__) is int.__neg__
    assert converters.find("neg") is converters.find("minus") is int.__neg__
    assert converters.find("pos") is None
    with pytest.raises(GraphError, match="two converters for the Test operator minus"):
        converters.register("minus")(int.__pos__)


def test_whoever_looks_one_up_finds_all_of_a_format() -> None:
    """Though nothing has imported its reader."""
    code = "from mrt.frontend.onnx.node import covered_operators as o; print('Conv' in o(), 'QLinearConv' in o())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
