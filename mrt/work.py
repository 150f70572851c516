"""What the steps work on: the network, its data and options, and what the steps before have found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from mrt.batches import Batches
from mrt.calibration import Calibration, CalibrationConfig
from mrt.calibration.network import FloatNetwork
from mrt.compilation import NATIVE, Target, TuneConfig
from mrt.execution import THREADS, Executor
from mrt.model import QuantizedModel
from mrt.preparation import PreparationConfig, Prepared
from mrt.progress import Reporter, silent
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, Runner

if TYPE_CHECKING:
    from mrt.datasets import Dataset
    from mrt.frontend.anything import Original
    from mrt.model_evaluation import Evaluated
    from mrt.report.facts import Report
    from mrt.report.measure.subject import Subject
    from mrt.runtime import Device, Module

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Settings:
    """The options of all steps.

    target, batch, tune, cache: as `QuantizedModel.compile` takes them. tilings: the folder of what tuning measured.
    batch_size: of the float runs of evaluation. check: the samples whose integers, compiled, must be those of
    `Graph.evaluate`. stream_length: after how many scored samples states are what they are at first.
    """

    prepare: PreparationConfig
    calibrate: CalibrationConfig
    quantize: QuantizationConfig
    target: Target = NATIVE
    batch: int = 1
    tune: TuneConfig | None = None
    tilings: Path | None = None
    cache: bool = True
    batch_size: int = 16
    check: int = 16
    stream_length: int | None = None


@dataclass(frozen=True, eq=False)
class Work:
    """What the steps are given, and what those before have found; a step returns it with what it adds.

    graph: the float network as read; original: its file, by which its parameters need not be held once it is prepared.
    data: gives the calibration data for the inputs of the prepared graph; None where
    there is none. test: what is scored. runner: None for TVM on this machine. is_saved: whether results are saved, so
    that later steps may run with other options than were known before. notes: what a reader of the model should know.
    chosen: the options of quantization with the bits that single tensors got. subject: what is to be reported on, None
    for nothing. started: when the work began, in seconds of `perf_counter`. network: the prepared network, compiled for
    calibration and for what the next step runs it for; None where that runs nothing. executor: who takes the samples.
    device: where compiled code runs; None for this machine.
    """

    graph: Graph
    settings: Settings
    data: Callable[[Graph], Batches] | None = None
    test: Dataset | None = None
    runner: Runner | None = None
    report: Reporter = field(default_factory=silent)
    is_saved: bool = False
    started: float = field(default_factory=perf_counter)
    prepared: Prepared | None = None
    observed: Calibration | None = None
    network: FloatNetwork | None = None
    notes: tuple[str, ...] = ()
    chosen: QuantizationConfig | None = None
    model: QuantizedModel | None = None
    module: Module | None = None
    evaluated: Evaluated | None = None
    subject: Subject | None = None
    measured: Report | None = None
    executor: Executor = THREADS
    original: Original | None = None
    device: Device | None = None


def found(result: _Found | None) -> _Found:
    """What an earlier step found; ValueError where that step was not run."""
    if result is None:
        raise ValueError("a step was run before one that it needs; the order is that of STEPS")
    return result


def default_runner() -> Runner:
    """The runner of whoever names none: TVM on this machine's CPU, each call on one core."""
    from mrt.backend import ONE_THREAD, TvmRunner

    return TvmRunner(ONE_THREAD)
