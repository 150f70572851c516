"""What fuzzing begins with is whole: every operator of integer graphs is grown, every file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import mrt
from mrt.symbol.operator import registered_operators
from tests.fuzz import corpus
from tests.fuzz.files import read
from tests.fuzz.growers import GROWERS

FLOAT_ONLY = """
    round_to_grid
    broadcast_div exp log sqrt rsqrt floor ceil trunc round rint round_half_even sign reciprocal erf softsign
    hard_sigmoid softrelu silu hard_swish mish _power_scalar LeakyReLU tanh sigmoid FakeQuantize InstanceNorm
    L2Normalization quantize dequantize BatchNorm LayerNorm softmax log_softmax mean elementwise_region _div_scalar
    _rdiv_scalar cos sin tan sinh cosh arcsin arccos arctan arcsinh arccosh arctanh _mod_scalar
    isnan isinf
"""
"""Operators that no finished integer graph holds."""


def test_every_operator_of_integer_graphs_is_grown() -> None:
    """Whoever adds an operator says how it is grown, or that it is of floats."""
    own = {record.op for record in registered_operators() if record.__module__.startswith("mrt.")}  # not those of tests
    assert own - {"null"} == {*GROWERS, *FLOAT_ONLY.split()}


@pytest.mark.slow
def test_every_file_is_read_as_it_is(tmp_path: Path) -> None:
    for number, example in enumerate((*corpus.examples(), *corpus.models())):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in example.files.items():
            (folder / name).write_bytes(content)
        if example.format == "model":
            mrt.load(folder)
        else:
            read(example.format, folder / example.main)
