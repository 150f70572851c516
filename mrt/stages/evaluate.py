"""The stage that holds the compiled model against the float network."""

from __future__ import annotations

import time
from dataclasses import replace

from mrt.backend.devices import check_fits
from mrt.certificate import CERTIFICATE_FILE
from mrt.evaluation import Comparison
from mrt.model import load
from mrt.module_record import read_module
from mrt.report.errors import ERRORS_FILE
from mrt.report.page import REPORT_FILES
from mrt.runtime import load_module
from mrt.stages.calibrate import CALIBRATE
from mrt.stages.compile import COMPILE
from mrt.stages.prepare import PREPARE
from mrt.stages.quantize import QUANTIZE
from mrt.stages.stage import (
    MODULE,
    SUMMARY,
    Run,
    Save,
    Stage,
    data_origin,
    dataset_of,
    device_origin,
    section_origin,
    to_json,
    with_prepared,
    work_of,
)
from mrt.steps import EVALUATE as STEP
from mrt.work import Work, found

EARLIER = (PREPARE, CALIBRATE, QUANTIZE, COMPILE)
"""The stages whose seconds the summary tells beside its own."""


def _load(run: Run) -> Work:
    work, workspace = work_of(run), run.workspace
    # The module beside it may be that of an earlier run still.
    model = load(workspace.home(CERTIFICATE_FILE))
    path = workspace.path(MODULE)
    if not run.device.is_here and (record := read_module(path)[1]) is not None:
        check_fits(run.device, record.made_from.target)
    module = load_module(path, model.digest, device=run.device)
    test = dataset_of(run, run.config.data.test, "data.test").first(run.config.evaluate.samples)
    return replace(with_prepared(run, work), model=model, module=module, test=test)


def _save(run: Run, work: Work) -> Save:
    workspace, model, evaluated = run.workspace, found(work.model), found(work.evaluated)
    compared = evaluated.compared
    seconds = {stage.name: workspace.seconds(stage.name) for stage in EARLIER}
    content = to_json(
        {
            "model": run.config.model.path.stem,
            "samples": compared.samples,
            "float": {"top1": compared.float_top1.value},
            "integer": {"top1": compared.integer_top1.value},
            **_paired(compared),
            "agreement": compared.agreement.value,
            "sqnr_db": compared.noise.sqnr_db,
            "integer_only": True,
            "max_bits": model.certificate.max_bits,
            "operators": model.graph.count_operators(),
            "seconds": seconds | {STEP.name: round(time.perf_counter() - work.started, 3)},
            "bit_exact_samples": evaluated.errors.samples,
        }
    )
    return lambda: workspace.write({SUMMARY: content, ERRORS_FILE: to_json(evaluated.errors.to_json())})


def _paired(compared: Comparison) -> dict[str, int]:
    """The samples that one of the two networks alone has right, from which follows the error of their difference."""
    return {"lost": compared.lost, "won": compared.won} if compared.float_top1.total else {}


EVALUATE = Stage(
    STEP,
    _load,
    _save,
    lambda run: {
        **data_origin("data.test", run.config.data.test, run.config.evaluate.samples),
        **section_origin("evaluate", run.config.evaluate),
        **device_origin(run),
    },
    spoils=REPORT_FILES,
)
