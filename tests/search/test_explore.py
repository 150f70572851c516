"""The search on networks that are made up: errors add, so that trying all widths tells what it has to find."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest

from mrt.quantization.options import QuantizationConfig
from mrt.search.cost import Cost, Objective, predicted
from mrt.search.explore import Explorer, OutOfTime, is_better
from mrt.search.laboratory import Result
from mrt.search.metric import Judged
from mrt.search.sensitivity import Sensitivity
from mrt.search.space import WIDTHS, Item, Space, bits_of

PLAIN = QuantizationConfig()


@dataclass
class Network:
    """Layers of 10, 100 and 1000 weights, each behind a tensor; the errors of their widths add up.

    allowed: the error that meets the demand. most: trials before time is over.
    """

    allowed: float
    objective: Objective = "bits"
    most: int = 10_000
    tried: list[QuantizationConfig] = field(default_factory=list)
    improvements: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng(3)
        self.items = tuple(
            Item(kind, f"{kind}{k}", 100 * (k + 1), size=10 ** (k + 1) if kind == "weight" else 0)
            for kind in ("weight", "activation")
            for k in range(3)
        )
        self.errors = {
            item.key: {bits: float(4.0**-bits * scale) for bits in WIDTHS[item.kind]}
            for item, scale in zip(self.items, random.uniform(0.2, 5, len(self.items)), strict=True)
        }
        self.space = Space(PLAIN, self.items, (), 600)
        self.costs = predicted(self.space, self.objective)

    def explicit(self, config: QuantizationConfig) -> QuantizationConfig:
        return config

    def sensitivity(self, config: QuantizationConfig) -> Sensitivity:
        return self.errors

    def trial(self, config: QuantizationConfig, why: str) -> Result:
        if len(self.tried) == self.most:
            raise OutOfTime
        self.tried.append(config)
        widths = [(item.key, bits_of(config, item.key)) for item in self.items]
        error = sum(self.errors[key].get(bits, 4.0**-bits) for key, bits in widths)
        cost = sum(self.costs[(*key, bits)] for key, bits in widths)
        return Result(
            why,
            Judged(error, None, error - self.allowed, 0.0),
            -10 * math.log10(error),
            (error,),
            Cost(1 + cost if self.objective == "latency" else 1.0, 0, 8 * cost, cost),
            0.0,
        )

    def improved(self, config: QuantizationConfig, result: Result) -> None:
        self.improvements.append(result.judged.miss)

    def search(self, seed: int = 0) -> Explorer:
        explorer = Explorer(self.space, self.objective, seed, self)
        with suppress(OutOfTime):
            explorer.search(PLAIN)
        return explorer

    def least_cost(self) -> float:
        """Of all widths that meet the demand."""
        choices = product(*(WIDTHS[item.kind] for item in self.items))
        sums = (
            (
                sum(self.costs[(*i.key, b)] for i, b in zip(self.items, chosen, strict=True)),
                sum(self.errors[i.key][b] for i, b in zip(self.items, chosen, strict=True)),
            )
            for chosen in choices
        )
        return min(cost for cost, error in sums if error <= self.allowed)


@pytest.mark.parametrize("allowed", [0.001, 0.01, 0.1])
def test_the_cheapest_widths_are_found_to_within_a_twentieth(allowed: float) -> None:
    network = Network(allowed)
    explorer = network.search()
    assert explorer.best is not None and explorer.best[1].judged.is_met
    found = sum(network.costs[(*i.key, bits_of(explorer.best[0], i.key))] for i in network.items)
    assert network.least_cost() <= found * (1 + 1e-9)
    assert found <= 1.05 * network.least_cost()


def test_a_search_holds_an_answer_from_the_first_trials_and_only_improves() -> None:
    network = Network(1e-4, "latency")
    network.search()
    assert network.improvements[1] <= 0  # all tensors at 16 bits, as those of 8 do not do
    assert all(miss <= 0 for miss in network.improvements[1:])


def test_the_order_of_trials_does_not_depend_on_when_time_is_over() -> None:
    whole = Network(0.01)
    best = whole.search(seed=5).best
    for most in (1, 4, 11):
        part = Network(0.01, most=most)
        part.search(seed=5)
        assert part.tried == whole.tried[:most]
    again = Network(0.01)
    found = again.search(seed=5).best
    assert again.tried == whole.tried
    assert best is not None and found is not None and best[0] == found[0]


def test_where_nothing_meets_the_demand_the_nearest_is_best() -> None:
    network = Network(1e-30)
    explorer = network.search()
    assert explorer.best is not None and not explorer.best[1].judged.is_met
    assert explorer.best[1].error == sum(min(errors.values()) for errors in network.errors.values())


def result(*errors: float) -> Result:
    return Result("", Judged(0, None, 0, 0), 0, errors, Cost(1, 0, 8, 1), 0)


def test_noise_is_no_gain() -> None:
    assert is_better(result(1, 2, 3), result(2, 3, 4))
    assert not is_better(result(2, 3, 4), result(1, 2, 3))
    assert not is_better(result(1, 4, 2), result(2, 3, 2.1))  # 0.1 less, by differences of about 1
