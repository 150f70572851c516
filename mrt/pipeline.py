"""The pipeline: prepare, calibrate, quantize, compile, evaluate, report; each is saved, and a run may start at any.

Every stage reads what the earlier ones saved, so that a run that is resumed is the same as one in a single go. Stages
whose results are there already, made from the same, are not run again. What a run makes is put in place at its end
(`mrt.workspace`), so that no result is lost before there is its successor.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from mrt.config import RunConfig
from mrt.errors import ConfigError, MRTError
from mrt.execution.opened import opened
from mrt.progress import Reporter
from mrt.quantization.plan.trained import brings_quantization
from mrt.quantization.presets import with_preset
from mrt.quantization.simulation.sensitivity import Sensitivity
from mrt.quantization.tensor_plan import Plan
from mrt.report.page import HTML_FILE
from mrt.report.summary import summary_table
from mrt.runtime import THIS_DEVICE, Device
from mrt.stages import STAGES, SUMMARY, Run, Stage
from mrt.stages.evaluate import EVALUATE
from mrt.stages.network import read_network
from mrt.stages.quantize import QUANTIZE
from mrt.stages.stage import device_of, output_folder
from mrt.steps import plan, sensitivity
from mrt.symbol import Graph
from mrt.work import Work
from mrt.workspace import Origins, Workspace


def run_pipeline(
    config: RunConfig,
    first: str | None = None,
    last: str | None = None,
    output: Path | None = None,
    report: Reporter | None = None,
    graph: Graph | None = None,
) -> dict[str, Any] | None:
    """Runs the stages from `first` to `last`; gives the summary if the network is evaluated.

    first: is run anew, and so are the stages behind it; without it, the stages at the beginning whose saved results
    were made from the same are taken as they are, all of them where nothing has changed. last: by default the last
    there is. output: the folder of the results, which is the saved model; by default the configuration's.
    graph: the configuration's network, where it was read already.
    Raises ConfigError if results of stages before `first` are missing or were made from something else, BusyError if
    another run is at work in the folder, and whatever the stages raise. The folder then holds what it held before,
    and the stages that were finished are taken by the next run that needs them.
    """
    started = time.perf_counter()
    todo = _chosen(first, last)
    workspace = Workspace(output_folder(config, output))
    report = report or Reporter()
    with workspace.opened() as has_locks, device_of(config) as device:
        if not has_locks:
            report.line(f"the file system of {workspace.folder} has no locks: let no other run write there meanwhile")
        run = run_of(config, workspace, report, graph, device)
        _check_sections(run, todo)
        origins = _origins(run, todo[-1])
        missing = _missing(run, todo, origins, None if first is None else todo[0])
        with _keeping_finished(workspace, report), opened(config.cluster if missing else None) as executor:
            run = replace(run, executor=executor)
            for stage in missing:
                started = _run_stage(stage, run, origins[stage.name], started)
            _put_in_place(run, todo[-1])
    if STAGES.index(todo[-1]) < STAGES.index(EVALUATE):
        return None
    summary: dict[str, Any] = json.loads(workspace.path(SUMMARY).read_bytes())
    report.table(summary_table(summary))
    if workspace.has(HTML_FILE):
        report.line(f"report: {workspace.path(HTML_FILE)}")
    return summary


def plan_of_run(config: RunConfig, output: Path | None = None) -> Plan:
    """What becomes of every tensor of a network that a run has calibrated; it need not have quantized it.

    Raises ConfigError where no run has calibrated it as the configuration says, or one of its overrides fits nothing.
    """
    report = Reporter(Console(stderr=True))
    with _calibrated(config, output, report) as work, report.step("plan"):
        return plan(work)


def sensitivity_of_run(config: RunConfig, output: Path | None = None, report: Reporter | None = None) -> Sensitivity:
    """What each rounding costs of the accuracy of a network that a run has calibrated, as it would be quantized.

    Raises ConfigError as `plan_of_run` does, or where there is no calibration data to measure that on.
    """
    report = report or Reporter()
    with _calibrated(config, output, report) as work, report.step("sensitivity"):
        return sensitivity(work)


@contextmanager
def _calibrated(config: RunConfig, output: Path | None, report: Reporter) -> Iterator[Work]:
    """The work of a run in front of the stage quantize; ConfigError where that was not done."""
    workspace = Workspace(output_folder(config, output))
    with workspace.opened():
        run = run_of(config, workspace, report)
        needed = STAGES[: STAGES.index(QUANTIZE)]
        if len(workspace.take(_origins(run, needed[-1]))) < len(needed):
            raise ConfigError(
                f"{workspace.folder} holds no calibration made from just this configuration, its model and its data; "
                f"run it first (mrt run CONFIG.yaml --to {needed[-1].name})"
            )
        with opened(config.cluster) as executor:
            yield QUANTIZE.load(replace(run, executor=executor))


def run_of(
    config: RunConfig,
    workspace: Workspace,
    report: Reporter,
    graph: Graph | None = None,
    device: Device = THIS_DEVICE,
) -> Run:
    """The run of a configuration, with what its preset means for its network. graph: that network, if it was read."""
    with report.step("read"):
        graph = graph or read_network(config.model, config.prepare.split)
    quantize = with_preset(config.quantize, graph, config.data.calibration is not None)
    return Run(config.model_copy(update={"quantize": quantize}), graph, workspace, report, device=device)


def _origins(run: Run, last: Stage) -> dict[str, dict[str, str]]:
    """What the result of each stage up to `last` depends on, which includes what earlier stages depend on."""
    origins: dict[str, dict[str, str]] = {}
    known: dict[str, str] = {}
    for stage in STAGES[: STAGES.index(last) + 1]:
        known = known | dict(stage.origins(run))
        origins[stage.name] = known
    return origins


def _missing(run: Run, todo: Sequence[Stage], origins: Mapping[str, Origins], first: Stage | None) -> Sequence[Stage]:
    """The stages that are to be run; the workspace takes the results of those before them.

    first: the one that is run in any case, where there is one; ConfigError if a stage before it is to be run.
    """
    wanted = STAGES[: STAGES.index(todo[-1] if first is None else first) + (first is None)]
    taken = run.workspace.take({stage.name: origins[stage.name] for stage in wanted})
    if first is not None and len(taken) < len(wanted):
        stage = wanted[len(taken)]
        run.workspace.refuse(stage.name, origins[stage.name], first.name)
    run.workspace.clear()
    for stage in todo[: len(wanted)] if first is None else ():
        if stage.name in taken:
            run.report.line(f"{stage.name}: taken as saved")
    return STAGES[len(taken) : STAGES.index(todo[-1]) + 1]


@contextmanager
def _keeping_finished(workspace: Workspace, report: Reporter) -> Iterator[None]:
    """Where a stage fails or is interrupted, says which are finished, and removes what it left half done."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            workspace.clear()
        kept = f"finished and kept for the next run: {', '.join(workspace.made)}"
        if isinstance(error, KeyboardInterrupt) and workspace.made:
            raise KeyboardInterrupt(kept) from None
        if workspace.made:
            report.line(kept)
        raise


