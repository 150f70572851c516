"""The stage that compiles the saved model for a machine."""

from __future__ import annotations

from pathlib import Path

from mrt.compilation import Target, TuneConfig
from mrt.model import load
from mrt.progress import Reporter
from mrt.report.errors import ERRORS_FILE
from mrt.runtime import Module
from mrt.stages.stage import MODULE, MODULE_RECORD, SUMMARY, Run, Save, Stage, section_origin

TILINGS = "tilings"
"""The folder of what tuning measured; it is used as long as it is there, whatever stages are made anew."""


def compile_saved(folder: Path, target: Target, batch: int, tune: TuneConfig | None, report: Reporter) -> Module:
    """The model saved in `folder`, verified and compiled; raises what `load` and `QuantizedModel.compile` raise.

    What tuning measured, and left in the folder, is used.
    """
    database = folder / TILINGS
    known = database if tune or database.is_dir() else None
    if known and not tune:
        report.line(f"compile: kernels are tiled as was measured, by {known}; remove it to go by the rules")
    return load(folder).compile(target, batch, tune, known, report)


def _compile(run: Run) -> Save:
    config = run.config.compile
    module = compile_saved(run.workspace.folder, config.target, config.batch, config.tune, run.report)

    def save() -> tuple[str, ...]:
        module.save(run.workspace.path(MODULE))
        return (MODULE, MODULE_RECORD)

    return save


COMPILE = Stage(
    "compile",
    _compile,
    lambda run: section_origin("compile", run.config.compile),
    spoils=(SUMMARY, ERRORS_FILE),
)
