"""The Python API: from a float graph and data to a quantized model in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from mrt.batches import batches_of
from mrt.calibration import CalibrationConfig, calibrate
from mrt.errors import ConfigError, DataError, GraphError
from mrt.messages import short
from mrt.model import QuantizedModel, assemble
from mrt.options import checked
from mrt.preparation import PreparationConfig, prepare
from mrt.quantization.algorithms.bias_correction import Samples, find_corrections, observed_channels
from mrt.quantization.expand import expand_graph
from mrt.quantization.expansion import check_covered
from mrt.quantization.integer.simplified import simplified
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import observed_tensors
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

    batches: arrays (or arrays by input name) of any number of samples each, axis 0 the batch; or one such batch. They
    hold real values; of an input that `quantization.inputs` declares they may hold its integers. With
    sequential bias correction they are read twice, so that an iterator does not serve. None for a network whose own
    quantizers say all ranges: where they do not, the error names the tensors that need data.
    runner: what runs the float graph, and parts of the integer one, called from several threads at once; TVM by
    default. progress: told the number of samples calibrated.
    Raises subclasses of MRTError: UnsupportedOperatorError, DataError, QuantizationError, ConfigError, GraphError.
    """
    quantization = checked(quantization, QuantizationConfig, "quantization")
    calibration = checked(calibration, CalibrationConfig, "calibration")
    preparation = checked(preparation, PreparationConfig, "preparation")
    _check_arguments(graph, runner, progress)
    _check_corrected(quantization, batches)
    prepared = prepare(graph, preparation, quantization.tune_ranges)
    check_covered(prepared.graph)
    quantization.check_against(prepared.graph)
    if batches is None:
        integer = expand_graph(prepared.graph, {}, quantization)
        return assemble(simplified(integer), prepared.postprocess, {}, prepared.notes)
    runner = default_runner() if runner is None else runner
    named = batches_of(batches, prepared.graph.inputs, quantization.inputs)
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
    integer = expand_graph(prepared.graph, found.ranges, quantization, corrections)
    return assemble(simplified(integer), prepared.postprocess, found.ranges, (*prepared.notes, *named.notes))


def _check_arguments(graph: object, runner: object, progress: object) -> None:
    if not isinstance(graph, Graph):
        raise GraphError(f"graph is {short(graph)}; an mrt.Graph is needed, such as mrt.load_model gives")
    if runner is not None and not callable(getattr(runner, "prepare", None)):
        raise ConfigError(f"runner is {short(runner)}; an object with the method prepare, or None, is needed")
    if progress is not None and not callable(progress):
        raise ConfigError(f"progress is {short(progress)}; a function of the number of samples, or None, is needed")


def _check_corrected(quantization: QuantizationConfig, batches: object) -> None:
    """DataError where bias correction cannot read the data as often as it needs."""
    if quantization.bias_correction == "sequential" and isinstance(batches, Iterator):
        raise DataError(
            f"sequential bias correction reads the calibration data twice, but batches is a {type(batches).__name__}, "
            f"which can be read once; give a list, or an object whose every iteration starts anew"
        )
    if batches is None and quantization.bias_correction != "none":
        raise DataError(f"{quantization.bias_correction} bias correction needs calibration data, and batches is None")


def default_runner() -> Runner:
    """The runner of whoever names none: TVM on this machine's CPU, each call on one core."""
    from mrt.backend import ONE_THREAD, TvmRunner

    return TvmRunner(ONE_THREAD)