def _put_in_place(run: Run, last: Stage) -> None:
    """Replaces an earlier result by what was made, if anything was."""
    workspace = run.workspace
    if not workspace.made:
        run.report.line(f"{workspace.folder} was made from just this; nothing is done (--from STAGE makes it anew)")
        return
    untrue = [name for stage in STAGES if stage.name in workspace.made for name in stage.spoils]
    try:
        workspace.commit(untrue, [stage.name for stage in STAGES[STAGES.index(last) + 1 :]])
    except OSError as error:
        raise _unwritten("the end of the run", error, workspace) from error
    run.report.line(f"saved in {workspace.folder}")


def _run_stage(stage: Stage, run: Run, origins: Origins, started: float) -> float:
    """Runs, saves and records one stage; gives the time when it ended."""
    try:
        with run.report.step(stage.name):
            files = stage.run(run)()
        ended = time.perf_counter()
        run.workspace.record(stage.name, origins, files, round(ended - started, 3))
    except OSError as error:
        raise _unwritten(f"stage {stage.name}", error, run.workspace) from error
    run.report.line(f"{stage.name}: done in {ended - started:.2f} s")
    return ended


def _unwritten(what: str, error: OSError, workspace: Workspace) -> MRTError:
    return MRTError(
        f"{what}: {error.strerror or error} ({error.filename or workspace.folder}); "
        f"mend that or choose another folder by --output"
    )


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
    correction, changes = config.quantize.bias_correction, config.quantize.parameter_changes
    if "calibrate" in names and changes and config.data.calibration is None:
        raise ConfigError(f"data.calibration is missing; parameter_changes need it: {', '.join(changes)}")
    if "quantize" in names and correction != "none" and config.data.calibration is None:
        raise ConfigError(f"data.calibration is missing; stage quantize needs it for bias_correction: {correction}")
    if "evaluate" in names and config.data.test is None:
        raise ConfigError("data.test is missing; stage evaluate needs it (to do without, stop by --to compile)")
