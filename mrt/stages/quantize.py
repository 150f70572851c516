"""The stage that makes the integer network and its proof, the model that is saved."""

from __future__ import annotations

import json
from dataclasses import replace

from mrt.calibration import Calibration
from mrt.certificate.verify import POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE
from mrt.errors import ConfigError
from mrt.report.errors import ERRORS_FILE
from mrt.report.page import REPORT_FILES
from mrt.stages.stage import (
    MODULE,
    MODULE_RECORD,
    OPTIONS,
    SUMMARY,
    THRESHOLDS,
    Run,
    Save,
    Stage,
    calibration_batches,
    section_origin,
    to_json,
    with_prepared,
    work_of,
)
from mrt.steps import QUANTIZE as STEP
from mrt.work import Work, found
from mrt.workspace import Workspace


def _load(run: Run) -> Work:
    work = with_prepared(run, work_of(run))
    return replace(work, observed=observed_of(run.workspace), data=calibration_batches(run))


def observed_of(workspace: Workspace) -> Calibration:
    """What the stage calibrate saved; ConfigError where that is malformed."""
    path = workspace.path(THRESHOLDS)
    try:
        return Calibration.from_json(json.loads(path.read_bytes()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is malformed ({error}); start from calibrate (--from calibrate)") from None


def _save(run: Run, work: Work) -> Save:
    options = to_json(found(work.chosen).model_dump(mode="json", exclude_unset=True))
    files = found(work.model).files | {OPTIONS: options}
    return lambda: run.workspace.write(files)


QUANTIZE = Stage(
    STEP,
    _load,
    _save,
    lambda run: section_origin("quantize", run.config.quantize),
    spoils=(POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE, MODULE, MODULE_RECORD, SUMMARY, ERRORS_FILE, *REPORT_FILES),
)
