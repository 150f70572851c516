"""The stage that observes the tensors of the prepared network on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mrt.quantization.algorithms.needs import costly_choices
from mrt.stages.stage import (
    CHANGED,
    CHANGED_NOTES,
    THRESHOLDS,
    Run,
    Save,
    Stage,
    calibration_batches,
    data_origin,
    section_origin,
    to_json,
    with_prepared,
    work_of,
)
from mrt.steps import CALIBRATE as STEP
from mrt.symbol.files import graph_to_bytes
from mrt.work import Work, found


def _load(run: Run) -> Work:
    return replace(with_prepared(run, work_of(run)), data=calibration_batches(run))


def _save(run: Run, work: Work) -> Save:
    files = {THRESHOLDS: to_json(found(work.observed).to_json())}
    if work.settings.quantize.parameter_changes:
        prepared = found(work.prepared)
        files |= dict(zip(CHANGED, graph_to_bytes(prepared.graph), strict=True))
        files[CHANGED_NOTES] = to_json({"notes": list(prepared.notes)})
    return lambda: run.workspace.write(files)


def _origins(run: Run) -> Mapping[str, str]:
    """What costly algorithms need is observed for them alone; what is changed may depend on all that is asked."""
    costly, changes = costly_choices(run.config.quantize), run.config.quantize.parameter_changes
    return {
        **data_origin("data.calibration", run.config.data.calibration, run.config.calibrate.samples),
        **section_origin("calibrate", run.config.calibrate),
        **({"algorithms": ", ".join(costly)} if costly else {}),
        **(section_origin("quantize", run.config.quantize) if changes else {}),
    }


CALIBRATE = Stage(STEP, _load, _save, _origins, spoils=(*CHANGED, CHANGED_NOTES))
