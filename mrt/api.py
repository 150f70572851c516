"""The Python API: from a float graph and data to a quantized model in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from mrt.calibration import CalibrationConfig, calibrate
from mrt.model import QuantizedModel, assemble, named_inputs
from mrt.preparation import PreparationConfig, prepare
from mrt.quantization.expansion import check_covered
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan import observed_tensors
from mrt.quantization.rewriter import expand_graph
from mrt.symbol import Array, Graph, Runner

Batches = Iterable["Array | Mapping[str, Array]"] | Mapping[str, Array]


def quantize(
    graph: Graph,
    batches: Batches,
    quantization: QuantizationConfig | None = None,
    calibration: CalibrationConfig | None = None,
    preparation: PreparationConfig | None = None,
    runner: Runner | None = None,
    progress: Callable[[int], None] | None = None,
) -> QuantizedModel:
    """The integer form of a float graph, calibrated on `batches`.

    batches: arrays (or arrays by input name) of any number of samples each, axis 0 the batch; or one such batch.
    runner: what runs the float graph; TVM by default. progress: told the number of samples done.
    Raises subclasses of MRTError: UnsupportedOperatorError, DataError, QuantizationError.
    """
    prepared = prepare(graph, preparation or PreparationConfig())
    check_covered(prepared.graph)
    names = [symbol.name for symbol in prepared.graph.inputs]
    if isinstance(batches, (np.ndarray, Mapping)):
        batches = (batches,)
    thresholds = calibrate(
        prepared.graph,
        (named_inputs(batch, names) for batch in batches),
        observed_tensors(prepared.graph),
        calibration or CalibrationConfig(),
        runner or default_runner(),
        progress,
    )
    integer = expand_graph(prepared.graph, thresholds, quantization or QuantizationConfig())
    return assemble(integer, prepared.postprocess, thresholds)


def default_runner() -> Runner:
    """The runner of whoever names none: TVM on this machine's CPU."""
    from mrt.backend import TvmRunner

    return TvmRunner()
