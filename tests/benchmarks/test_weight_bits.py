"""What weights of fewer bits save: the layer has the bits that its name says, and the table is printed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from loaded import BENCHMARKS, load_benchmark

weight_bits = load_benchmark("weight_bits")


@pytest.mark.parametrize("bits", weight_bits.BITS)
def test_the_weights_have_their_bits(bits: int) -> None:
    graph = weight_bits.layer("uint8", bits, 1, 64)
    weight = next(value for value in graph.parameters.values() if value.size == 64 * 64)
    assert (weight.min(), weight.max()) == (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)


@pytest.mark.exhaustive
def test_a_table_is_printed() -> None:
    command = [sys.executable, BENCHMARKS / "weight_bits.py", "--size", "256", "--seconds", "0.1", "--threads", "1,2"]
    done = subprocess.run([*command, "--bits", "8,4"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "| uint8 | 2 | 1 | 4 |" in done.stdout
