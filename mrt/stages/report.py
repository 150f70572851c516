"""The stage that measures what a report tells of the network, layer by layer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mrt.backend import TvmRunner
from mrt.certificate import CERTIFICATE_FILE
from mrt.model import load
from mrt.quantization.options import QuantizationConfig
from mrt.report.facts import REPORT_FILE, Report, report_bytes
from mrt.report.measure.subject import Subject
from mrt.report.page import REPORT_FILES, page_files
from mrt.report.page.trials import with_trials
from mrt.runtime import load_module
from mrt.stages.calibrate import CALIBRATE
from mrt.stages.compile import COMPILE
from mrt.stages.evaluate import EVALUATE
from mrt.stages.prepare import PREPARE
from mrt.stages.quantize import QUANTIZE, observed_of
from mrt.stages.stage import (
    MODULE,
    OPTIONS,
    SUMMARY,
    Run,
    Save,
    Stage,
    calibration_batches,
    dataset_of,
    section_origin,
    with_prepared,
    work_of,
)
from mrt.steps import REPORT as STEP
from mrt.steps import calibration_samples
from mrt.symbol import Array, Graph
from mrt.symbol.states import states_of
from mrt.symbol.stream import stream_of
from mrt.work import Work, found

EARLIER = (PREPARE, CALIBRATE, QUANTIZE, COMPILE, EVALUATE)
"""The stages whose seconds are told."""
TOLD = ("prepare", "calibrate", "quantize", "compile", "evaluate")
"""The sections of the configuration that are told; none of them names a place on this machine."""


def _load(run: Run) -> Work:
    work = work_of(run)
    if run.config.report is False:
        return work
    work = replace(with_prepared(run, work), data=calibration_batches(run))
    return replace(work, subject=_subject(run, work, run.config.report.samples))


def _subject(run: Run, work: Work, samples: int) -> Subject:
    workspace, config = run.workspace, run.config
    model, prepared = load(workspace.home(CERTIFICATE_FILE)), found(work.prepared).graph
    test = dataset_of(run, config.data.test, "data.test").first(config.evaluate.samples)
    return Subject(
        name=config.model.path.stem,
        file=config.model.path.name,
        original=run.graph,
        prepared=prepared,
        model=model,
        # What runs on another device may not run here.
        module=load_module(workspace.path(MODULE), model.digest) if run.device.is_here else None,
        data=test,
        source="data.test",
        samples=samples,
        asked=config.quantize,
        chosen=_chosen(run),
        observed=observed_of(workspace),
        calibration=calibration_samples(work),
        completed=_completed(prepared, config.evaluate.stream_length),
        summary=json.loads(workspace.path(SUMMARY).read_bytes()),
        settings={name: getattr(config, name).model_dump(mode="json") for name in TOLD},
        seconds={stage.name: workspace.seconds(stage.name) for stage in EARLIER},
        module_bytes=workspace.path(MODULE).stat().st_size,
        report=run.report,
    )


def _chosen(run: Run) -> QuantizationConfig:
    """The options of quantization with what it chose."""
    return QuantizationConfig.model_validate(json.loads(run.workspace.path(OPTIONS).read_bytes()))


def _completed(prepared: Graph, length: int | None) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    """Adds to a sample what the states of the float network hold then, where it has some."""
    return stream_of(prepared, TvmRunner(), length).completed if states_of(prepared) else dict


def _save(run: Run, work: Work) -> Save:
    measured = work.measured
    if measured is None:
        return lambda: ()
    files = {REPORT_FILE: report_bytes(measured)} | _pages(run, measured)
    return lambda: run.workspace.write(files)


def _pages(run: Run, measured: Report) -> dict[str, bytes]:
    """The pages; none, and a line that says why, where one cannot be made: a network is worth more than its page."""
    try:
        return page_files(with_trials(measured, run.workspace.folder))
    except Exception as error:
        run.report.line(f"report: the page could not be made ({type(error).__name__}: {error}); {REPORT_FILE} is whole")
        return {}


def _origins(run: Run) -> dict[str, Any]:
    return section_origin("report", run.config.report or None)


REPORT = Stage(STEP, _load, _save, _origins, spoils=REPORT_FILES)
