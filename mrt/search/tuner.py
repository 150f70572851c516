"""`mrt tune`: the search on a configuration's network and data, in its output folder."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mrt.algorithm_registry import names_of
from mrt.config import RunConfig, config_yaml, load_config
from mrt.datasets import Dataset
from mrt.errors import ConfigError, DataError
from mrt.execution.opened import opened
from mrt.messages import short
from mrt.pipeline import run_of
from mrt.progress import Reporter, silent
from mrt.quantization.algorithms.algorithm import BiasCorrection, ChannelChoice, ParameterChange, Rounding, WidthChoice
from mrt.quantization.options import QuantizationConfig
from mrt.search.configuration import tuned_config
from mrt.search.cost import Objective, objective_of
from mrt.search.explore import Explorer, OutOfTime
from mrt.search.laboratory import Laboratory, Result
from mrt.search.metric import TOP1, Demand, FunctionScore, demand
from mrt.search.outcome import Trial, Tuned, best_of, choices_of, summary
from mrt.search.sensitivity import Sensitivity
from mrt.search.trials import Json, Record, TrialFile
from mrt.stages.calibrate import CALIBRATE
from mrt.stages.prepare import PREPARE
from mrt.stages.quantize import QUANTIZE
from mrt.stages.stage import (
    Run,
    calibration_batches,
    data_origin,
    dataset_of,
    device_of,
    device_origin,
    output_folder,
    to_json,
    work_of,
)
from mrt.symbol.files import atomic_write_all, sha256_of
from mrt.symbol.states import state_names
from mrt.workspace import Workspace

FOLDER = "tune"
TRIALS, CONFIGURATION, OUTCOME, RESULTS = "trials.jsonl", "tuned.yaml", "tuned.json", "tuned"
"""In the output folder's `tune`: the trials, the configuration found, the Pareto table; where its runs put theirs."""
MOST_FITTED = 512
"""Of calibration data that is to serve both, the samples that calibrate: half of them, at most so many."""


def tune(
    config: RunConfig | str | os.PathLike[str],
    drop: float | None = None,
    metric: str = TOP1,
    least: float | None = None,
    seconds: float = 120.0,
    objective: Objective = "latency",
    seed: int = 0,
    output: str | os.PathLike[str] | None = None,
    report: Reporter | None = None,
) -> Tuned:
    """The cheapest network that was found in the time whose metric meets what is demanded on samples held apart.

    config: of a run, or its file. metric: top1 (percent) or file.py:function, which `drop` says by how much it may
    fall, or sqnr, which `least` bounds in dB. A network meets the demand if it does with one standard error of the
    metric's fall to spare. objective: what is least: latency (multiplications weighted by their kernels), bytes (of
    parameters) or bits (the mean of weights). seconds: no trial begins later; trials that the folder holds of an
    earlier search that was made from the same are taken, and count by the time that they took. output: the folder, by
    default the configuration's; tune/tuned.yaml is the configuration found, written whenever there is a better one.

    Raises ConfigError for options that do not fit each other, DataError for unusable data or scores, BusyError where
    another process works in the folder, and what the steps raise for the configuration as it is.
    """
    wanted = demand(metric, drop, least)
    _check(objective, seconds, seed)
    settings = config if isinstance(config, RunConfig) else load_config(config)
    workspace = Workspace(output_folder(settings, None if output is None else Path(output)))
    report = report or silent()
    with workspace.opened() as has_locks, device_of(settings) as device:
        if not has_locks:
            report.line(f"the file system of {workspace.folder} has no locks: let no other run write there meanwhile")
        run, judging = _split(_stateless(run_of(settings, workspace, report, device=device)))
        options = {"objective": objective, "seed": seed, "demand": wanted.text, "metric": wanted.name}
        file = TrialFile(workspace.folder / FOLDER / TRIALS, _origins(run, wanted, options))
        if file.begun_anew:
            report.line(f"tune: the trials there were made with another {file.begun_anew}; they are replaced")
        if coarse := wanted.coarse(judging.size):
            report.line(f"tune: {coarse}")
        bar = report.progress(FOLDER, max(math.ceil(seconds), 1), "seconds")
        with opened(settings.cluster) as executor, bar as progress:
            work = replace(work_of(run), data=calibration_batches(run), report=silent(), executor=executor)
            laboratory = Laboratory(work, judging, wanted)
            return _Tuner(run, wanted, objective, laboratory, file, seconds, progress).run_search(seed)


def _check(objective: object, seconds: object, seed: object) -> None:
    objective_of(objective)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ConfigError(f"seconds is {short(seconds)}; a number, 0 or more, is needed")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed is {short(seed)}; an integer, 0 or more, is needed")


def _stateless(run: Run) -> Run:
    """The run; ConfigError where its network keeps something between calls."""
    states = sorted(state_names(run.graph))
    if states:
        raise ConfigError(
            f"the network keeps {', '.join(states)} between calls, and tune judges samples one by one; quantize it "
            f"with mrt run, its options set by hand"
        )
    return run


