"""What differs between two runs: of the network as a whole, of its layers, and of its configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrt.report.facts import Layer, Report
from mrt.report.page.numbers import UNKNOWN, decibels, duration, number, percent, signed, size
from mrt.report.page.words import layer_title


@dataclass(frozen=True)
class Fact:
    """A line of the head: what it is, of the one and of the other run, and the difference in words."""

    name: str
    first: str
    second: str
    change: str


@dataclass(frozen=True)
class Pair:
    """A layer of both runs. errors: energy at the outputs that it makes alone, over the error of the first run with
    all layers rounded; None where that was not measured."""

    first: Layer
    second: Layer
    errors: tuple[float | None, float | None]

    @property
    def change(self) -> float:
        """Of the error; what was measured once only has changed by nothing that is known."""
        before, after = self.errors
        return 0.0 if before is None or after is None else after - before

    @property
    def title(self) -> str:
        return layer_title(self.second)

    @property
    def bits(self) -> str:
        """Of activations and weights, of both runs where they differ."""
        return changed(_bits(self.first), _bits(self.second))


@dataclass(frozen=True)
class Comparison:
    """Two runs. first, second: what they are called. pairs: the layers that both have, those whose error changed most
    first. alone: the names of layers that only one has. settings: keys that differ, with both values."""

    first: str
    second: str
    reports: tuple[Report, Report]
    facts: list[Fact]
    pairs: list[Pair]
    alone: tuple[list[str], list[str]]
    settings: list[tuple[str, str, str]]

    @property
    def verdict(self) -> str:
        """One sentence on what changed most."""
        known = [pair for pair in self.pairs if pair.change]
        if not self.pairs:
            return "No layer of the one has the name of a layer of the other."
        if self.reports[0].model.digest == self.reports[1].model.digest:
            return "Both are the same integer network."
        if not known:
            return "No layer's error is known to have changed."
        most = known[0]
        way = "more" if most.change > 0 else "less"
        return f"{most.second.name} changed most: it makes {percent(abs(most.change))} of {self.first}'s error {way}."


def compared(first: Report, second: Report, names: tuple[str, str]) -> Comparison:
    """Two reports side by side; layers belong together by their names."""
    of = {layer.name: layer for layer in first.layers}
    both = [(of[layer.name], layer) for layer in second.layers if layer.name in of]
    known = {layer.name for _, layer in both}
    unit = _noise(first)
    pairs = [Pair(a, b, (_error(a, first, unit), _error(b, second, unit))) for a, b in both]
    pairs.sort(key=lambda pair: -abs(pair.change))
    return Comparison(
        *names,
        (first, second),
        list(_facts(first, second)),
        pairs,
        (
            [layer.name for layer in first.layers if layer.name not in known],
            [layer.name for layer in second.layers if layer.name not in known],
        ),
        list(_settings(first.settings, second.settings)),
    )


def labels(first: Path, second: Path) -> tuple[str, str]:
    """What two folders are called: by as much of the ends of their paths as tells them apart."""
    parts = first.resolve().parts, second.resolve().parts
    for count in range(1, max(map(len, parts)) + 1):
        found = str(Path(*parts[0][-count:])), str(Path(*parts[1][-count:]))
        if found[0] != found[1]:
            return found
    return found


def changed(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _bits(layer: Layer) -> str:
    return ", ".join(str(bits.chosen) for bits in layer.bits) or UNKNOWN


def _noise(report: Report) -> float | None:
    """The error of all outputs, as a share of their signal."""
    known = [error for error in (report.error.whole if report.error else ()) if error is not None]
    return sum(known) / len(known) if known else None


def _error(layer: Layer, report: Report, unit: float | None) -> float | None:
    noise = _noise(report)
    return None if layer.shares is None or noise is None or not unit else layer.shares.alone * noise / unit


# The head


def _facts(first: Report, second: Report) -> Iterator[Fact]:
    both = (first, second)
    accuracy = [report.accuracy for report in both]
    if any(each is not None and each.integer_top1 is not None for each in accuracy):
        top1 = [each.integer_top1 if each else None for each in accuracy]
        yield Fact("top-1", percent(top1[0]), percent(top1[1]), _less(top1, " points", 100))
        lost = [_loss(report) for report in both]
        yield Fact("top-1 against float, points", lost[0], lost[1], "")
    agreement = [each.agreement if each else None for each in accuracy]
    yield Fact(
        "same first class as float", percent(agreement[0]), percent(agreement[1]), _less(agreement, " points", 100)
    )
    sqnr = [each.sqnr if each else None for each in accuracy]
    yield Fact("SQNR of the outputs", decibels(sqnr[0]), decibels(sqnr[1]), _less(sqnr, " dB"))
    yield from _outputs(first, second)
    yield from _costs(first, second)


def _outputs(first: Report, second: Report) -> Iterator[Fact]:
    """The outputs and their parts, where there is more than one, by the names in the second run."""
    before = dict(_sqnr(first))
    found = list(_sqnr(second))
    for name, sqnr in found if len(found) > 1 else ():
        pair = [before.get(name), sqnr]
        yield Fact(f"SQNR of {name}", decibels(pair[0]), decibels(pair[1]), _less(pair, " dB"))


def _sqnr(report: Report) -> Iterator[tuple[str, float | None]]:
    for output in report.outputs or ():
        yield output.name, output.sqnr
        for part in output.parts:
            yield f"{output.name}, {part.name}", part.sqnr


def _costs(first: Report, second: Report) -> Iterator[Fact]:
    both = (first, second)
    yield _ratio("parameters", [float(report.sizes.integer_parameters) for report in both], "bytes")
    yield _ratio("compiled module", [_float(report.sizes.module) for report in both], "bytes")
    arenas = [report.time.memory.arena if report.time else None for report in both]
    yield _ratio("tensors in between", [_float(arena) for arena in arenas], "bytes")
    yield _ratio("latency", [report.latency.integer if report.latency else None for report in both], "seconds")
    spare = [report.proof.spare_bits for report in both]
    yield Fact("bits under 32 that the widest sum leaves", number(spare[0]), number(spare[1]), _less(spare, " bits"))
    yield _ratio("making it", [sum(report.seconds.values()) or None for report in both], "seconds")


def _float(count: int | None) -> float | None:
    return None if count is None else float(count)


def _loss(report: Report) -> str:
    accuracy = report.accuracy
    if accuracy is None or accuracy.difference is None or accuracy.standard_error is None:
        return UNKNOWN
    return f"{signed(100 * accuracy.difference)} ± {number(100 * accuracy.standard_error)}"


def _less(pair: list[float | None], unit: str, factor: float = 1.0) -> str:
    """The difference of two values."""
    before, after = pair
    return "" if before is None or after is None or before == after else f"{signed(factor * (after - before))}{unit}"


def _ratio(name: str, pair: list[float | None], unit: str) -> Fact:
    """Two sizes or times, and how many times the one the other is."""
    said = [duration(value) if unit == "seconds" else size(None if value is None else int(value)) for value in pair]
    before, after = pair
    return Fact(
        name,
        said[0],
        said[1],
        f"× {number(after / before)}" if before and after is not None and before != after else "",
    )


# The configuration


def _settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The keys whose values differ, with their sections before them."""
    before, after = dict(_flat(first)), dict(_flat(second))
    for key in before | after:
        pair = before.get(key, UNKNOWN), after.get(key, UNKNOWN)
        if pair[0] != pair[1]:
            yield key, *pair


def _flat(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", UNKNOWN if value is None else str(value)


def largest(comparison: Comparison) -> float:
    """The largest error of a layer in either run, for the length of bars."""
    return max((error or 0.0 for pair in comparison.pairs for error in pair.errors), default=0.0) or math.inf
