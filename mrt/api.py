"""The Python API: from a float graph and data to a quantized model in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.calibration import CalibrationConfig, calibrate
from mrt.errors import DataError
from mrt.model import QuantizedModel, assemble, named_inputs
from mrt.preparation import PreparationConfig, prepare
from mrt.quantization.bias_correction import Samples, find_corrections, observed_channels
from mrt.quantization.expansion import check_covered
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.planning import observed_tensors
from mrt.quantization.rewriter import expand_graph
from mrt.quantization.simplified import simplified
from mrt.symbol import Array, Graph, Runner

Batches = Iterable["Array | Mapping[str, Array]"] | Mapping[str, Array]


def quantize(
    graph: Graph,
    batches: Batches | None = None,
    quantization: QuantizationConfig | None = None,
    calibration: CalibrationConfig | None = None,
    preparation: PreparationConfig | None = None,
    runner: Runner | None = None,
    progress: Callable[[int], None] | None = None,
) -> QuantizedModel:
    """The integer form of a float graph, calibrated on `batches`.

    batches: arrays (or arrays by input name) of any number of samples each, axis 0 the batch; or one such batch. With
    sequential bias correction they are read twice, so that an iterator does not serve. None for a network whose own
    quantizers say all ranges: where they do not, the error names the tensors that need data.
    runner: what runs the float graph, and parts of the integer one, called from several threads at once; TVM by
    default. progress: told the number of samples calibrated.
    Raises subclasses of MRTError: UnsupportedOperatorError, DataError, QuantizationError.
    """
    quantization, calibration = quantization or QuantizationConfig(), calibration or CalibrationConfig()
    runner = runner or default_runner()
    if quantization.bias_correction == "sequential" and isinstance(batches, Iterator):
        raise DataError(
            f"sequential bias correction reads the calibration data twice, but batches is a {type(batches).__name__}, "
            f"which can be read once; give a list, or an object whose every iteration starts anew"
        )
    if batches is None and quantization.bias_correction != "none":
        raise DataError(f"{quantization.bias_correction} bias correction needs calibration data, and batches is None")
    prepared = prepare(graph, preparation or PreparationConfig(), quantization.tune_ranges)
    check_covered(prepared.graph)
    if batches is None:
        integer = expand_graph(prepared.graph, {}, quantization)
        return assemble(simplified(integer), prepared.postprocess, {}, prepared.notes)
    names = [symbol.name for symbol in prepared.graph.inputs]
    if isinstance(batches, (np.ndarray, Mapping)):
        batches = (batches,)
    named = _Named(batches, names)
    found = calibrate(
        prepared.graph,
        named,
        observed_tensors(prepared.graph),
        calibration,
        runner,
        progress,
        () if quantization.bias_correction == "none" else observed_channels(prepared.graph),
    )
    samples = Samples(named, calibration, runner)
    corrections = find_corrections(prepared.graph, found, quantization, samples)
    integer = expand_graph(prepared.graph, found.thresholds, quantization, corrections)
    return assemble(simplified(integer), prepared.postprocess, found.thresholds, prepared.notes)


@dataclass(frozen=True)
class _Named:
    """Batches by input name, as often as they are iterated over."""

    batches: Iterable[Array | Mapping[str, Array]]
    names: Sequence[str]

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return (named_inputs(batch, self.names) for batch in self.batches)


def default_runner() -> Runner:
    """The runner of whoever names none: TVM on this machine's CPU, each call on one core."""
    from mrt.backend import ONE_THREAD, TvmRunner

    return TvmRunner(ONE_THREAD)
