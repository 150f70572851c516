"""C of chains at the ends of 32 bits: every operation is defined, and the integers are those of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_programs import SANITIZED, Programs

from tests.extremes import chains, named_chains


@pytest.mark.parametrize("flags", [SANITIZED, ("-O2",)], ids=["sanitized", "optimized"])
def test_chains_are_exact(flags: tuple[str, ...], tmp_path: Path) -> None:
    drawn = [named_chains(), chains(0, 12), chains(1, 12)]
    programs = Programs.of([(each.graph, each.inputs) for each in drawn], tmp_path, *flags)
    for index, each in enumerate(drawn):
        (found,) = programs.run(index, [each.feeds])
        for symbol, integers, expected in zip(each.graph.outputs, found, each.expected, strict=True):
            assert integers.tolist() == expected.tolist(), symbol
