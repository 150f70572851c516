"""Makes the network of a configuration and judges it on samples that fitted none of its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mrt.compilation import NATIVE
from mrt.datasets import Dataset
from mrt.errors import CompilationError, DataError, MRTError, QuantizationError
from mrt.evaluation import run_batched
from mrt.execution import THREADS
from mrt.model import QuantizedModel
from mrt.quantization.algorithms.algorithm import Samples, WidthChoice, find_algorithm
from mrt.quantization.algorithms.moments import with_moments
from mrt.quantization.algorithms.needs import costly_choices
from mrt.quantization.options import QuantizationConfig
from mrt.runtime import THIS_DEVICE, Module
from mrt.search.cost import Cost, cost_of
from mrt.search.judging import Judges
from mrt.search.metric import Demand, Judged, Outputs, energies
from mrt.search.sensitivity import Sensitivity, measure_sensitivity
from mrt.search.space import Space
from mrt.steps import CALIBRATE, PREPARE, QUANTIZE
from mrt.symbol import Array, Graph
from mrt.work import Work, default_runner, found

BLOCKS = 32
"""The samples are taken together in so many blocks, whose errors tell how much chance is in a difference."""


@dataclass(frozen=True)
class Result:
    """What a trial found.

    digest: of the model. judged: by the metric. sqnr_db: of the logits. errors: their energy in each block of samples,
    over that of the float logits of all. milliseconds: of a sample, as measured. failure: why there is no network; the
    other fields then say nothing.
    """

    digest: str
    judged: Judged
    sqnr_db: float
    errors: tuple[float, ...]
    cost: Cost
    milliseconds: float
    failure: str = ""

    @property
    def error(self) -> float:
        """The energy of the logits' error over that of the logits."""
        return sum(self.errors)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> Result:
        given = {**entry, "judged": Judged(**entry["judged"]), "cost": Cost(**entry["cost"])}
        return Result(**{**given, "errors": tuple(entry["errors"])})

    @staticmethod
    def failed(error: MRTError) -> Result:
        nothing = Judged(0.0, None, 1e9, 0.0)
        return Result("", nothing, -1e9, (1e9,), Cost(1e9, 0, 1e9, 1e9), 1e9, " ".join(str(error).split()))


@dataclass(frozen=True, eq=False)
class _Reference:
    """What the float network gives for a batch of the samples that judge."""

    labels: Array | None
    logits: list[Array]


