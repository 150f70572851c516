"""What a network is judged by: a score for each sample, float against integer, with what chance does to the mean."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mrt.datasets.dataset import reason
from mrt.datasets.functions import imported_function
from mrt.errors import ConfigError, DataError
from mrt.evaluation import predict, top1
from mrt.symbol import Array

TOP1, SQNR = "top1", "sqnr"
PERCENT = 100.0
MOST_DB = 300.0
"""The SQNR of what has no error: float64 resolves no more."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a network gives for a batch. scores: after post-processing; logits: before it; each [samples, ...]."""

    scores: list[Array]
    logits: list[Array]


@dataclass(frozen=True)
class Judged:
    """A metric on some samples.

    value, reference: of the integer and of the float network; reference None where the metric is of both. shortfall: by
    how much more than is allowed the metric falls. error: the standard error of the metric's fall.
    """

    value: float
    reference: float | None
    shortfall: float
    error: float

    @property
    def miss(self) -> float:
        """By how much the demand is missed with one standard error to spare; at most 0 where it is met."""
        return self.shortfall + self.error

    @property
    def is_met(self) -> bool:
        return self.miss <= 0


@dataclass(frozen=True)
class Demand(ABC):
    """A metric and what is demanded of it."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def text(self) -> str:
        """What is demanded, for people."""

    def coarse(self, samples: int) -> str:
        """Why so many samples cannot show what is demanded; "" where they can."""
        return ""

    @abstractmethod
    def of_float(self, outputs: Outputs, labels: Array | None) -> Array:
        """What is kept of the float network's outputs for a batch, one float64 value a sample."""

    @abstractmethod
    def of_integer(self, outputs: Outputs, logits: list[Array], labels: Array | None) -> Array:
        """The same of the integer network, whose float logits are given."""

    @abstractmethod
    def judge(self, reference: Array, found: Array) -> Judged:
        """The verdict over all samples, given what `of_float` and `of_integer` keep of them."""


@dataclass(frozen=True)
class LeastSqnr(Demand):
    """SQNR of the logits in dB, at least `least`."""

    least: float

    @property
    def name(self) -> str:
        return SQNR

    @property
    def text(self) -> str:
        return f"an SQNR of at least {self.least:g} dB"

    def of_float(self, outputs: Outputs, labels: Array | None) -> Array:
        return energies(outputs.logits)

    def of_integer(self, outputs: Outputs, logits: list[Array], labels: Array | None) -> Array:
        return energies([f - q for f, q in zip(logits, outputs.logits, strict=True)])

    def judge(self, reference: Array, found: Array) -> Judged:
        """The standard error is that of the logarithm of a ratio of sums, linearised: samples that hold more of the
        error than of the signal count by the difference."""
        signal, noise = float(reference.sum()), float(found.sum())
        if not noise or not signal:
            return Judged(MOST_DB, None, self.least - MOST_DB, 0.0)
        value = min(10 * math.log10(signal / noise), MOST_DB)
        parts = 10 / math.log(10) * len(found) * (reference / signal - found / noise)
        return Judged(value, None, self.least - value, _standard_error(parts))


@dataclass(frozen=True)
class MeanScore(Demand):
    """A mean of scores of samples, higher being better, that falls by at most `drop`."""

    drop: float

    @abstractmethod
    def scores(self, outputs: Outputs, labels: Array | None) -> Array:
        """One float64 score a sample."""

    def of_float(self, outputs: Outputs, labels: Array | None) -> Array:
        return self.scores(outputs, labels)

    def of_integer(self, outputs: Outputs, logits: list[Array], labels: Array | None) -> Array:
        return self.scores(outputs, labels)

    def judge(self, reference: Array, found: Array) -> Judged:
        falls = reference - found
        drop = float(falls.mean())
        return Judged(float(found.mean()), float(reference.mean()), drop - self.drop, _standard_error(falls))


@dataclass(frozen=True)
class Top1(MeanScore):
    """The share of samples whose label is their class, in percent."""

    @property
    def name(self) -> str:
        return TOP1

    @property
    def text(self) -> str:
        return f"a top-1 that falls by at most {self.drop:g} percentage points"

    def coarse(self, samples: int) -> str:
        if PERCENT / samples <= self.drop:
            return ""
        return (
            f"{samples} samples judge, of which each is {PERCENT / samples:.2g} points, more than may be lost: what is "
            f"found may lose more on others; give more samples (data.validation)"
        )

    def scores(self, outputs: Outputs, labels: Array | None) -> Array:
        if labels is None:
            raise DataError("metric top1 needs labels, and the data has none; give labels, or metric sqnr least DB")
        top1(outputs.scores[0], labels)  # says what is wrong with labels
        hits: Array = PERCENT * (predict(outputs.scores[0]) == labels)
        return hits


@dataclass(frozen=True)
class FunctionScore(MeanScore):
    """What a function of the user's says of each sample."""

    where: str
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.where

    @property
    def text(self) -> str:
        return f"a mean of {Path(self.where).name} that falls by at most {self.drop:g}"

    @property
    def file(self) -> Path:
        """The file of the function."""
        return Path(self.where.rpartition(":")[0])

    def scores(self, outputs: Outputs, labels: Array | None) -> Array:
        count = len(outputs.scores[0])
        try:
            given = self.function(outputs.scores, labels)
        except (Exception, SystemExit) as error:
            raise DataError(f"metric {self.where}: the function raised {reason(error)}") from error
        try:
            scores = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            scores = np.zeros(())
        if scores.shape != (count,):
            found = f"shape {list(np.shape(scores))}" if scores.ndim else f"a {type(given).__name__}"
            raise DataError(f"metric {self.where}: it gave {found}; one score for each of {count} samples is needed")
        if not np.isfinite(scores).all():
            raise DataError(f"metric {self.where}: the score of a sample is NaN or infinite")
        return scores


def demand(metric: str, drop: float | None, least: float | None) -> Demand:
    """What the options ask for; ConfigError where they do not fit each other.

    metric: top1, sqnr, or file.py:function, called with the list of float32 outputs [samples, ...] and the labels, or
    None, of a batch, to give one score a sample, higher being better.
    """
    if metric == SQNR:
        if drop is not None or least is None:
            raise ConfigError("metric sqnr compares with float, and so has no drop: say least DB, such as least 30")
        return LeastSqnr(_finite("least", least))
    if least is not None or drop is None:
        raise ConfigError(f"metric {metric} needs drop, how much it may fall; least is for metric sqnr")
    allowed = _finite("drop", drop)
    if metric == TOP1:
        return Top1(allowed)
    file, colon, function = metric.rpartition(":")
    if not colon or not file or not function.isidentifier():
        raise ConfigError(f"metric is {metric!r}: top1, sqnr or file.py:function is needed")
    path = Path(file).resolve()
    return FunctionScore(allowed, f"{path}:{function}", imported_function(path, function, "metric"))


def energies(arrays: list[Array]) -> Array:
    """The sum of squares of all that belongs to each sample, float64 [samples]. arrays: [samples, ...] each."""
    rows = [np.square(array.astype(np.float64)).reshape(len(array), -1).sum(axis=1) for array in arrays]
    total: Array = np.sum(rows, axis=0)
    return total


def _standard_error(values: Array) -> float:
    """That of the mean of independent values; infinite for a single one, of which it cannot be told."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.inf


def _finite(option: str, value: float) -> float:
    if not math.isfinite(value):
        raise ConfigError(f"{option} is {value}: a finite number is needed")
    return float(value)