def _split(run: Run) -> tuple[Run, Dataset]:
    """The run with what calibrates alone, and the samples held apart to judge by."""
    config, section = run.config, run.config.data.validation
    calibration = dataset_of(run, config.data.calibration, "data.calibration")
    if section is not None:
        data = dataset_of(run, section, "data.validation")
        most = config.evaluate.samples
        return run, data if most is None else data.first(min(most, data.size))
    samples = config.calibrate.samples or min(calibration.size // 2, MOST_FITTED)
    if not 0 < samples < calibration.size - 1:
        raise DataError(
            f"data.calibration: {calibration.size} samples, of which calibrate.samples takes {samples}, leave too few "
            f"to judge by; give more, or data.validation"
        )
    fitted = config.calibrate.model_copy(update={"samples": samples})
    return replace(run, config=config.model_copy(update={"calibrate": fitted})), calibration.after(samples)


def _origins(run: Run, wanted: Demand, options: Json) -> dict[str, Any]:
    """What all trials depend on."""
    sections = [stage.origins(run) for stage in (PREPARE, CALIBRATE, QUANTIZE)]
    data, most = run.config.data, run.config.evaluate.samples
    judging = data_origin("data.calibration", data.calibration, None)
    judging |= {} if data.validation is None else data_origin("data.validation", data.validation, most)
    kinds = (ParameterChange, WidthChoice, Rounding, BiasCorrection, ChannelChoice)
    known = {f"algorithms of {kind.option}": list(names_of(kind.option)) for kind in kinds}
    metric = {"metric's file": sha256_of(wanted.file)} if isinstance(wanted, FunctionScore) else {}
    found: dict[str, Any] = {}
    for part in (*sections, judging, known, metric, options, {"batch": run.config.compile.batch}, device_origin(run)):
        found |= part
    return found


@dataclass
class _Tuner:
    """Answers the explorer from the file or by trying, and writes what is best so far."""

    run: Run
    demand: Demand
    objective: Objective
    laboratory: Laboratory
    file: TrialFile
    seconds: float
    progress: Callable[[int], None]
    trials: list[Trial] = field(default_factory=list)
    replayed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.started = time.perf_counter() - self.file.seconds
        self.explorer: Explorer

    def run_search(self, seed: int) -> Tuned:
        """Searches until time is over or nothing is left to try; gives and writes the outcome."""
        self.explorer = Explorer(self.laboratory.space(self.run.config.quantize), self.objective, seed, self)
        finished = True
        try:
            self.explorer.search(self.run.config.quantize)
        except OutOfTime:
            finished = False
        if self.explorer.best is None:
            raise DataError(f"the network as configured cannot be made: {self.trials[0].result.failure}")
        self._check_best(*self.explorer.best)
        tuned = self._outcome(finished)
        self._write(tuned)
        return tuned

    def trial(self, config: QuantizationConfig, why: str) -> Result:
        request = {"quantize": config.model_dump(mode="json"), "why": why}
        answer = self._answer(request, lambda: self.laboratory.trial(config, self.explorer.space).to_json())
        result = Result.from_json(answer)
        self.trials.append(Trial(len(self.trials), why, config, result))
        return result

    def explicit(self, config: QuantizationConfig) -> QuantizationConfig:
        return self.laboratory.explicit(config)

    def sensitivity(self, config: QuantizationConfig) -> Sensitivity:
        def measured() -> Json:
            found = self.laboratory.sensitivity(config, self.explorer.space)
            return {"errors": [[*key, {str(b): e for b, e in errors.items()}] for key, errors in found.items()]}

        answer = self._answer({"sensitivity": config.model_dump(mode="json")}, measured)
        return {(kind, name): {int(b): e for b, e in errors.items()} for kind, name, errors in answer["errors"]}

    def improved(self, config: QuantizationConfig, result: Result) -> None:
        number = len(self.trials) - 1
        told = "meets the demand" if result.judged.is_met else f"misses the demand by {result.judged.miss:.3g}"
        self.run.report.line(
            f"tune: trial {number} ({time.perf_counter() - self.started:.0f} s) {told}: {summary(result)}"
        )
        if not self.file.known:
            self._write(self._outcome(finished=False))

    def _answer(self, request: Json, measure: Callable[[], Json]) -> Json:
        record = self.file.take(request)
        if record is not None:
            self.replayed.add(record.result.get("digest", ""))
            return record.result
        started = time.perf_counter()
        if self.trials and started - self.started >= self.seconds:
            raise OutOfTime
        # What is written is what is used, so that a search that is resumed sees the same numbers.
        result: Json = json.loads(json.dumps(measure()))
        self.file.add(Record(request, result, time.perf_counter() - started))
        self.progress(min(int(time.perf_counter() - self.started), math.ceil(self.seconds)))
        return result

    def _check_best(self, config: QuantizationConfig, result: Result) -> None:
        """DataError where the best, taken from the file, is not what this process makes."""
        if result.digest in self.replayed and self.laboratory.model(config).digest != result.digest:
            raise DataError(
                f"{FOLDER}/{TRIALS}: the best trial there, of digest {result.digest[:12]}, is not made again by this "
                f"version; remove the file to begin anew"
            )

    def _outcome(self, finished: bool) -> Tuned:
        config, _ = self.explorer.best or (self.run.config.quantize, None)
        return Tuned(
            self.demand,
            self.objective,
            best_of(self.trials, config),
            self.laboratory.reference,
            tuple(self.trials),
            choices_of(config, self.explorer.space, self.explorer.sensitivity),
            self.run.workspace.folder / FOLDER / CONFIGURATION,
            finished,
        )

    def _write(self, tuned: Tuned) -> None:
        folder, config = tuned.configuration.parent, self.run.config
        chosen = tuned_config(config, tuned.best.config, folder.resolve() / RESULTS)
        atomic_write_all(
            {folder / OUTCOME: to_json(tuned.to_json()), tuned.configuration: config_yaml(chosen, tuned.verdict)}
        )
