"""Every operator with an integer form, quantized in some way and written as C: the same integers, nothing undefined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from c_programs import SANITIZED, Programs
from exported import facts
from random_graphs import feeds_of, random_graph

from mrt.model import assemble
from tests.emulation import MACHINES, Emulation
from tests.matrix import extreme_feeds
from tests.matrix_cases import CASES
from tests.quantization.networks import quantize_and_run

GROUPS = 6
"""So many programs hold the cases, each a mixture of them."""


def check(places: range, folder: Path, *flags: str, machine: Emulation | None = None) -> None:
    """The cases at some places, each with one pair of quantizers and 8 or 16 bits, in one program.

    Ordinary integers, and all at the ends of their ranges.
    """
    graphs, samples = [], []
    for place in places:
        case = CASES[place]
        configs = [*case.configs(8), *case.configs(16)]
        drawn = [case.draw(seed) for seed in (1, 2)]
        integer = quantize_and_run(case.graph, drawn, configs[place // GROUPS % len(configs)]).integer
        model = assemble(integer, None, {})
        graphs.append((model.graph, model.inputs))
        samples.append([*(model.quantize_inputs(feeds) for feeds in drawn), *extreme_feeds(integer)])
    programs = Programs.of(graphs, folder, *flags, machine=machine)
    for index, place in enumerate(places):
        try:
            programs.assert_same(index, samples[index])
        except AssertionError as error:
            raise AssertionError(f"{CASES[place]}: {error}") from error


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_operator(group: int, tmp_path: Path) -> None:
    """As it is written: what optimizers make of it is in the tests below."""
    check(range(group, len(CASES), GROUPS), tmp_path, *SANITIZED, "-O0")


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_operators_on_other_machines(machine: str, tmp_path: Path) -> None:
    """A half of the cases on each of two, optimized, by its own compiler."""
    emulation = Emulation.of(machine)
    check(range(MACHINES.index(machine), len(CASES), len(MACHINES)), tmp_path, "-O2", machine=emulation)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [SANITIZED, ("-O2",)], ids=["sanitized", "optimized"])
def test_random_graphs(flags: Sequence[str], tmp_path: Path) -> None:
    """At the ends of the input's range, where some values have all of 32 bits."""
    graphs = [random_graph(seed) for seed in range(8)]
    programs = Programs.of([(graph, facts(graph)) for graph in graphs], tmp_path, *flags)
    for seed, graph in enumerate(graphs):
        try:
            programs.assert_same(seed, feeds_of(graph, seed))
        except AssertionError as error:
            raise AssertionError(f"random_graph({seed}): {error}") from error
