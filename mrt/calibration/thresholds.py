"""Threshold methods: from what was observed of a tensor to the range that its quantizer covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mrt.calibration.observers import HistoricalObserver, Observer, RangeObserver


class CalibrationConfig(BaseModel):
    """The `calibrate` section.

    method: "max" covers every value observed; "historical" is MRT's, see HistoricalObserver. lambda: standard
    deviations that "historical" covers; MRT's own configurations use 10 to 18. samples: how many samples of the data to
    use, None for all. batch_size: samples that run at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    method: Literal["max", "historical"] = "max"
    lambda_: float = Field(default=16.0, alias="lambda", gt=0, allow_inf_nan=False)
    samples: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=16, ge=1)


@dataclass(frozen=True)
class Threshold:
    """The calibrated range of a tensor, lo <= hi; it need not hold 0."""

    lo: float
    hi: float


Thresholds = Mapping[str, Threshold]
"""Thresholds by tensor name."""


def new_observer(config: CalibrationConfig) -> Observer:
    """The observer, having seen nothing, that the configured method needs."""
    return RangeObserver() if config.method == "max" else HistoricalObserver(config.lambda_)


def threshold_of(observer: Observer) -> Threshold:
    """The threshold that an observer's method gives: of "max" the range, of "historical" the range within ±reach.

    Of a tensor without elements it is [0, 0].
    """
    if observer.lo > observer.hi:
        return Threshold(0.0, 0.0)
    if isinstance(observer, HistoricalObserver):
        return Threshold(max(observer.lo, -observer.reach), min(observer.hi, observer.reach))
    return Threshold(observer.lo, observer.hi)
