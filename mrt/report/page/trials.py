"""The trials of a search, read from the files that `mrt tune` leaves; a folder may come from anyone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ConfigDict

from mrt.errors import ModelFileError
from mrt.report.facts import Report, Trial, Trials
from mrt.symbol.files import read_file
from mrt.symbol.limits import JSON_BYTES
from mrt.symbol.strict_json import StrictModel, parse_json, validated

FOLDER, RESULTS, OUTCOME, TRIALS = "tune", "tuned", "tuned.json", "trials.jsonl"
UNITS = {"top1": "top1, %", "sqnr": "sqnr, dB"}


class _Facts(StrictModel):
    """What is needed of a JSON object that holds more."""

    model_config = ConfigDict(extra="ignore")


class _Place(_Facts):
    trial: int


class _Outcome(_Facts):
    metric: str
    objective: str
    pareto: list[_Place]


class _Request(_Facts):
    why: str


class _Judged(_Facts):
    value: float


class _Cost(_Facts):
    latency: float
    bytes: int
    bits: float


class _Result(_Facts):
    judged: _Judged
    cost: _Cost
    milliseconds: float
    failure: str


class _Line(_Facts):
    request: _Request
    result: _Result


def with_trials(report: Report, directory: Path) -> Report:
    """The report with the trials of the search that was made in the folder of its results, or that made them."""
    if report.trials is not None:
        return report
    for folder in (directory / FOLDER, *([directory.parent] if directory.name == RESULTS else ())):
        if os.path.lexists(folder / OUTCOME) and os.path.lexists(folder / TRIALS):
            return report.model_copy(update={"trials": read_trials(folder)})
    return report


def read_trials(folder: Path) -> Trials:
    """The trials of a search in its folder; ModelFileError naming the file that is malformed."""
    try:
        outcome = validated(_Outcome, parse_json(read_file(folder / OUTCOME, JSON_BYTES)))
    except ModelFileError as error:
        raise ModelFileError(f"{folder / OUTCOME} is malformed ({error}); mrt tune makes it anew") from None
    front = {place.trial for place in outcome.pareto}
    trials = [
        Trial(
            name=str(number),
            changes=[line.request.why],
            metric=line.result.judged.value,
            seconds=line.result.milliseconds / 1000,
            bytes=line.result.cost.bytes,
            bits=line.result.cost.bits,
            is_best=number in front,
            cost=line.result.cost.latency,
        )
        for number, line in enumerate(_lines(folder / TRIALS))
        if not line.result.failure
    ]
    metric = UNITS.get(outcome.metric, outcome.metric)
    return Trials(metric=metric, objective=outcome.objective, trials=trials)


def _lines(path: Path) -> Iterator[_Line]:
    """The trials in order, up to the first line that is cut short; questions of another kind are among them."""
    for text in read_file(path, JSON_BYTES).split(b"\n"):
        try:
            found = parse_json(text)
        except ModelFileError:
            return
        if isinstance(found, dict) and "quantize" in (found.get("request") or ()):
            try:
                yield validated(_Line, found)
            except ModelFileError as error:
                raise ModelFileError(f"{path} is malformed ({error}); remove it, and mrt tune begins anew") from None
