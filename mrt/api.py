"""The Python API: from a model and data to a quantized model in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from mrt.batches import Batches as BatchesByName
from mrt.batches import batches_of
from mrt.calibration import CalibrationConfig
from mrt.errors import ConfigError, DataError
from mrt.execution.opened import executor_of
from mrt.frontend.anything import Original, Reading, read_anything
from mrt.frontend.shared.inputs import BatchAxes, Shapes, Values
from mrt.messages import short
from mrt.model import QuantizedModel
from mrt.options import checked, naming_keywords
from mrt.preparation import PreparationConfig
from mrt.preparation import prepare as prepare_graph
from mrt.progress import ProgressOption, reporting
from mrt.quantization.algorithms.moments import reading_moments
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.presets import with_preset
from mrt.samples import batches_in, first_of
from mrt.steps import CALIBRATE, QUANTIZE, reads_samples, run_steps
from mrt.symbol import Array, Graph, Runner
from mrt.work import Settings, Work, found

Batches = Iterable[Any] | Mapping[str, Array]


@naming_keywords
def quantize(
    graph: Any,
    batches: Batches | None = None,
    quantization: QuantizationConfig | None = None,
    calibration: CalibrationConfig | None = None,
    preparation: PreparationConfig | None = None,
    runner: Runner | None = None,
    progress: ProgressOption = True,
    *,
    example_inputs: Any = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    states: Mapping[str, str] | None = None,
    initial: Values | None = None,
    batch_axes: BatchAxes | None = None,
    executor: Any = None,
) -> QuantizedModel:
    """The integer form of a float network, calibrated on `batches`.

    graph: an mrt.Graph, the path of a model file, a torch.nn.Module or torch.export.ExportedProgram, or a loaded model
    of ONNX, OpenVINO or TVM. batches: what a DataLoader gives, or any other iterable: arrays or tensors of any number
    of samples each, axis 0 the batch, or mappings by input name; labels that come with them, as in (x, y), are left
    out. Or one such batch. They hold real values; of an input that `quantization.inputs` declares they may hold its
    integers. They are read several times, unless the preset is fast or mrt, and an iterator is kept as a list. None for
    a network whose own quantizers say all ranges: where they do not, the error names the tensors that need data.
    runner: what runs the float graph, and parts of the integer one, called from several threads at once; TVM by
    default. progress: True for bars, on a terminal and in notebooks; None for silence; or a function that is told the
    number of samples calibrated. executor: a distributed.Client, whose workers take the samples; None for threads.

    Of a model that is read here: example_inputs: what forward() of a module is called with, a tensor, a tuple or a
    mapping by the names of its parameters, by default a batch; it is traced by torch.export. shapes, values, states,
    initial, batch_axes: as `load_model` takes them; sizes that a file leaves open are those of batches with names.
    Raises subclasses of MRTError: UnsupportedOperatorError, DataError, QuantizationError, ConfigError, GraphError.
    """
    quantization = checked(quantization, QuantizationConfig, "quantization")
    calibration = checked(calibration, CalibrationConfig, "calibration")
    preparation = checked(preparation, PreparationConfig, "preparation")
    _check_runner(runner)
    workers = executor_of(executor)
    _check_corrected(quantization, batches)
    data = None if batches is None else _Data(batches)
    first = None if data is None else data.first
    reading = Reading(preparation.split, example_inputs, shapes, values, states, initial, batch_axes, first)
    with reporting(progress, CALIBRATE.name) as report:
        settings = Settings(preparation, calibration, quantization)
        options = {"runner": runner, "report": report, "executor": workers}
        # The work is held by its steps alone, which let go of the network that was read.
        return found(run_steps(_work(graph, reading, settings, data, **options), QUANTIZE).model)


def _work(graph: Any, reading: Reading, settings: Settings, data: _Data | None, **options: Any) -> Work:
    """The work before its first step. options: fields of it."""
    with options["report"].step("read"):
        read = read_anything(graph, reading)
    config = with_preset(settings.quantize, read, data is not None)
    given, original = None if data is None else data.given(config), Original.of(graph, reading)
    return Work(read, replace(settings, quantize=config), data=given, original=original, **options)


@naming_keywords
def prepare(
    graph: Any,
    preparation: PreparationConfig | None = None,
    *,
    example_inputs: Any = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    batch_axes: BatchAxes | None = None,
) -> Graph:
    """The float graph that is calibrated and quantized: constants folded, biases and pads apart, the tail cut off.

    Its names are those of ranges, notes and reports. Arguments and errors are those of `quantize`.
    """
    preparation = checked(preparation, PreparationConfig, "preparation")
    reading = Reading(preparation.split, example_inputs, shapes, values, batch_axes=batch_axes)
    return prepare_graph(read_anything(graph, reading), preparation).graph


class _Data:
    """The data of a caller, of which an iterator is not lost where its first batch is looked at."""

    def __init__(self, source: Batches) -> None:
        self._source = source

    def first(self) -> Any:
        """The first batch; DataError where there is none."""
        if not isinstance(self._source, Iterator):
            return first_of(batches_in(self._source))
        first = first_of(self._source)
        self._source = chain([first], self._source)
        return first

    def given(self, config: QuantizationConfig) -> Callable[[Graph], BatchesByName]:
        """What gives the data to the inputs of a prepared graph."""
        is_kept = isinstance(self._source, Iterator) and reads_samples(config)
        source = _Kept(self._source) if isinstance(self._source, Iterator) and is_kept else self._source
        return lambda prepared: batches_of(source, prepared.inputs, config.inputs)


class _Kept:
    """What an iterator gives, kept so that it can be read more than once."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._kept: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        yield from self._kept
        for batch in self._source:
            self._kept.append(batch)
            yield batch


def _check_runner(runner: object) -> None:
    if runner is not None and not callable(getattr(runner, "prepare", None)):
        raise ConfigError(f"runner is {short(runner)}; an object with the method prepare, or None, is needed")


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
