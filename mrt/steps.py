"""What is done to a network, as one list of steps: prepare, calibrate, quantize, compile, evaluate, report.

`mrt.quantize` runs the first three on what it is given. The pipeline runs all; its stages are steps that are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mrt.batches import Batches
from mrt.calibration import Calibration, calibrate
from mrt.calibration.network import FloatNetwork
from mrt.collector import give_back_freed
from mrt.compilation import Target, TuneConfig
from mrt.errors import ConfigError, MRTError, QuantizationError
from mrt.execution import THREADS
from mrt.messages import counted
from mrt.model import QuantizedModel, assemble
from mrt.model_page import is_internal
from mrt.preparation import prepare
from mrt.progress import Reporter
from mrt.quantization.algorithms.algorithm import (
    BiasCorrection,
    Changed,
    ParameterChange,
    Samples,
    WidthChoice,
    find_algorithm,
)
from mrt.quantization.algorithms.bias_correction import find_corrections, reductions
from mrt.quantization.algorithms.moments import reading_moments, with_moments
from mrt.quantization.algorithms.needs import needs_of, values_of
from mrt.quantization.expand import PlannedGraph, expand_planned, plan_graph
from mrt.quantization.expansion import check_covered
from mrt.quantization.integer.rounder import Rounder
from mrt.quantization.integer.simplified import simplified
from mrt.quantization.names import with_given_names
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.simulation.sensitivity import Sensitivity, sensitivity_of
from mrt.quantization.simulation.simulation import Simulation, planned_before, planned_weights
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Runner
from mrt.symbol.states import states_of
from mrt.symbol.stream import stream_of
from mrt.work import Work, default_runner, found

if TYPE_CHECKING:
    from mrt.runtime import Device, Module

MOST_TOLD = 6
"""Notes of a step that are written while it runs; all are with the model and in its report."""


@dataclass(frozen=True)
class Step:
    """One step of the work; it raises subclasses of MRTError."""

    name: str
    run: Callable[[Work], Work]


def run_steps(work: Work, last: Step) -> Work:
    """The work once the steps up to `last` are done."""
    for step in STEPS[: STEPS.index(last) + 1]:
        with work.report.step(step.name):
            work = step.run(work)
    return work


def reads_samples(config: QuantizationConfig) -> bool:
    """Whether the calibration data is read more than once."""
    if config.parameter_changes or config.more_bits != "none" or reading_moments(config):
        return True
    return _corrects_on_samples(config)


def _corrects_on_samples(config: QuantizationConfig) -> bool:
    return config.corrects_biases and find_algorithm(BiasCorrection, config.bias_correction).reads_samples


def _tell(report: Reporter, step: str, notes: Sequence[str]) -> None:
    """The first of a step's notes, and how many more there are: those for developers among them."""
    shown = [note for note in notes if not is_internal(note)][:MOST_TOLD]
    for note in shown:
        report.line(f"{step}: {note}")
    if len(notes) > len(shown):
        report.line(f"{step}: and {counted(len(notes) - len(shown), 'more note')}, for developers or of single layers")


def _prepare(work: Work) -> Work:
    prepared = prepare(work.graph, work.settings.prepare, work.settings.quantize.tune_ranges)
    _tell(work.report, "prepare", [f"left alone {refusal}" for refusal in prepared.refusals])
    graph = work.graph if work.original is None else work.graph.without_values()
    return replace(work, graph=graph, prepared=prepared, notes=(*work.notes, *prepared.notes))


def _calibrate(work: Work) -> Work:
    work = _named(work)
    graph, settings = found(work.prepared).graph, work.settings
    check_covered(graph)
    settings.quantize.check_against(graph)
    if work.data is None:
        return replace(work, observed=Calibration({}))
    data, runner = _batches(work, graph), work.runner or default_runner()
    for note in data.notes:
        work.report.line(f"calibrate: {note}")
    network = _network(work, graph, runner)
    observed = _observed(work, network, data, runner)
    notes: tuple[str, ...] = ()
    for name in settings.quantize.parameter_changes:
        samples = Samples(data, settings.calibrate, runner, executor=work.executor)
        changed = _changed(graph, name, observed, settings.quantize, samples)
        graph, notes, known = changed.graph, (*notes, *changed.notes), changed.observed
        is_known = known is not None and known.covers(needs_of(graph, settings.quantize, work.is_saved))
        if graph is not network.graph:
            network.release()
            network = _network(work, graph, runner)
        if known is None or not is_known:
            known = _observed(work, network, data, runner)
        observed = known
    prepared = found(work.prepared)
    prepared = replace(prepared, graph=graph, notes=(*prepared.notes, *notes))
    notes = (*work.notes, *data.notes, *notes)
    return replace(work, prepared=prepared, observed=observed, network=_kept(work, network), notes=notes)


