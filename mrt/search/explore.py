"""The search: which configuration is tried next, given what those before have shown.

It asks, and whoever runs it answers, from the file of trials or by trying; so the order of trials follows from the seed
and the answers alone, not from time or cores. Its phases:

1. The configuration as it is, then, where that does not meet the demand, all tensors at 16 bits: an answer from the
   first seconds on.
2. The sensitivity of each weight and tensor to each width, once; its Lagrange path from the cheapest network to the
   most accurate one, and on it, by bisection, the cheapest that meets the demand.
3. Algorithms, one after the other, at the widths found; each is kept where it lowers the error by more than chance. If
   any is, phase 2 is done again with them, on what is cheaper.
4. Small changes of the best, until none is left: one item less, the path for sensitivities that are a little off,
   algorithms again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mrt.quantization.options import QuantizationConfig
from mrt.search.cost import Objective, predicted, predicted_cost
from mrt.search.knapsack import Assignment, Option, hull, lagrange_path
from mrt.search.laboratory import Result
from mrt.search.sensitivity import Sensitivity
from mrt.search.space import WIDTHS, Space, algorithms_of, alternatives


class Answers(Protocol):
    """Whoever answers; either may raise `OutOfTime`."""

    def trial(self, config: QuantizationConfig, why: str) -> Result:
        """What becomes of a configuration. why: for people."""

    def explicit(self, config: QuantizationConfig) -> QuantizationConfig:
        """The configuration with the bits that an algorithm of its own chooses as overrides."""

    def sensitivity(self, config: QuantizationConfig) -> Sensitivity:
        """That of all items beside a configuration."""

    def improved(self, config: QuantizationConfig, result: Result) -> None:
        """Is told of every trial that is better than those before."""


class OutOfTime(Exception):  # noqa: N818 - nothing is wrong
    """There is no time for another trial; what was found until then holds."""


LEAST_SAVED = 1e-9
"""What costs less by no more than this costs the same."""
SPREAD = 0.5
"""The deviation of the logarithm by which sensitivities are varied: predicted energies are off by as much."""
PATIENCE = 24
"""So many variations in a row that give nothing new end the search."""


@dataclass
class Explorer:
    """One search. best: the trial that is the answer so far."""

    space: Space
    objective: Objective
    seed: int
    answers: Answers
    best: tuple[QuantizationConfig, Result] | None = None
    sensitivity: Sensitivity = field(default_factory=dict)
    _tried: dict[str, Result] = field(default_factory=dict)

    def search(self, given: QuantizationConfig) -> None:
        """Asks until there is nothing left to ask. given: the configuration that is tried first."""
        base = self.answers.explicit(given)
        first = self._try(base, "the configuration as it is")
        if not first.judged.is_met:
            widths = {item.key: 16 for item in self.space.items if item.kind == "activation"}
            self._try(self.space.with_widths(base, widths), "every tensor at 16 bits")
        self.sensitivity = self.answers.sensitivity(base)
        self._bisect(base)
        recipe = self._choose_algorithms(base)
        if recipe != base:
            self._bisect(recipe)
        self._improve(recipe)

    def key(self, result: Result) -> tuple[float, float, float]:
        """What is least for the best: first whether, or by how much, the demand is missed."""
        if result.failure:
            return (np.inf, np.inf, np.inf)
        cost = round(result.cost.of(self.objective), 9)
        return (
            (0.0, cost, result.error) if result.judged.is_met else (max(result.judged.miss, 1e-9), cost, result.error)
        )

    def _try(self, config: QuantizationConfig, why: str) -> Result:
        key = config.model_dump_json()
        if key not in self._tried:
            self._tried[key] = result = self.answers.trial(config, why)
            if not result.failure and (self.best is None or self.key(result) < self.key(self.best[1])):
                self.best = config, result
                self.answers.improved(config, result)
        return self._tried[key]

    def _choose_algorithms(self, base: QuantizationConfig) -> QuantizationConfig:
        """The algorithms that lower the error at the widths of the best, each beside those before it."""
        best = base if self.best is None else self.best[0]
        widths, recipe = self.space.widths(best), base
        found = self._try(self.space.with_widths(recipe, widths), "where algorithms are compared")
        done = set(algorithms_of(recipe))
        while True:
            option = next(((name, c) for name, c in alternatives(recipe) if name not in done), None)
            if option is None:
                return recipe
            name, config = option
            done.add(name)
            result = self._try(self.space.with_widths(config, widths), name)
            cheap = result.cost.of(self.objective) <= found.cost.of(self.objective) * (1 + 1e-6)
            if is_better(result, found) and (cheap or not found.judged.is_met):
                recipe, found = config, result

    def _options(self, factors: Sequence[float] | None = None) -> list[list[Option]]:
        """Each item's widths. factors: by which sensitivities differ from those measured."""
        costs = predicted(self.space, self.objective)
        options = []
        for place, item in enumerate(self.space.items):
            errors, factor = self.sensitivity[item.key], 1.0 if factors is None else factors[place]
            options.append([Option(b, costs[item.kind, item.name, b], factor * errors[b]) for b in WIDTHS[item.kind]])
        return options

    def _config(self, recipe: QuantizationConfig, found: Assignment) -> QuantizationConfig:
        keys = (item.key for item in self.space.items)
        return self.space.with_widths(recipe, dict(zip(keys, found.choices, strict=True)))

    def _bisect(self, recipe: QuantizationConfig) -> None:
        """The cheapest network of the path that meets the demand, if its accuracy rises along it.

        Where the best meets it already only what is cheaper is looked at, else first whether the most accurate does.
        """
        path = list(lagrange_path(self._options()))
        if self.best is not None and self.best[1].judged.is_met:
            reached = predicted_cost(self.space, self.space.widths(self.best[0]), self.objective)
            path = [point for point in path if point.cost < reached - LEAST_SAVED]
        elif not self._try(self._config(recipe, path.pop()), "the most accurate widths").judged.is_met:
            return
        low, high, length = 0, len(path), len(path)
        while low < high:
            middle = (low + high) // 2
            why = f"step {middle} of {length} from the cheapest widths to the most accurate"
            result = self._try(self._config(recipe, path[middle]), why)
            low, high = (low, middle) if result.judged.is_met else (middle + 1, high)

    def _improve(self, recipe: QuantizationConfig) -> None:
        """Changes the best in small ways until nothing new has been found for a while."""
        random = np.random.default_rng(self.seed)
        idle = 0
        while idle < PATIENCE:
            before, count = self.best, len(self._tried)
            self._lower_one()
            self._other_algorithms()
            self._vary(recipe, random)
            idle = idle + 1 if self.best is before else 0
            if len(self._tried) == count and self.best is before:
                idle += 1

    def _lower_one(self) -> None:
        """The best with one item cheaper, those first that save most for the error that they add; while one works."""
        while self.best is not None and self.best[1].judged.is_met:
            config = self.best[0]
            for saved, name, changed in self._steps_down(config):
                result = self._try(changed, f"{name}, which saves {saved:.2g} of the cost")
                if result.judged.is_met and self.best[0] is changed:
                    break
            else:
                return

    def _steps_down(self, config: QuantizationConfig) -> list[tuple[float, str, QuantizationConfig]]:
        steps = []
        widths = dict(self.space.widths(config))
        for item, options in zip(self.space.items, self._options(), strict=True):
            useful, bits = hull(options), widths[item.key]
            now = next((option for option in options if option.choice == bits), None)
            below = [option for option in useful if now is not None and option.cost < now.cost]
            if not below or now is None:
                continue
            worth = (below[-1].error - now.error) / (now.cost - below[-1].cost)
            changed = self.space.with_widths(config, {**widths, item.key: below[-1].choice})
            name = f"{item.name} ({item.kind}) at {below[-1].choice} bits"
            steps.append((worth, now.cost - below[-1].cost, name, changed))
        return [(saved, name, changed) for _, saved, name, changed in sorted(steps, key=lambda step: step[:3])]

    def _other_algorithms(self) -> None:
        """The best with one other algorithm: what met the demand with less error leaves room for fewer bits."""
        if self.best is not None:
            for name, config in alternatives(self.best[0]):
                self._try(config, name)

    def _vary(self, recipe: QuantizationConfig, random: np.random.Generator) -> None:
        """The dearest point cheaper than the best, or, where nothing meets the demand, the next dearer one, of a path
        for sensitivities that are a little off."""
        factors = np.exp(random.normal(0.0, SPREAD, len(self.space.items))).tolist()
        path = lagrange_path(self._options(factors))
        if self.best is None:
            return
        config, result = self.best
        base = recipe if not result.judged.is_met else self._algorithms_of(config)
        reached = predicted_cost(self.space, self.space.widths(config), self.objective)
        if result.judged.is_met:
            found = next((point for point in reversed(path) if point.cost < reached - LEAST_SAVED), None)
        else:
            found = next((point for point in path if point.cost > reached + LEAST_SAVED), None)
        if found is not None:
            self._try(self._config(base, found), "widths for sensitivities that are a little off")

    def _algorithms_of(self, config: QuantizationConfig) -> QuantizationConfig:
        return config.model_copy(update={"overrides": self.space.config.overrides})


def is_better(found: Result, other: Result) -> bool:
    """Whether the error is lower by more than chance: the mean of the blocks' differences by its standard error."""
    if found.failure or other.failure:
        return not found.failure and bool(other.failure)
    saved = np.asarray(other.errors) - np.asarray(found.errors)
    error = float(saved.std(ddof=1) * np.sqrt(len(saved))) if len(saved) > 1 else 0.0
    return float(saved.sum()) > error
