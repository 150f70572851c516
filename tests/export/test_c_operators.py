"""Every operator with an integer form, quantized in some way and written as C: the same integers, nothing undefined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from c_programs import SANITIZED, Programs
from exported import facts
from random_graphs import feeds_of, random_graph

from mrt.model import QuantizedModel, assemble
from mrt.quantization.expand import expand_graph
from mrt.symbol import Array
from tests.emulation import MACHINES, Emulation
from tests.joined_graphs import feeds_of_all, joined
from tests.matrix import extreme_feeds
from tests.matrix_cases import CASES
from tests.quantization.networks import observe

GROUPS = 6
"""So many programs hold the cases, each a mixture of them."""
BESIDE = 6
"""So many cases are a network, since one for each takes the compiler longer."""


def quantized(place: int) -> tuple[QuantizedModel, list[dict[str, Array]]]:
    """The case at a place with one pair of quantizers and 8 or 16 bits: ordinary integers, and all at their ends."""
    case = CASES[place]
    configs = [*case.configs(8), *case.configs(16)]
    drawn = [case.draw(seed) for seed in (1, 2)]
    config = configs[place // GROUPS % len(configs)]
    integer = expand_graph(case.graph, observe(case.graph, drawn), config)
    model = assemble(integer, None, {})
    return model, [*(model.quantize_inputs(feeds) for feeds in drawn), *extreme_feeds(integer)]


def check(places: range, folder: Path, *flags: str, machine: Emulation | None = None) -> None:
    """The cases at some places in one program, a few side by side in each of its networks."""
    networks, samples = [], []
    groups = [places[start : start + BESIDE] for start in range(0, len(places), BESIDE)]
    for group in groups:
        models, fed = zip(*map(quantized, group), strict=True)
        graph = joined([model.graph for model in models])
        facts_of_all = [fact for model in models for fact in model.inputs]
        named = [replace(fact, name=s.name) for fact, s in zip(facts_of_all, graph.inputs, strict=True)]
        networks.append((graph, named))
        samples.append(feeds_of_all(fed))
    programs = Programs.of(networks, folder, *flags, machine=machine)
    for index, group in enumerate(groups):
        try:
            programs.assert_same(index, samples[index])
        except AssertionError as error:
            raise AssertionError(f"{[str(CASES[place]) for place in group]}: {error}") from error


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
