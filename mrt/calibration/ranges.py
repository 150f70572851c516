"""What calibration is asked for, and what it finds: ranges of tensors, means and mean squares of channels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mrt.calibration.layer_moments import Moments
from mrt.calibration.observers import Ranging

FORMAT_VERSION = 4


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

    @property
    def magnitude(self) -> float:
        """The largest magnitude of a value in the range."""
        return max(abs(self.lo), abs(self.hi))

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
    """The channels of a tensor: `axis`, not negative, counts them; where it is read flat, all axes from it on do."""

    tensor: str
    axis: int
    is_flat: bool = False

    def seen(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor of this one, of which `axis` alone counts the channels."""
        return (*shape[: self.axis], math.prod(shape[self.axis :])) if self.is_flat else tuple(shape)


@dataclass(frozen=True)
class Needs:
    """What is to be observed. ranges: of the tensors of these names. means: of every channel of these. squares: the
    mean squares of every channel of these."""

    ranges: tuple[str, ...] = ()
    means: tuple[Channels, ...] = ()
    squares: tuple[Channels, ...] = ()

    def __or__(self, other: Needs) -> Needs:
        """What both name, each once."""
        both = {f.name: (*getattr(self, f.name), *getattr(other, f.name)) for f in fields(self)}
        return Needs(**{name: tuple(dict.fromkeys(named)) for name, named in both.items()})


@dataclass(frozen=True)
class Calibration:
    """What a calibration run finds: ranges by tensor name, the mean and the mean square of every channel of some.

    moments: of layers whose rounding needs them; gathered once it is known how what they read is quantized, not saved.
    """

    ranges: Ranges
    means: Mapping[Channels, tuple[float, ...]] = field(default_factory=dict)
    squares: Mapping[Channels, tuple[float, ...]] = field(default_factory=dict)
    moments: Moments | None = None

    def covers(self, needs: Needs) -> bool:
        """Whether it holds all that is needed."""
        return all(getattr(self, f.name).keys() >= set(getattr(needs, f.name)) for f in fields(needs))

    def to_json(self) -> dict[str, Any]:
        """JSON's types; floats survive unchanged.

        {"format_version": 4, "thresholds": {tensor: {"lo", "hi", "channels": [[lo, hi]], "observations"}},
        "means": [{"tensor", "axis", "mean": [one for each channel]}], "squares": the same of mean squares}
        """
        return {
            "format_version": FORMAT_VERSION,
            "thresholds": {name: found.to_json() for name, found in self.ranges.items()},
            "means": _means_to_json(self.means),
            "squares": _means_to_json(self.squares),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """The inverse of `to_json`; KeyError, TypeError or ValueError where a fact is missing or malformed."""
        if data["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version is {data['format_version']}, {FORMAT_VERSION} is needed")
        ranges = {name: Range.from_json(entry) for name, entry in data["thresholds"].items()}
        return cls(ranges, _means_from_json(data["means"]), _means_from_json(data["squares"]))


def _means_to_json(means: Mapping[Channels, tuple[float, ...]]) -> list[dict[str, Any]]:
    return [asdict(channels) | {"mean": list(mean)} for channels, mean in means.items()]


def _means_from_json(entries: Sequence[Mapping[str, Any]]) -> dict[Channels, tuple[float, ...]]:
    return {
        Channels(str(entry["tensor"]), int(entry["axis"]), bool(entry.get("is_flat"))): tuple(
            float(value) for value in entry["mean"]
        )
        for entry in entries
    }


def range_of(observer: Ranging) -> Range:
    """The range that an observer's method gives. Of a tensor without elements it is [0, 0]."""
    if observer.lo > observer.hi:
        return Range(0.0, 0.0)
    return Range(*observer.covered)
