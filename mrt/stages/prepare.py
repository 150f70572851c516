"""The stage that brings the network as read to the form that is quantized."""

from __future__ import annotations

import hashlib

from mrt.stages.stage import NOTES, POSTPROCESS, PREPARED, Run, Save, Stage, section_origin, to_json, work_of
from mrt.steps import PREPARE as STEP
from mrt.symbol import Graph
from mrt.symbol.files import graph_to_bytes
from mrt.version import __version__
from mrt.work import Work, found


def _save(run: Run, work: Work) -> Save:
    prepared = found(work.prepared)
    files = dict(zip(PREPARED, graph_to_bytes(prepared.graph), strict=True))
    if prepared.notes:
        files[NOTES] = to_json({"notes": prepared.notes})
    if prepared.postprocess is not None:
        files |= dict(zip(POSTPROCESS, graph_to_bytes(prepared.postprocess), strict=True))
    return lambda: run.workspace.write(files)


def _model_digest(graph: Graph) -> str:
    digest = hashlib.sha256()
    for part in graph_to_bytes(graph):
        digest.update(part)
    return digest.hexdigest()


PREPARE = Stage(
    STEP,
    work_of,
    _save,
    lambda run: {
        "model": _model_digest(run.graph),
        "version of MRT": __version__,
        **section_origin("prepare", run.config.prepare),
        "quantize.tune_ranges": str(run.config.quantize.tune_ranges),
    },
    spoils=(*POSTPROCESS, NOTES),
)
