"""The stage that compiles the saved model for a machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import tvm

from mrt.backend.machine import Machine
from mrt.certificate import CERTIFICATE_FILE
from mrt.compilation import Target, TuneConfig
from mrt.model import load
from mrt.progress import Reporter
from mrt.report.errors import ERRORS_FILE
from mrt.runtime import Module
from mrt.stages.stage import MODULE, MODULE_RECORD, SUMMARY, Run, Save, Stage, section_origin
from mrt.symbol.files import sha256_of

TILINGS = "tilings"
"""The folder of what tuning measured; it is used as long as it is there, whatever stages are made anew."""


def compile_saved(
    folder: Path, database: Path, target: Target, batch: int, tune: TuneConfig | None, report: Reporter
) -> Module:
    """The model saved in `folder`, verified and compiled; raises what `load` and `QuantizedModel.compile` raise.

    database: the folder of what tuning measured, which is used if it is there.
    """
    known = database if tune or database.is_dir() else None
    if known and not tune:
        report.line(f"compile: kernels are tiled as was measured, by {known}; remove it to go by the rules")
    return load(folder).compile(target, batch, tune, known, report)


def _compile(run: Run) -> Save:
    config = run.config.compile
    home, database = run.workspace.home(CERTIFICATE_FILE), run.workspace.folder / TILINGS
    module = compile_saved(home, database, config.target, config.batch, config.tune, run.report)

    def save() -> tuple[str, ...]:
        module.save(run.workspace.new(MODULE))
        return (MODULE, MODULE_RECORD)

    return save


def _origins(run: Run) -> Mapping[str, str]:
    """Code depends on TVM as well, that for this machine on the machine, and on tilings that were measured before.

    A run that measures itself adds to these, and so does not depend on them.
    """
    config, database = run.config.compile, run.workspace.folder / TILINGS
    target = Machine.of(config.target).target.export() if config.target.is_native else {}
    tilings = {} if config.tune else {path.name: sha256_of(path) for path in sorted(database.glob("*.json"))}
    return {
        **section_origin("compile", config),
        "version of TVM": tvm.__version__,
        "machine": _digest({str(key): str(target[key]) for key in ("mcpu", "mattr") if key in target}),
        "database of tilings": _digest(tilings),
    }


def _digest(facts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


COMPILE = Stage(
    "compile",
    _compile,
    _origins,
    spoils=(SUMMARY, ERRORS_FILE),
)
