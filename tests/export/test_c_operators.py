"""Every operator with an integer form, quantized in some way and written as C: the same integers, nothing undefined."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_programs import SANITIZED, Programs

from mrt.model import assemble
from tests.matrix import CASES, extreme_feeds
from tests.quantization.networks import quantize_and_run

GROUPS = 6
"""So many programs hold the cases, each a mixture of them."""


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_operator(group: int, tmp_path: Path) -> None:
    """Ordinary integers, and all at the ends of their ranges. Each case has one pair of quantizers and 8 or 16 bits."""
    graphs, samples = [], []
    for place, case in list(enumerate(CASES))[group::GROUPS]:
        configs = [*case.configs(8), *case.configs(16)]
        drawn = [case.draw(seed) for seed in (1, 2)]
        integer = quantize_and_run(case.graph, drawn, configs[place // GROUPS % len(configs)]).integer
        model = assemble(integer, None, {})
        graphs.append((model.graph, model.inputs))
        samples.append([*(model.quantize_inputs(feeds) for feeds in drawn), *extreme_feeds(integer)])
    programs = Programs.of(graphs, tmp_path, *SANITIZED)
    for index, case in enumerate(CASES[group::GROUPS]):
        try:
            programs.assert_same(index, samples[index])
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from error