class Laboratory:
    """The network of any configuration, quantized, compiled for the device that it is to run on, and judged there.

    What is costly and the same for several trials is done once: preparation, each calibration, the float outputs.
    """

    def __init__(self, work: Work, judging: Dataset, demand: Demand) -> None:
        """work: before its first step, with calibration data. judging: the samples held apart."""
        if judging.size < 2:
            raise DataError(f"{judging.name}: {judging.size} sample is left to judge by; 2 or more are needed")
        self._work = PREPARE.run(work)
        self._demand = demand
        self._calibrated: dict[str, Work] = {}
        self._known: dict[str, Result] = {}
        prepared = found(self._work.prepared)
        size = work.settings.batch_size
        self._tail = None if prepared.postprocess is None else run_batched(prepared.postprocess, default_runner(), size)
        # A device is one machine, which is asked from here.
        self._judges = Judges(judging, size, work.executor if work.device is None or work.device.is_here else THREADS)
        logits = self._judges.float(prepared.graph)
        self._references = [_Reference(*pair) for pair in zip(self._judges.labels, logits, strict=True)]
        kept = [demand.of_float(self._outputs(each.logits), each.labels) for each in self._references]
        self._kept = np.concatenate(kept)
        self._signal = float(np.concatenate([energies(each.logits) for each in self._references]).sum()) or 1.0

    @property
    def graph(self) -> Graph:
        """The prepared float network."""
        return found(self._work.prepared).graph

    @property
    def reference(self) -> float | None:
        """The float network's metric; None where the metric compares with it."""
        return self._demand.judge(self._kept, self._kept).reference

    def space(self, config: QuantizationConfig) -> Space:
        """What may be chosen beside `config`."""
        work = self._observed(config)
        return Space.of(found(work.prepared).graph, found(work.observed).ranges, config)

    def explicit(self, config: QuantizationConfig) -> QuantizationConfig:
        """`config` with the bits that its algorithm of more bits chooses as overrides."""
        work = self._observed(config)
        if config.more_bits == "none":
            return config
        graph, samples = found(work.prepared).graph, self._samples(work)
        observed = with_moments(graph, found(work.observed), config, samples)
        given = find_algorithm(WidthChoice, config.more_bits).choose(graph, observed, config, samples)[0]
        return given.model_copy(update={"more_bits": "none"})

    def sensitivity(self, config: QuantizationConfig, space: Space) -> Sensitivity:
        """That of all items, on calibration data, with the parameters and ranges that `config` asks for."""
        work = self._observed(config)
        graph, observed = found(work.prepared).graph, found(work.observed)
        with work.report.progress("sensitivity", len(space.items), "items") as progress:
            return measure_sensitivity(graph, observed, config, space, self._samples(work), progress)

    def model(self, config: QuantizationConfig) -> QuantizedModel:
        """The network of a configuration, as `mrt run` makes it."""
        work = self._observed(config)
        return found(QUANTIZE.run(_with(work, config)).model)

    def trial(self, config: QuantizationConfig, space: Space) -> Result:
        """Makes and judges the network of `config`; a network that cannot be made is a failed trial.

        Models of one digest are judged once.
        """
        try:
            model = self.model(config)
        except QuantizationError as error:
            return Result.failed(error)
        if model.digest not in self._known:
            try:
                self._known[model.digest] = self._judge(model, config, space)
            except CompilationError as error:
                return Result.failed(error)
        return self._known[model.digest]

    def _judge(self, model: QuantizedModel, config: QuantizationConfig, space: Space) -> Result:
        device, settings = self._work.device or THIS_DEVICE, self._work.settings
        module = model.compile(NATIVE if device.is_here else settings.target, settings.batch, device=device)
        with closing(module):
            return self._judged(model, module, config, space, not device.is_here)

    def _judged(
        self, model: QuantizedModel, module: Module, config: QuantizationConfig, space: Space, is_timed: bool
    ) -> Result:
        """is_timed: whether the latency is what is measured."""
        kept, errors = [], []
        for reference, logits in zip(self._references, self._judges.integer(model, module), strict=True):
            kept.append(self._demand.of_integer(self._outputs(logits), reference.logits, reference.labels))
            errors.append(energies([f - q for f, q in zip(reference.logits, logits, strict=True)]))
        judged = self._demand.judge(self._kept, np.concatenate(kept))
        relative = np.concatenate(errors) / self._signal
        blocks = tuple(float(block.sum()) for block in np.array_split(relative, min(BLOCKS, len(relative))))
        noise = sum(blocks)
        sqnr = -10 * float(np.log10(noise)) if noise else 300.0
        weights = sum(layer.inputs[1].type.size for layer in space.layers)
        cost = cost_of(model.graph, space.mean_bits(config), weights)
        milliseconds = self._milliseconds(model, module)
        cost = replace(cost, measured=milliseconds if is_timed else 0.0)
        return Result(model.digest, judged, sqnr, blocks, cost, milliseconds)

    def _milliseconds(self, model: QuantizedModel, module: Module) -> float:
        """The median time of a sample, of calls with as many as the module is compiled for."""
        batch = self._work.settings.batch
        feeds = self._judges.first(batch)
        integers, count = model.quantize_inputs(feeds), len(next(iter(feeds.values())))
        return 1000 * module.seconds(integers) / count

    def _outputs(self, logits: list[Array]) -> Outputs:
        if self._tail is None:
            return Outputs(logits, logits)
        names = [symbol.name for symbol in found(found(self._work.prepared).postprocess).inputs]
        return Outputs(self._tail(dict(zip(names, logits, strict=True))), logits)

    def _samples(self, work: Work) -> Samples:
        data = found(work.data)(found(work.prepared).graph)
        return Samples(data, work.settings.calibrate, default_runner(), executor=work.executor)

    def _observed(self, config: QuantizationConfig) -> Work:
        """The work calibrated as `config` needs it; once for all configurations that need the same."""
        key = json.dumps([config.parameter_changes, costly_choices(config)])
        if key not in self._calibrated:
            self._calibrated[key] = CALIBRATE.run(_with(self._work, config))
        return self._calibrated[key]


def _with(work: Work, config: QuantizationConfig) -> Work:
    return replace(work, settings=replace(work.settings, quantize=config))
