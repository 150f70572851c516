"""The pipeline: prepare, calibrate, quantize, compile, evaluate; each stage is saved, and a run may start at any.

Every stage reads what the earlier ones saved, so that a run that is resumed is the same as one in a single go.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel
from rich import box
from rich.table import Table

from mrt.backend import ONE_THREAD, TvmRunner
from mrt.calibration import Calibration, calibrate
from mrt.certificate import verify
from mrt.config import DatasetConfig, RunConfig
from mrt.datasets import Dataset, content_digest, load_dataset
from mrt.errors import ConfigError, MRTError, VerificationError
from mrt.evaluation import (
    Counterpart,
    Measured,
    TensorError,
    compare,
    counterparts,
    run_batched,
    sample_walk,
    tensor_error,
)
from mrt.frontend import load_model
from mrt.model import QuantizedModel, assemble, load
from mrt.preparation import prepare
from mrt.progress import Reporter
from mrt.quantization.bias_correction import Samples, find_corrections, observed_channels, reductions
from mrt.quantization.expansion import check_covered
from mrt.quantization.plan import observed_tensors
from mrt.quantization.rewriter import expand_graph
from mrt.quantization.simplified import simplified
from mrt.quantization.trained import brings_quantization
from mrt.report.errors import ERRORS_FILE, ErrorTable
from mrt.runtime import Module, load_module
from mrt.symbol import Array, Graph
from mrt.symbol.files import graph_to_bytes, read_graph
from mrt.workspace import Workspace

PREPARED = ("stages/prepare/graph.json", "stages/prepare/params.safetensors")
POSTPROCESS = ("stages/prepare/postprocess.json", "stages/prepare/postprocess.safetensors")
NOTES = "stages/prepare/notes.json"
THRESHOLDS = "stages/calibrate/thresholds.json"
MODULE = "model.so"
TILINGS = "tilings"
"""The folder of what tuning measured; it is used as long as it is there, whatever stages are made anew."""
SUMMARY = "summary.json"


Save = Callable[[], tuple[str, ...]]
"""Writes what a stage made; gives the names of the files, relative to the output folder."""


@dataclass(frozen=True)
class Run:
    """What the stages of one run share. graph: the float network as read."""

    config: RunConfig
    graph: Graph
    workspace: Workspace
    report: Reporter


@dataclass(frozen=True)
class Stage:
    """A step of the pipeline.

    run: does the work, and gives what saves it. origins: digests of what the result depends on beyond what earlier
    stages depend on. spoils: files made from this stage's result, which a new one makes untrue.
    """

    name: str
    run: Callable[[Run], Save]
    origins: Callable[[Run], Mapping[str, str]]
    spoils: tuple[str, ...] = ()


def run_pipeline(
    config: RunConfig,
    first: str | None = None,
    last: str | None = None,
    output: Path | None = None,
    report: Reporter | None = None,
) -> dict[str, Any] | None:
    """Runs the stages from `first` to `last` (by default all); gives the summary if it was made.

    output: the folder of the results, which is the saved model; by default the configuration's. Raises ConfigError if
    saved results of earlier stages are missing or were made from something else, and whatever the stages raise; what
    was saved before a stage that fails stays.
    """
    started = time.perf_counter()
    todo = _chosen(first, last)
    workspace = Workspace(_output(config, output))
    run = Run(config, load_model(config.model.path, shapes=config.model.shapes), workspace, report or Reporter())
    _check_sections(run, todo)
    origins: dict[str, str] = {}
    for stage in STAGES[: STAGES.index(todo[0])]:
        origins |= stage.origins(run)
        workspace.check(stage.name, origins, todo[0].name)
    workspace.open()
    for stage in todo:
        origins |= stage.origins(run)
        started = _run_stage(stage, run, origins, started)
    run.report.line(f"saved in {workspace.folder}")
    if todo[-1] is not STAGES[-1]:
        return None
    summary: dict[str, Any] = json.loads(workspace.path(SUMMARY).read_bytes())
    run.report.table(summary_table(summary))
    return summary


def _run_stage(stage: Stage, run: Run, origins: Mapping[str, str], started: float) -> float:
    """Runs, saves and records one stage; gives the time when it ended."""
    try:
        save = stage.run(run)
        later = [other.name for other in STAGES[STAGES.index(stage) :]]
        run.workspace.forget(later, stage.spoils)
        files = save()
        ended = time.perf_counter()
        run.workspace.record(stage.name, origins, files, round(ended - started, 3))
    except OSError as error:
        raise MRTError(
            f"stage {stage.name}: {error.strerror or error} ({error.filename or run.workspace.folder}); "
            f"mend that or choose another folder by --output"
        ) from error
    run.report.line(f"{stage.name}: done in {ended - started:.2f} s")
    return ended


def _chosen(first: str | None, last: str | None) -> tuple[Stage, ...]:
    names = [stage.name for stage in STAGES]
    for name in (first, last):
        if name is not None and name not in names:
            raise ConfigError(f"{name} is no stage; the stages are {', '.join(names)}")
    start, stop = names.index(first or names[0]), names.index(last or names[-1])
    if start > stop:
        raise ConfigError(f"from {first} to {last} there is no stage; the order is {', '.join(names)}")
    return STAGES[start : stop + 1]


def _check_sections(run: Run, todo: tuple[Stage, ...]) -> None:
    config, names = run.config, [stage.name for stage in todo]
    if "calibrate" in names and config.data.calibration is None and not brings_quantization(run.graph):
        raise ConfigError("data.calibration is missing; stage calibrate needs it")
    correction = config.quantize.bias_correction
    if "quantize" in names and correction != "none" and config.data.calibration is None:
        raise ConfigError(f"data.calibration is missing; stage quantize needs it for bias_correction: {correction}")
    if "evaluate" in names and config.data.test is None:
        raise ConfigError("data.test is missing; stage evaluate needs it (to do without, stop by --to compile)")


def _output(config: RunConfig, output: Path | None) -> Path:
    folder = output or config.output
    if folder is None:
        raise ConfigError("output is missing; name the folder of the results there or by --output")
    return folder


def _prepare(run: Run) -> Save:
    prepared = prepare(run.graph, run.config.prepare, run.config.quantize.tune_ranges)
    for refusal in prepared.refusals:
        run.report.line(f"prepare: left alone {refusal}")
    files = dict(zip(PREPARED, graph_to_bytes(prepared.graph), strict=True))
    if prepared.notes:
        files[NOTES] = _to_json({"notes": prepared.notes})
    if prepared.postprocess is not None:
        files |= dict(zip(POSTPROCESS, graph_to_bytes(prepared.postprocess), strict=True))

    def save() -> tuple[str, ...]:
        run.workspace.forget((), (*POSTPROCESS, NOTES))
        return run.workspace.write(files)

    return save


def _calibrate(run: Run) -> Save:
    graph, _ = _prepared(run.workspace)
    check_covered(graph)
    if run.config.data.calibration is None:
        nothing = _to_json(Calibration({}, {}).to_json())
        return lambda: run.workspace.write({THRESHOLDS: nothing})
    data = _dataset(run, run.config.data.calibration, "data.calibration")
    config = run.config.calibrate
    total = data.size if config.samples is None else min(config.samples, data.size)
    batches = data.batches(config.batch_size)
    with run.report.progress("calibrate", total) as progress:
        runner, tensors = TvmRunner(ONE_THREAD), observed_tensors(graph)
        found = calibrate(graph, batches, tensors, config, runner, progress, observed_channels(graph))
    content = _to_json(found.to_json())
    return lambda: run.workspace.write({THRESHOLDS: content})


def _quantize(run: Run) -> Save:
    graph, postprocess = _prepared(run.workspace)
    found = _calibration(run.workspace)
    integer = expand_graph(graph, found.thresholds, run.config.quantize, _corrections(run, graph, found))
    model = assemble(simplified(integer), postprocess, found.thresholds, _preparation_notes(run.workspace))
    names = tuple(model.files)
    for note in model.notes:
        run.report.line(f"quantize: {note}")

    def save() -> tuple[str, ...]:
        model.save(run.workspace.folder)
        return names

    return save


def _corrections(run: Run, graph: Graph, found: Calibration) -> dict[str, Array]:
    options = run.config.quantize
    if options.bias_correction != "sequential":
        return find_corrections(graph, found, options)
    data, config = _dataset(run, run.config.data.calibration, "data.calibration"), run.config.calibrate
    with run.report.progress("correct biases", len(reductions(graph)), "layers") as progress:
        samples = Samples(data.batches(config.batch_size), config, TvmRunner(ONE_THREAD), progress)
        return find_corrections(graph, found, options, samples)


def _compile(run: Run) -> Save:
    config = run.config.compile
    database = run.workspace.path(TILINGS)
    known = database if config.tune or database.is_dir() else None
    if known and not config.tune:
        run.report.line(f"compile: kernels are tiled as was measured, by {known}; remove it to go by the rules")
    module = load(run.workspace.folder).compile(config.target, config.batch, config.tune, known, run.report)

    def save() -> tuple[str, ...]:
        module.save(run.workspace.path(MODULE))
        return (MODULE,)

    return save


def _evaluate(run: Run) -> Save:
    started = time.perf_counter()
    config, workspace = run.config.evaluate, run.workspace
    model, module, proof = load(workspace.folder), load_module(workspace.path(MODULE)), verify(workspace.folder)
    data = _dataset(run, run.config.data.test, "data.test").first(config.samples)
    measure = _float_measure(run)
    prepared, _ = _prepared(workspace)
    errors = _check_samples(model, module, prepared, data.first(min(config.check, data.size)), proof.digest)
    with run.report.progress("evaluate", data.size) as progress:
        found = compare(
            data.batches(config.batch_size),
            data.labels,
            measure,
            partial(_integer_measure, model, module),
            progress,
        )
    seconds = {stage.name: workspace.seconds(stage.name) for stage in STAGES[:-1]}
    content = _to_json(
        {
            "model": run.config.model.path.stem,
            "samples": found.samples,
            "float": {"top1": found.float_top1.value},
            "integer": {"top1": found.integer_top1.value},
            "agreement": found.agreement.value,
            "sqnr_db": found.noise.sqnr_db,
            "integer_only": True,
            "max_bits": proof.max_bits,
            "operators": model.graph.count_operators(),
            "seconds": seconds | {STAGES[-1].name: round(time.perf_counter() - started, 3)},
            "bit_exact_samples": errors.samples,
        }
    )
    return lambda: workspace.write({SUMMARY: content, ERRORS_FILE: _to_json(errors.to_json())})


def _check_samples(model: QuantizedModel, module: Module, prepared: Graph, data: Dataset, digest: str) -> ErrorTable:
    """Compares the compiled integers with `graph.evaluate`, and its tensors with those of the float graph.

    Gives the errors against float. Raises VerificationError naming the first output and sample whose integers differ.
    """
    forms = {form.name: form for form in _measurable(model, prepared)}
    origins = {form.origin for form in forms.values()}
    outputs = {entry.name for entry in model.outputs}
    walk, walk_float = sample_walk(model.graph), sample_walk(prepared)
    errors: dict[str, TensorError] = {}
    done = 0
    for feeds in data.batches(1):
        integers = model.quantize_inputs(feeds)
        found = _listed(module.run_integer(integers))
        real = {symbol.name: value for symbol, value in walk_float(feeds) if symbol.name in origins}
        meant: dict[str, Array] = {}
        for symbol, value in walk(integers):
            if symbol.name in outputs:
                meant[symbol.name] = value
            form = forms.get(symbol.name)
            if form is not None and real[form.origin].shape == value.shape:
                error = tensor_error(real[form.origin], value, form.scale, form.zero_point)
                errors[form.name] = errors.get(form.name, TensorError()) + error
        _check_bits(model, found, meant, done)
        done += 1
    return ErrorTable.of(digest, done, tuple(forms.values()), errors)


def _measurable(model: QuantizedModel, prepared: Graph) -> tuple[Counterpart, ...]:
    """The integer tensors that stand for tensors of the prepared float graph, one for each."""
    bounds = {name: (fact.lo, fact.hi) for name, fact in model.certificate.tensors.items()}
    ranges = {name: (threshold.lo, threshold.hi) for name, threshold in model.thresholds.items()}
    forms = counterparts(model.graph, model.scales, model.zero_points, bounds, ranges)
    names = {symbol.name for symbol in prepared.symbols}
    return tuple(form for form in forms if form.origin in names)


def _check_bits(model: QuantizedModel, found: list[Array], meant: Mapping[str, Array], sample: int) -> None:
    for entry, compiled in zip(model.outputs, found, strict=True):
        wanted = meant[entry.name][: len(compiled)]
        if not np.array_equal(compiled, wanted):
            raise VerificationError(
                f"output {entry.name}: the compiled integers of sample {sample} differ from graph.evaluate in "
                f"{int((compiled != wanted).sum())} of {wanted.size} elements; do not use {MODULE}"
            )


def _float_measure(run: Run) -> Callable[[Mapping[str, Array]], Measured]:
    """The scores of the network as read, the logits of the prepared one."""
    graph, _ = _prepared(run.workspace)
    size = run.config.evaluate.batch_size
    original, prepared = (run_batched(g, TvmRunner(), size) for g in (run.graph, graph))
    return lambda feeds: Measured(original(feeds), prepared(feeds))


def _integer_measure(model: QuantizedModel, module: Module, feeds: Mapping[str, Array]) -> Measured:
    logits = model.dequantize_outputs(_listed(module.run_integer(model.quantize_inputs(feeds))))
    return Measured(_listed(module(feeds)) if model.postprocess is not None else logits, logits)


def _listed(outputs: Array | list[Array]) -> list[Array]:
    """The outputs of a module as a list also where there is one."""
    return outputs if isinstance(outputs, list) else [outputs]


def _dataset(run: Run, config: DatasetConfig | None, name: str) -> Dataset:
    if config is None:
        raise ConfigError(f"{name} is missing")
    return load_dataset(config, {symbol.name: symbol.type for symbol in run.graph.inputs}, name)


def _prepared(workspace: Workspace) -> tuple[Graph, Graph | None]:
    """The prepared float graph and its float tail."""
    graph = read_graph(*(workspace.path(name) for name in PREPARED))
    has_tail = workspace.path(POSTPROCESS[0]).is_file()
    return graph, read_graph(*(workspace.path(name) for name in POSTPROCESS)) if has_tail else None


def _preparation_notes(workspace: Workspace) -> tuple[str, ...]:
    """What preparation changed that is to be known: ranges that it tuned."""
    path = workspace.path(NOTES)
    return tuple(json.loads(path.read_bytes())["notes"]) if path.is_file() else ()


def _calibration(workspace: Workspace) -> Calibration:
    path = workspace.path(THRESHOLDS)
    try:
        return Calibration.from_json(json.loads(path.read_bytes()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is malformed ({error}); start from calibrate (--from calibrate)") from None


def _model_digest(graph: Graph) -> str:
    digest = hashlib.sha256()
    for part in graph_to_bytes(graph):
        digest.update(part)
    return digest.hexdigest()


def _section(name: str, section: BaseModel | None) -> dict[str, str]:
    content = "null" if section is None else json.dumps(section.model_dump(mode="json"), sort_keys=True)
    return {f"section {name}": hashlib.sha256(content.encode()).hexdigest()}


def _data(name: str, section: DatasetConfig | None, samples: int | None) -> dict[str, str]:
    """The section and, where there is one, the content of the data that it describes."""
    content = {} if section is None else {f"content of {name}": content_digest(section, name, samples)}
    return _section(name, section) | content


def _to_json(facts: Mapping[str, Any]) -> bytes:
    return (json.dumps(facts, indent=1, allow_nan=False) + "\n").encode()


STAGES = (
    Stage(
        "prepare",
        _prepare,
        lambda run: {
            "model": _model_digest(run.graph),
            **_section("prepare", run.config.prepare),
            "quantize.tune_ranges": str(run.config.quantize.tune_ranges),
        },
    ),
    Stage(
        "calibrate",
        _calibrate,
        lambda run: {
            **_data("data.calibration", run.config.data.calibration, run.config.calibrate.samples),
            **_section("calibrate", run.config.calibrate),
        },
    ),
    Stage(
        "quantize",
        _quantize,
        lambda run: _section("quantize", run.config.quantize),
        spoils=(MODULE, SUMMARY, ERRORS_FILE),
    ),
    Stage("compile", _compile, lambda run: _section("compile", run.config.compile), spoils=(SUMMARY, ERRORS_FILE)),
    Stage(
        "evaluate",
        _evaluate,
        lambda run: {
            **_data("data.test", run.config.data.test, run.config.evaluate.samples),
            **_section("evaluate", run.config.evaluate),
        },
    ),
)
"""The stages in order."""


def summary_table(summary: Mapping[str, Any]) -> Table:
    """The summary as a table for people: shares in per cent, the rest as it is."""
    table = Table("", "float", "integer", box=box.SIMPLE_HEAD, title=summary["model"], title_justify="left")
    table.add_row("top-1", _percent(summary["float"]["top1"]), _percent(summary["integer"]["top1"]))
    table.add_row("agreement", "", _percent(summary["agreement"]))
    table.add_row("SQNR of the logits", "", "-" if summary["sqnr_db"] is None else f"{summary['sqnr_db']:.2f} dB")
    table.add_row("samples", str(summary["samples"]), str(summary["samples"]))
    table.add_row("compiled = evaluated on", "", f"{summary['bit_exact_samples']} samples")
    table.add_row(
        "integer only", "", f"{'yes' if summary['integer_only'] else 'no'}, at most {summary['max_bits']} bits"
    )
    table.add_section()
    for name, count in summary["operators"].items():
        table.add_row(name, "", str(count))
    table.add_section()
    for stage, seconds in summary["seconds"].items():
        table.add_row(f"{stage}, seconds", "", f"{seconds:.2f}")
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"
