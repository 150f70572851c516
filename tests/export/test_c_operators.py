"""Every operator with an integer form, quantized in some way and written as C: the same integers, nothing undefined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from c_programs import SANITIZED, Programs
from exported import facts
from random_graphs import feeds_of, random_graph

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


@pytest.mark.slow
@pytest.mark.parametrize("flags", [SANITIZED, ("-O2",)], ids=["sanitized", "optimized"])
def test_random_graphs(flags: Sequence[str], tmp_path: Path) -> None:
    """At the ends of the input's range, where some values have all of 32 bits."""
    graphs = [random_graph(seed) for seed in range(12)]
    programs = Programs.of([(graph, facts(graph)) for graph in graphs], tmp_path, *flags)
    for seed, graph in enumerate(graphs):
        try:
            programs.assert_same(seed, feeds_of(graph, seed))
        except AssertionError as error:
            raise AssertionError(f"random_graph({seed}): {error}") from error
