"""The stage that observes the tensors of the prepared network on data."""

from __future__ import annotations

from mrt.backend import ONE_THREAD, TvmRunner
from mrt.batches import Batches, integer_notes
from mrt.calibration import Calibration, calibrate
from mrt.quantization.algorithms.bias_correction import observed_channels
from mrt.quantization.expansion import check_covered
from mrt.quantization.plan.make import observed_tensors
from mrt.stages.stage import (
    THRESHOLDS,
    Run,
    Save,
    Stage,
    data_origin,
    dataset_of,
    prepared_graph,
    section_origin,
    to_json,
)


def _calibrate(run: Run) -> Save:
    graph, _ = prepared_graph(run.workspace)
    check_covered(graph)
    if run.config.data.calibration is None:
        nothing = to_json(Calibration({}, {}).to_json())
        return lambda: run.workspace.write({THRESHOLDS: nothing})
    data = dataset_of(run, run.config.data.calibration, "data.calibration")
    config = run.config.calibrate
    total = data.size if config.samples is None else min(config.samples, data.size)
    batches = Batches(data.batches(config.batch_size), graph.inputs, run.config.quantize.inputs)
    for note in integer_notes(data.integers, run.config.quantize.inputs):
        run.report.line(f"calibrate: {note}")
    with run.report.progress("calibrate", total) as progress:
        runner, tensors = TvmRunner(ONE_THREAD), observed_tensors(graph)
        found = calibrate(graph, batches, tensors, config, runner, progress, observed_channels(graph))
    content = to_json(found.to_json())
    return lambda: run.workspace.write({THRESHOLDS: content})


CALIBRATE = Stage(
    "calibrate",
    _calibrate,
    lambda run: {
        **data_origin("data.calibration", run.config.data.calibration, run.config.calibrate.samples),
        **section_origin("calibrate", run.config.calibrate),
    },
)