def _network(work: Work, graph: Graph, runner: Runner) -> FloatNetwork:
    """The network to be calibrated. Where the next step follows at once, it is compiled for that too."""
    config = work.settings.quantize
    return FloatNetwork(
        graph, runner, work.settings.calibrate.batch_size, () if work.is_saved else values_of(graph, config)
    )


def _kept(work: Work, network: FloatNetwork) -> FloatNetwork | None:
    """The compiled network, if the next step runs it."""
    return network if not work.is_saved and values_of(network.graph, work.settings.quantize) else None


def _named(work: Work) -> Work:
    """The work with overrides by the names of the prepared graph, where the model's own are given."""
    config = with_given_names(work.settings.quantize, work.graph, found(work.prepared).graph)
    return replace(work, settings=replace(work.settings, quantize=config))


def _batches(work: Work, graph: Graph) -> Batches:
    """The calibration data; along it the float network says what its states hold."""
    data, states = found(work.data)(graph), states_of(graph)
    if not states:
        return data
    setting = graph.with_outputs([state.output for state in states])
    length = work.settings.calibrate.stream_length
    return replace(data, stream=stream_of(setting, work.runner or default_runner(), length))


def _changed(graph: Graph, name: str, observed: Calibration, config: QuantizationConfig, samples: Samples) -> Changed:
    """What an algorithm makes of the graph; its errors, and QuantizationError for other inputs or outputs, name it."""
    try:
        changed = find_algorithm(ParameterChange, name).change(graph, observed, config, samples)
    except MRTError as error:
        raise type(error)(f"{name}: {error}") from error
    for what, before, after in (
        ("inputs", graph.inputs, changed.graph.inputs),
        ("outputs", graph.outputs, changed.graph.outputs),
    ):
        needed, given = ([(symbol.name, symbol.type) for symbol in symbols] for symbols in (before, after))
        if needed != given:
            raise QuantizationError(f"{name} gives a network of the {what} {given}; {needed} are needed")
    return changed


def _observed(work: Work, network: FloatNetwork, data: Batches, runner: Runner) -> Calibration:
    settings, graph = work.settings, network.graph
    needs = needs_of(graph, settings.quantize, work.is_saved)
    with work.report.progress("calibrate", data.total) as progress:
        return calibrate(graph, data, needs, settings.calibrate, runner, progress, network, work.executor)


def _quantize(work: Work) -> Work:
    work = _named(work)
    prepared, config = found(work.prepared), work.settings.quantize
    graph = prepared.graph
    samples = _samples(work, graph) if reads_samples(config) else None
    chosen = _choices(work, samples)
    del samples  # with the networks that were tried on them, whose weights take as much as the float ones
    give_back_freed()
    observed = chosen.observed
    with work.report.progress("make integers", 0):
        planned = chosen.planned or plan_graph(graph, observed.ranges, chosen.config)
        integer = expand_planned(planned, chosen.corrections, observed, work.executor, chosen.rounder)
    notes = (*work.notes, *chosen.notes)
    model = assemble(simplified(integer), prepared.postprocess, observed.ranges, notes, work.graph, work.original)
    give_back_freed()
    _tell(work.report, "quantize", model.notes)
    return replace(work, model=model, chosen=chosen.config)


def plan(work: Work) -> Plan:
    """The plan by which the step `quantize` would expand the network. work: calibrated."""
    work = _named(work)
    graph, observed, config = found(work.prepared).graph, found(work.observed), work.settings.quantize
    samples = None if config.more_bits == "none" else _samples(work, graph)
    if samples is not None:
        observed = with_moments(graph, observed, config, samples)
        config, _ = _with_more_bits(config, graph, observed, samples)
    return plan_graph(graph, observed.ranges, config).plan


def sensitivity(work: Work) -> Sensitivity:
    """What each rounding costs of the accuracy, quantized as the step `quantize` would do it, by simulation.

    work: calibrated. Raises ConfigError where it has no data to run the network on, and what the step raises.
    """
    work = _named(work)
    graph = found(work.prepared).graph
    samples = _samples(work, graph)
    if samples is None:
        raise ConfigError("data.calibration is missing; the sensitivity is measured on it")
    chosen = _choices(work, samples)
    planned, weights = planned_weights(graph, chosen.observed, chosen.config, samples)
    simulation = Simulation(planned.plan, weights, samples, has_gates=True)
    return sensitivity_of(simulation, chosen.corrections, work.report)


