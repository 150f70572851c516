"""The Python API: from a float graph and data to a quantized model in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console

from mrt.batches import batches_of
from mrt.calibration import CalibrationConfig
from mrt.errors import ConfigError, DataError, GraphError
from mrt.messages import short
from mrt.model import QuantizedModel
from mrt.options import checked
from mrt.preparation import PreparationConfig
from mrt.progress import Reporter
from mrt.quantization.algorithms.moments import reading_moments
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.presets import with_preset
from mrt.steps import CALIBRATE, QUANTIZE, Settings, Work, found, reads_samples, run_steps
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
    hold real values; of an input that `quantization.inputs` declares they may hold its integers. They are read several
    times, unless the preset is fast or mrt, and an iterator is kept as a list. None for a network whose own
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
    quantization = with_preset(quantization, graph, batches is not None)
    if isinstance(batches, Iterator) and reads_samples(quantization):
        batches = _Kept(batches)
    work = Work(
        graph,
        Settings(preparation, calibration, quantization),
        data=None if batches is None else lambda prepared: batches_of(batches, prepared.inputs, quantization.inputs),
        runner=runner,
        report=_CalibrationProgress(progress),
    )
    return found(run_steps(work, QUANTIZE).model)


class _Kept:
    """What an iterator gives, kept so that it can be read more than once."""

    def __init__(self, source: Iterator[Array | Mapping[str, Array]]) -> None:
        self._source = source
        self._kept: list[Array | Mapping[str, Array]] = []

    def __iter__(self) -> Iterator[Array | Mapping[str, Array]]:
        yield from self._kept
        for batch in self._source:
            self._kept.append(batch)
            yield batch


class _CalibrationProgress(Reporter):
    """Tells a function of the samples calibrated, and nobody of anything else."""

    def __init__(self, told: Callable[[int], None] | None) -> None:
        super().__init__(Console(quiet=True))
        self._told = told

    @contextmanager
    def progress(self, task: str, total: int, unit: str = "samples") -> Iterator[Callable[[int], None]]:
        yield self._told if self._told is not None and task == CALIBRATE.name else lambda done: None


def _check_arguments(graph: object, runner: object, progress: object) -> None:
    if not isinstance(graph, Graph):
        raise GraphError(f"graph is {short(graph)}; an mrt.Graph is needed, such as mrt.load_model gives")
    if runner is not None and not callable(getattr(runner, "prepare", None)):
        raise ConfigError(f"runner is {short(runner)}; an object with the method prepare, or None, is needed")
    if progress is not None and not callable(progress):
        raise ConfigError(f"progress is {short(progress)}; a function of the number of samples, or None, is needed")


def _check_corrected(quantization: QuantizationConfig, batches: object) -> None:
    """DataError where an algorithm cannot read the data as often as it needs."""
    chosen = [*quantization.parameter_changes, *(f"rounding by {name}" for name in reading_moments(quantization))]
    chosen += [f"{quantization.bias_correction} bias correction"] if quantization.corrects_biases else []
    if isinstance(batches, Iterator) and reads_samples(quantization):
        raise DataError(
            f"{' with '.join(chosen)} reads the calibration data twice, but batches is a "
            f"{type(batches).__name__}, which can be read once; give a list, or an object whose every iteration starts "
            f"anew"
        )
    if batches is None and chosen:
        raise DataError(f"{' with '.join(chosen)} needs calibration data, and batches is None")
