"""The stage that compiles the saved model for a machine."""

from __future__ import annotations

from mrt.model import load
from mrt.report.errors import ERRORS_FILE
from mrt.stages.stage import MODULE, SUMMARY, Run, Save, Stage, section_origin

TILINGS = "tilings"
"""The folder of what tuning measured; it is used as long as it is there, whatever stages are made anew."""


def _compile(run: Run) -> Save:
    config = run.config.compile
    database = run.workspace.path(TILINGS)
    known = database if config.tune or database.is_dir() else None
    if known and not config.tune:
        run.report.line(f"compile: kernels are tiled as was measured, by {known}; remove it to go by the rules")
    module = load(run.workspace.folder).compile(config.target, config.batch, config.tune, known, run.report)

    def save() -> tuple[str, ...]:
        module.save(run.workspace.path(MODULE))
        return (MODULE,)

    return save


COMPILE = Stage(
    "compile",
    _compile,
    lambda run: section_origin("compile", run.config.compile),
    spoils=(SUMMARY, ERRORS_FILE),
)