@dataclass(frozen=True, eq=False)
class _Choices:
    """What algorithms choose: the configuration with it, notes, and the corrections of biases. observed: with what
    rounding needs. planned, rounder: for what was chosen, where a plan was made and weights were rounded on the way."""

    observed: Calibration
    config: QuantizationConfig
    notes: tuple[str, ...]
    corrections: Mapping[str, Array]
    planned: PlannedGraph | None = None
    rounder: Rounder | None = None


def _choices(work: Work, samples: Samples | None) -> _Choices:
    graph, config, report = found(work.prepared).graph, work.settings.quantize, work.report
    with report.progress("gather moments", 0):
        observed = with_moments(graph, found(work.observed), config, samples)
    with report.progress("choose bits", 0):
        config, notes = _with_more_bits(config, graph, observed, samples)
    with report.progress("correct biases", len(reductions(graph)), "layers") as progress:
        if samples is not None:
            samples.progress = progress
        corrections = find_corrections(graph, observed, config, samples)
    chosen = _Choices(observed, config, notes, corrections)
    if samples is None:
        return chosen
    return replace(chosen, planned=planned_before(graph, config, samples), rounder=samples.rounder)


def _samples(work: Work, graph: Graph) -> Samples | None:
    if work.data is None:
        return None
    data = _batches(work, graph)
    runner, settings = work.runner or default_runner(), work.settings
    network = work.network
    if network is None or network.graph is not graph:
        network = FloatNetwork(graph, runner, settings.calibrate.batch_size, values_of(graph, settings.quantize))
    return Samples(data, settings.calibrate, runner, total=data.total, network=network, executor=work.executor)


def _with_more_bits(
    config: QuantizationConfig, graph: Graph, observed: Calibration, samples: Samples | None
) -> tuple[QuantizationConfig, tuple[str, ...]]:
    """The configuration with the bits that single tensors get, and notes of them."""
    if config.more_bits == "none" or samples is None:
        return config, ()
    return find_algorithm(WidthChoice, config.more_bits).choose(graph, observed, config, samples)


def compiled(
    model: QuantizedModel,
    target: Target,
    batch: int,
    tune: TuneConfig | None,
    tilings: Path | None,
    report: Reporter,
    cache: bool = True,
    device: Device | None = None,
) -> Module:
    """The model compiled as `QuantizedModel.compile` does. tilings: the folder of what tuning measured, used if it is
    there, and made where `tune` has it measured."""
    known = tilings if tilings and (tune or tilings.is_dir()) else None
    if known and not tune:
        report.line(f"compile: kernels are tiled as was measured, by {known}; remove it to go by the rules")
    return model.compile(target, batch, tune, known, report, cache, device)


def _compile(work: Work) -> Work:
    settings = work.settings
    options = settings.target, settings.batch, settings.tune, settings.tilings
    return replace(work, module=compiled(found(work.model), *options, work.report, settings.cache, work.device))


def _evaluate(work: Work) -> Work:
    from mrt.model_evaluation import Networks, evaluate

    networks = Networks(work.graph, found(work.prepared).graph, found(work.model), found(work.module))
    settings, data = work.settings, found(work.test)
    options = settings.batch_size, settings.check, work.report, settings.stream_length
    # A device is one machine, which is asked from here.
    executor = work.executor if work.device is None or work.device.is_here else THREADS
    try:
        return replace(work, evaluated=evaluate(networks, data, *options, executor))
    finally:
        networks.module.close()


def _report(work: Work) -> Work:
    """A report tells of a run and never fails it: what cannot be measured is left out."""
    from mrt.report.measure import measure

    return work if work.subject is None else replace(work, measured=measure(work.subject))


def calibration_samples(work: Work) -> Samples | None:
    """The calibration data for the prepared network, once more; None where there is none."""
    return _samples(work, found(work.prepared).graph)


PREPARE = Step("prepare", _prepare)
CALIBRATE = Step("calibrate", _calibrate)
QUANTIZE = Step("quantize", _quantize)
COMPILE = Step("compile", _compile)
EVALUATE = Step("evaluate", _evaluate)
REPORT = Step("report", _report)

STEPS = (PREPARE, CALIBRATE, QUANTIZE, COMPILE, EVALUATE, REPORT)
"""In order."""
