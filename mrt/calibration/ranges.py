"""Range methods: from what was observed of a tensor to the range that its quantizer covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import ConfigDict, Field

from mrt.calibration.histogram import HistogramObserver, LeastError, Percentile
from mrt.calibration.observers import HistoricalObserver, RangeObserver, Ranging
from mrt.options import Options

FORMAT_VERSION = 3


class CalibrationConfig(Options):
    """The `calibrate` section.

    method: "max" covers every value observed; "historical" is MRT's, see HistoricalObserver; "percentile" leaves the
    outermost values out, see Percentile; "mse" takes the range with the least mean squared error, see LeastError.
    lambda: standard deviations that "historical" covers; MRT's own configurations use 10 to 18. percentile: of a
    hundred values, how many "percentile" covers. bits: the width that "mse" takes quantizers to have. samples: how many
    samples of the data to use, None for all. batch_size: the most samples that one core runs at once.
    """

    model_config = ConfigDict(populate_by_name=True)

    method: Literal["max", "historical", "percentile", "mse"] = "max"
    lambda_: float = Field(default=16.0, alias="lambda", gt=0, allow_inf_nan=False)
    percentile: float = Field(default=99.99, ge=50, le=100)
    bits: int = Field(default=8, ge=2, le=16)
    samples: int | None = Field(default=None, ge=1, strict=True)
    batch_size: int = Field(default=16, ge=1, strict=True)


@dataclass(frozen=True)
class Range:
    """The calibrated range of a tensor, lo <= hi; it need not hold 0.

    channels: the range of each of its channels. observations: how many values of each channel were seen; 0 where that
    is not known.
    """

    lo: float
    hi: float
    channels: tuple[tuple[float, float], ...] = ()
    observations: int = 0

    def clip(self, value: float) -> float:
        """The value of the range that is next to `value`."""
        return min(max(value, self.lo), self.hi)

    def to_json(self) -> dict[str, Any]:
        """The range as JSON's types; floats survive unchanged."""
        channels = {"channels": [list(ends) for ends in self.channels], "observations": self.observations}
        return {"lo": self.lo, "hi": self.hi} | (channels if self.channels else {})

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Range:
        """The inverse of `to_json`; KeyError, TypeError or ValueError where a fact is missing or malformed."""
        channels = tuple((float(lo), float(hi)) for lo, hi in facts.get("channels", ()))
        return cls(float(facts["lo"]), float(facts["hi"]), channels, int(facts.get("observations", 0)))


Ranges = Mapping[str, Range]
"""Ranges by tensor name."""


@dataclass(frozen=True, order=True)
class Channels:
    """The channels of a tensor: `axis`, not negative, counts them."""

    tensor: str
    axis: int


@dataclass(frozen=True)
class Calibration:
    """What a calibration run finds: ranges by tensor name, and the mean of every channel of some tensors."""

    ranges: Ranges
    means: Mapping[Channels, tuple[float, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON's types; floats survive unchanged.

        {"format_version": 3, "thresholds": {tensor: {"lo", "hi", "channels": [[lo, hi]], "observations"}},
        "means": [{"tensor", "axis", "mean": [one for each channel]}]}
        """
        return {
            "format_version": FORMAT_VERSION,
            "thresholds": {name: found.to_json() for name, found in self.ranges.items()},
            "means": [asdict(channels) | {"mean": list(mean)} for channels, mean in self.means.items()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """The inverse of `to_json`; KeyError, TypeError or ValueError where a fact is missing or malformed."""
        if data["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version is {data['format_version']}, {FORMAT_VERSION} is needed")
        ranges = {name: Range.from_json(entry) for name, entry in data["thresholds"].items()}
        means = {
            Channels(str(entry["tensor"]), int(entry["axis"])): tuple(float(value) for value in entry["mean"])
            for entry in data["means"]
        }
        return cls(ranges, means)


def new_observer(config: CalibrationConfig) -> Ranging:
    """The observer, having seen nothing, that the configured method needs."""
    match config.method:
        case "max":
            return RangeObserver()
        case "historical":
            return HistoricalObserver(config.lambda_)
        case "percentile":
            return HistogramObserver(Percentile(config.percentile))
        case "mse":
            return HistogramObserver(LeastError(config.bits))


def range_of(observer: Ranging) -> Range:
    """The range that an observer's method gives. Of a tensor without elements it is [0, 0]."""
    if observer.lo > observer.hi:
        return Range(0.0, 0.0)
    return Range(*observer.covered)
