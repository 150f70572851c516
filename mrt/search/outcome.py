"""What a search found: the best, the networks between which one may choose, and what each layer got, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from mrt.quantization.options import QuantizationConfig
from mrt.search.cost import Objective
from mrt.search.laboratory import Result
from mrt.search.metric import Demand
from mrt.search.sensitivity import Sensitivity
from mrt.search.space import Space, algorithms_of, bits_of


@dataclass(frozen=True, eq=False)
class Trial:
    """A configuration that was tried. number: from 0, in the order of trials."""

    number: int
    why: str
    config: QuantizationConfig
    result: Result


@dataclass(frozen=True)
class Choice:
    """The bits of a weight or tensor. configured: without an override. alone_db: the SQNR of the outputs where only it
    has these; share: of the error that is predicted of all; None where the sensitivity was not measured."""

    kind: str
    name: str
    bits: int
    configured: int
    alone_db: float | None
    share: float | None
    why: str


@dataclass(frozen=True, eq=False)
class Tuned:
    """The outcome of a search.

    meets: whether the best meets the demand; else it is the one that misses it least. configuration: the file of an
    ordinary run that makes the best. pareto: the trials of which no other has a better metric and costs no more, by
    rising cost. finished: whether nothing was left to try; else time was over.
    """

    demand: Demand
    objective: Objective
    best: Trial
    float_metric: float | None
    trials: tuple[Trial, ...]
    choices: tuple[Choice, ...]
    configuration: Path
    finished: bool

    @property
    def meets(self) -> bool:
        return self.best.result.judged.is_met

    @property
    def pareto(self) -> tuple[Trial, ...]:
        """Of trials that are alike in cost and metric the one with the least error, or the first."""
        kept: list[Trial] = []
        made = [trial for trial in self.trials if not trial.result.failure]
        rank = lambda t: (_cost(t, self.objective), -_accuracy(t), t.result.error, t.number)  # noqa: E731
        for trial in sorted(made, key=rank):
            if not kept or _accuracy(trial) > _accuracy(kept[-1]):
                kept.append(trial)
        return tuple(kept)

    @property
    def verdict(self) -> str:
        """One line: whether the demand is met, by what, or how far the best is from it."""
        judged, told = self.best.result.judged, summary(self.best.result)
        if self.meets:
            return f"trial {self.best.number} has {self.demand.text}: {told}"
        return (
            f"no trial is known to have {self.demand.text}; trial {self.best.number} is nearest, "
            f"{judged.miss:.3g} away with one standard error to spare: {told}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "demand": self.demand.text,
            "metric": self.demand.name,
            "objective": self.objective,
            "meets": self.meets,
            "float_metric": self.float_metric,
            "trials": len(self.trials),
            "finished": self.finished,
            "best": _entry(self.best),
            "algorithms": list(algorithms_of(self.best.config)),
            "pareto": [_entry(trial) for trial in self.pareto],
            "choices": [vars(choice) for choice in self.choices],
        }

    def tables(self) -> tuple[Table, ...]:
        """The Pareto table, and that of the bits that were chosen other than configured."""
        table = _table(f"by {self.objective}, {self.demand.name}", *_COLUMNS)
        for trial in self.pareto:
            judged, cost = trial.result.judged, trial.result.cost
            table.add_row(
                f"{trial.number}{'*' if trial.number == self.best.number else ''}",
                f"{judged.value:.2f}",
                f"{judged.shortfall:+.2f} ± {judged.error:.2f}",
                f"{trial.result.sqnr_db:.1f}",
                f"{cost.latency:.2f}",
                f"{trial.result.milliseconds:.3g}",
                str(cost.bytes),
                f"{cost.bits:.2f}",
            )
        return (table, *self._choices_table())

    def _choices_table(self) -> tuple[Table, ...]:
        chosen = [choice for choice in self.choices if choice.bits != choice.configured]
        if not chosen:
            return ()
        table = _table("bits other than configured", "of", "name", "bits", "why")
        for choice in chosen:
            table.add_row(choice.kind, choice.name, str(choice.bits), choice.why)
        return (table,)


_COLUMNS = ("trial", "metric", "beyond what is allowed", "SQNR dB", "multiplications", "ms", "bytes", "bits")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=None, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _cost(trial: Trial, objective: Objective) -> float:
    return round(trial.result.cost.of(objective), 9)


def summary(result: Result) -> str:
    """A result in one line."""
    judged, cost = result.judged, result.cost
    measured = f"{cost.measured:.3g} ms, " if cost.measured else ""
    return (
        f"metric {judged.value:.2f} ± {judged.error:.2f}, SQNR {result.sqnr_db:.1f} dB, {measured}"
        f"{cost.latency:.2f} x the multiplications of bytes, {cost.bytes} bytes, {cost.bits:.2f} bits"
    )


def choices_of(config: QuantizationConfig, space: Space, sensitivity: Sensitivity) -> tuple[Choice, ...]:
    """What each weight and tensor got, in the order of the network, weights first."""
    errors = {}
    for item in space.items:
        errors[item.key] = sensitivity.get(item.key, {}).get(bits_of(config, item.key))
    total = sum(error for error in errors.values() if error is not None)
    found = []
    for item in space.items:
        bits, error = bits_of(config, item.key), errors[item.key]
        place = (item.kind, item.name, bits, space.default(item.kind))
        if error is None or not total:
            found.append(Choice(*place, None, None, "its sensitivity was not measured"))
            continue
        alone = -10 * math.log10(error) if error > 0 else None
        found.append(Choice(*place, alone, error / total, _reason(sensitivity[item.key], bits, error, total)))
    return tuple(found)


def _reason(errors: Any, bits: int, error: float, total: float) -> str:
    """What fewer and more bits would do to the error that is predicted of the whole network."""
    fewer = [width for width in errors if width < bits]
    more = [width for width in errors if width > bits]
    parts = [f"{100 * error / total:.1f} % of the error"]
    if fewer:
        parts.append(f"{max(fewer)} bits would add {100 * (errors[max(fewer)] - error) / total:.1f} %")
    if more:
        parts.append(f"{min(more)} bits would save {100 * (error - errors[min(more)]) / total:.1f} %")
    return "; ".join(parts)


def _accuracy(trial: Trial) -> float:
    return -trial.result.judged.shortfall


def _entry(trial: Trial) -> dict[str, Any]:
    result = trial.result
    return {
        "trial": trial.number,
        "what": trial.why,
        "digest": result.digest,
        "metric": result.judged.value,
        "shortfall": result.judged.shortfall,
        "standard_error": result.judged.error,
        "meets": result.judged.is_met,
        "sqnr_db": result.sqnr_db,
        "weighted_multiplications": result.cost.latency,
        "milliseconds": result.milliseconds,
        "bytes": result.cost.bytes,
        "mean_bits": result.cost.bits,
    }


def best_of(trials: Sequence[Trial], config: QuantizationConfig) -> Trial:
    """The first trial of a configuration."""
    return next(trial for trial in trials if trial.config == config)
