"""Errors that are compared a few operators on come near those at the outputs, and take less of the network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mrt import workers
from mrt.quantization.algorithms import sensitive_tensors
from mrt.quantization.simulation import nearby
from mrt.quantization.simulation.nearby import shared_errors
from mrt.quantization.simulation.simulation import Simulation, Trial
from mrt.symbol import NumpyRunner
from tests.quantization.test_parts import LAYERS, Counting, cut_into, simulated

EXACT = Trial(frozenset())


def alone(simulation: Simulation) -> list[Trial]:
    """Each tensor by itself; the last rounds none."""
    return [*(Trial(frozenset({site.name})) for site in simulation.sites), EXACT]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_errors_come_near_those_at_the_outputs(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_into(monkeypatch, count)
    monkeypatch.setattr(nearby, "MEASURED", 1.0)
    simulation = simulated(NumpyRunner())
    trials = alone(simulation)
    wanted = np.array(simulation.errors(trials, EXACT))
    found = np.array(simulation.errors_alone(trials, EXACT))
    assert found[-1] == wanted[-1] == 0
    shows = wanted > 0.01 * wanted.sum()
    assert shows.sum() > LAYERS / 2
    assert (np.abs(np.log2(found[shows] / wanted[shows])) < 2).all()
    assert (found[~shows] < 0.01 * wanted.sum()).all()


def test_large_errors_are_those_at_the_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_into(monkeypatch, 5)
    simulation = simulated(NumpyRunner())
    trials = alone(simulation)
    wanted = np.array(simulation.errors(trials, EXACT))
    found = np.array(simulation.errors_alone(trials, EXACT))
    is_large = wanted > 3 * nearby.MEASURED * wanted.sum()
    assert is_large.any()
    np.testing.assert_array_equal(found[is_large], wanted[is_large])


def test_neither_cores_nor_the_order_show(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_into(monkeypatch, 5)
    simulation = simulated(NumpyRunner())
    trials = alone(simulation)
    wanted = simulation.errors_alone(trials, EXACT)
    monkeypatch.setattr(workers, "cores", lambda: 3)
    assert simulation.errors_alone(trials, EXACT) == pytest.approx(wanted, rel=1e-12)
    assert simulation.errors_alone(trials[::-1], EXACT)[::-1] == pytest.approx(wanted, rel=1e-12)


def test_they_take_less_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_into(monkeypatch, LAYERS)
    monkeypatch.setattr(nearby, "MEASURED", 1.0)
    runner = Counting(NumpyRunner())
    simulation = simulated(runner)
    trials = [trial for trial in alone(simulation) for _ in range(4)]
    runner.operators = 0
    simulation.errors(trials[: len(trials) // 4], EXACT)
    once = runner.operators
    runner.operators = 0
    simulation.errors_alone(trials, EXACT)
    assert runner.operators < 3.3 * once, "of which four times the trials took four times as much"


def test_a_group_shares_its_error_and_large_ones_are_measured() -> None:
    asked: list[list[list[int]]] = []

    def errors(trials: Sequence[Sequence[int]]) -> list[float]:
        asked.append([list(each) for each in trials])
        return [{(0, 1): 1.0, (2,): 0.001, (3, 4): 0.01, (0,): 0.2, (1,): 0.7}[tuple(each)] for each in trials]

    found = shared_errors([[0, 1], [2], [3, 4]], [3.0, 1.0, 5.0, 0.0, 0.0], errors)
    assert asked == [[[0, 1], [2], [3, 4]], [[0], [1]]]
    assert found == [0.2, 0.7, 0.001, 0.0, 0.0]


def test_large_networks_are_tried_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_into(monkeypatch, 5)
    simulation = simulated(NumpyRunner())
    wanted = sensitive_tensors._measured(simulation, EXACT)
    asked = []
    monkeypatch.setattr(simulation, "errors_alone", lambda trials, since: asked.append(trials) or [1.0] * len(trials))
    monkeypatch.setattr(sensitive_tensors, "TRIED_OPERATIONS", 1.0)
    found = sensitive_tensors._measured(simulation, EXACT)
    assert [each.symbol for each in found] == [each.symbol for each in wanted]
    assert [trial.samples for (trials,) in zip(asked, strict=True) for trial in trials] == [1] * len(found)
