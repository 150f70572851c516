"""The stage that compiles the saved model for a machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

import tvm

from mrt.backend.devices import target_on
from mrt.backend.machine import Machine
from mrt.certificate import CERTIFICATE_FILE
from mrt.model import load
from mrt.report.errors import ERRORS_FILE
from mrt.report.page import REPORT_FILES
from mrt.stages.stage import MODULE, MODULE_RECORD, SUMMARY, TILINGS, Run, Save, Stage, section_origin, work_of
from mrt.steps import COMPILE as STEP
from mrt.symbol.files import sha256_of
from mrt.work import Work, found


def _load(run: Run) -> Work:
    return replace(work_of(run), model=load(run.workspace.home(CERTIFICATE_FILE)))


def _save(run: Run, work: Work) -> Save:
    def save() -> tuple[str, ...]:
        found(work.module).save(run.workspace.new(MODULE))
        return (MODULE, MODULE_RECORD)

    return save


def _origins(run: Run) -> Mapping[str, str]:
    """Code depends on TVM as well, that for this machine on the machine, and on tilings that were measured before.

    A run that measures itself adds to these, and so does not depend on them.
    """
    config, database = run.config.compile, run.workspace.folder / TILINGS
    wanted = target_on(run.device, config.target)
    target = Machine.of(wanted).target.export() if config.target.is_native else {}
    tilings = {} if config.tune else {path.name: sha256_of(path) for path in sorted(database.glob("*.json"))}
    return {
        # The module is the same with and without the cache.
        **section_origin("compile", config.model_copy(update={"cache": True})),
        "version of TVM": tvm.__version__,
        "machine": _digest({str(key): str(target[key]) for key in ("mcpu", "mattr") if key in target}),
        "database of tilings": _digest(tilings),
    }


def _digest(facts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


COMPILE = Stage(STEP, _load, _save, _origins, spoils=(SUMMARY, ERRORS_FILE, *REPORT_FILES))
