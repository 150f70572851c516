"""The pipeline: prepare, calibrate, quantize, compile, evaluate; each stage is saved, and a run may start at any.

Every stage reads what the earlier ones saved, so that a run that is resumed is the same as one in a single go.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mrt.config import RunConfig
from mrt.errors import ConfigError, MRTError
from mrt.frontend import load_model
from mrt.progress import Reporter
from mrt.quantization.trained import brings_quantization
from mrt.report.summary import summary_table
from mrt.stages import STAGES, SUMMARY, Run, Stage
from mrt.workspace import Workspace


def run_pipeline(
    config: RunConfig,
    first: str | None = None,
    last: str | None = None,
    output: Path | None = None,
    report: Reporter | None = None,
) -> dict[str, Any] | None:
    """Runs the stages from `first` to `last` (by default all); gives the summary if it was made.

    output: the folder of the results, which is the saved model; by default the configuration's. Raises ConfigError if
    saved results of earlier stages are missing or were made from something else, and whatever the stages raise; what
    was saved before a stage that fails stays.
    """
    started = time.perf_counter()
    todo = _chosen(first, last)
    workspace = Workspace(_output(config, output))
    run = Run(config, load_model(config.model.path, shapes=config.model.shapes), workspace, report or Reporter())
    _check_sections(run, todo)
    origins: dict[str, str] = {}
    for stage in STAGES[: STAGES.index(todo[0])]:
        origins |= stage.origins(run)
        workspace.check(stage.name, origins, todo[0].name)
    workspace.open()
    for stage in todo:
        origins |= stage.origins(run)
        started = _run_stage(stage, run, origins, started)
    run.report.line(f"saved in {workspace.folder}")
    if todo[-1] is not STAGES[-1]:
        return None
    summary: dict[str, Any] = json.loads(workspace.path(SUMMARY).read_bytes())
    run.report.table(summary_table(summary))
    return summary


def _run_stage(stage: Stage, run: Run, origins: Mapping[str, str], started: float) -> float:
    """Runs, saves and records one stage; gives the time when it ended."""
    try:
        save = stage.run(run)
        later = [other.name for other in STAGES[STAGES.index(stage) :]]
        run.workspace.forget(later, stage.spoils)
        files = save()
        ended = time.perf_counter()
        run.workspace.record(stage.name, origins, files, round(ended - started, 3))
    except OSError as error:
        raise MRTError(
            f"stage {stage.name}: {error.strerror or error} ({error.filename or run.workspace.folder}); "
            f"mend that or choose another folder by --output"
        ) from error
    run.report.line(f"{stage.name}: done in {ended - started:.2f} s")
    return ended


def _chosen(first: str | None, last: str | None) -> Sequence[Stage]:
    names = [stage.name for stage in STAGES]
    for name in (first, last):
        if name is not None and name not in names:
            raise ConfigError(f"{name} is no stage; the stages are {', '.join(names)}")
    start, stop = names.index(first or names[0]), names.index(last or names[-1])
    if start > stop:
        raise ConfigError(f"from {first} to {last} there is no stage; the order is {', '.join(names)}")
    return STAGES[start : stop + 1]


def _check_sections(run: Run, todo: Sequence[Stage]) -> None:
    config, names = run.config, [stage.name for stage in todo]
    if "calibrate" in names and config.data.calibration is None and not brings_quantization(run.graph):
        raise ConfigError("data.calibration is missing; stage calibrate needs it")
    correction = config.quantize.bias_correction
    if "quantize" in names and correction != "none" and config.data.calibration is None:
        raise ConfigError(f"data.calibration is missing; stage quantize needs it for bias_correction: {correction}")
    if "evaluate" in names and config.data.test is None:
        raise ConfigError("data.test is missing; stage evaluate needs it (to do without, stop by --to compile)")


def _output(config: RunConfig, output: Path | None) -> Path:
    folder = output or config.output
    if folder is None:
        raise ConfigError("output is missing; name the folder of the results there or by --output")
    return folder
