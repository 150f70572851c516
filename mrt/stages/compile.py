"""The stage that compiles the saved model for a machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import tvm

from mrt.backend.machine import Machine
from mrt.certificate import CERTIFICATE_FILE
from mrt.model import load
from mrt.report.errors import ERRORS_FILE
from mrt.stages.stage import MODULE, SUMMARY, Run, Save, Stage, section_origin
from mrt.symbol.files import sha256_of

TILINGS = "tilings"
"""The folder of what tuning measured; it is used as long as it is there, whatever stages are made anew."""


def _compile(run: Run) -> Save:
    config = run.config.compile
    database = run.workspace.folder / TILINGS
    known = database if config.tune or database.is_dir() else None
    if known and not config.tune:
        run.report.line(f"compile: kernels are tiled as was measured, by {known}; remove it to go by the rules")
    module = load(run.workspace.home(CERTIFICATE_FILE)).compile(
        config.target, config.batch, config.tune, known, run.report
    )

    def save() -> tuple[str, ...]:
        module.save(run.workspace.new(MODULE))
        return (MODULE,)

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
