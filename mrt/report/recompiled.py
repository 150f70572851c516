"""The report on a model that was compiled anew since: what was measured of the module before is left out."""

from __future__ import annotations

from pathlib import Path

from mrt.model import QuantizedModel
from mrt.report.facts import REPORT_FILE, Report, read_report, report_bytes
from mrt.report.measure.notes import notes_of
from mrt.report.page import page_files
from mrt.report.page.trials import with_trials

WHY = "the model was compiled anew since; mrt run CONFIG.yaml --from report measures"


def recompiled_files(directory: Path, model: QuantizedModel, module_bytes: int) -> dict[str, bytes]:
    """By name the files of the report in the folder of a model, without times; none where no report tells of it."""
    report = read_report(directory, model.digest)
    if report is None:
        return {}
    told = without_times(report, model.notes, module_bytes)
    return {REPORT_FILE: report_bytes(told)} | page_files(with_trials(told, directory))


def without_times(report: Report, notes: tuple[str, ...], module_bytes: int) -> Report:
    """notes: of the model. module_bytes: of the new module's file."""
    bare = report.model_copy(
        update={
            "latency": None,
            "time": None,
            "sizes": report.sizes.model_copy(update={"module": module_bytes}),
            "layers": [each.model_copy(update={"seconds": None, "time_share": None}) for each in report.layers],
            "missing": {
                **{part: why for part, why in report.missing.items() if not part.startswith(("latency", "time"))},
                "latency": WHY,
                "time": WHY,
            },
        }
    )
    return bare.model_copy(update={"notes": notes_of(bare, notes)})
