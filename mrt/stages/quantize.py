"""The stage that makes the integer network and its proof, the model that is saved."""

from __future__ import annotations

import json

from mrt.backend import ONE_THREAD, TvmRunner
from mrt.calibration import Calibration
from mrt.certificate.verify import POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE
from mrt.errors import ConfigError
from mrt.model import assemble
from mrt.quantization.algorithms.bias_correction import Samples, find_corrections, reductions
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.simplified import simplified
from mrt.report.errors import ERRORS_FILE
from mrt.stages.stage import (
    MODULE,
    MODULE_RECORD,
    NOTES,
    SUMMARY,
    THRESHOLDS,
    Run,
    Save,
    Stage,
    dataset_of,
    prepared_graph,
    section_origin,
)
from mrt.symbol import Array, Graph
from mrt.workspace import Workspace


def _quantize(run: Run) -> Save:
    graph, postprocess = prepared_graph(run.workspace)
    found = _calibration(run.workspace)
    integer = expand_graph(graph, found.ranges, run.config.quantize, _corrections(run, graph, found))
    model = assemble(simplified(integer), postprocess, found.ranges, _preparation_notes(run.workspace))
    for note in model.notes:
        run.report.line(f"quantize: {note}")
    return lambda: run.workspace.write(model.files)


def _corrections(run: Run, graph: Graph, found: Calibration) -> dict[str, Array]:
    options = run.config.quantize
    if options.bias_correction != "sequential":
        return find_corrections(graph, found, options)
    data, config = dataset_of(run, run.config.data.calibration, "data.calibration"), run.config.calibrate
    with run.report.progress("correct biases", len(reductions(graph)), "layers") as progress:
        samples = Samples(data.batches(config.batch_size), config, TvmRunner(ONE_THREAD), progress)
        return find_corrections(graph, found, options, samples)


def _preparation_notes(workspace: Workspace) -> tuple[str, ...]:
    """What preparation changed that is to be known: ranges that it tuned."""
    return tuple(json.loads(workspace.path(NOTES).read_bytes())["notes"]) if workspace.has(NOTES) else ()


def _calibration(workspace: Workspace) -> Calibration:
    path = workspace.path(THRESHOLDS)
    try:
        return Calibration.from_json(json.loads(path.read_bytes()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is malformed ({error}); start from calibrate (--from calibrate)") from None


QUANTIZE = Stage(
    "quantize",
    _quantize,
    lambda run: section_origin("quantize", run.config.quantize),
    spoils=(POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE, MODULE, MODULE_RECORD, SUMMARY, ERRORS_FILE),
)
