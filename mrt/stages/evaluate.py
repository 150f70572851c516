"""The stage that holds the compiled model against the float network, and its integers against their meaning."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from mrt.backend import TvmRunner
from mrt.certificate import CERTIFICATE_FILE, open_verified
from mrt.datasets import Dataset
from mrt.errors import VerificationError
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
from mrt.model import QuantizedModel, load
from mrt.report.errors import ERRORS_FILE, ErrorTable
from mrt.runtime import Module, load_module
from mrt.stages.calibrate import CALIBRATE
from mrt.stages.compile import COMPILE
from mrt.stages.prepare import PREPARE
from mrt.stages.quantize import QUANTIZE
from mrt.stages.stage import (
    MODULE,
    SUMMARY,
    Run,
    Save,
    Stage,
    data_origin,
    dataset_of,
    prepared_graph,
    section_origin,
    to_json,
)
from mrt.symbol import Array, Graph

EARLIER = (PREPARE, CALIBRATE, QUANTIZE, COMPILE)
"""The stages whose seconds the summary tells beside its own."""


def _evaluate(run: Run) -> Save:
    started = time.perf_counter()
    config, workspace = run.config.evaluate, run.workspace
    folder = workspace.home(CERTIFICATE_FILE)
    # The module beside it may be that of an earlier run still.
    model, proof = load(folder), open_verified(folder).summary
    module = load_module(workspace.path(MODULE), model.digest)
    data = dataset_of(run, run.config.data.test, "data.test").first(config.samples)
    measure = _float_measure(run)
    prepared, _ = prepared_graph(workspace)
    errors = _check_samples(model, module, prepared, data.first(min(config.check, data.size)), proof.digest)
    with run.report.progress("evaluate", data.size) as progress:
        found = compare(
            data.batches(config.batch_size),
            data.labels,
            measure,
            partial(_integer_measure, model, module),
            progress,
        )
    seconds = {stage.name: workspace.seconds(stage.name) for stage in EARLIER}
    content = to_json(
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
            "seconds": seconds | {EVALUATE.name: round(time.perf_counter() - started, 3)},
            "bit_exact_samples": errors.samples,
        }
    )
    return lambda: workspace.write({SUMMARY: content, ERRORS_FILE: to_json(errors.to_json())})


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
    ranges = {name: (found.lo, found.hi) for name, found in model.ranges.items()}
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
    graph, _ = prepared_graph(run.workspace)
    size = run.config.evaluate.batch_size
    original, prepared = (run_batched(g, TvmRunner(), size) for g in (run.graph, graph))
    return lambda feeds: Measured(original(feeds), prepared(feeds))


def _integer_measure(model: QuantizedModel, module: Module, feeds: Mapping[str, Array]) -> Measured:
    logits = model.dequantize_outputs(_listed(module.run_integer(model.quantize_inputs(feeds))))
    return Measured(_listed(module(feeds)) if model.postprocess is not None else logits, logits)


def _listed(outputs: Array | list[Array]) -> list[Array]:
    """The outputs of a module as a list also where there is one."""
    return outputs if isinstance(outputs, list) else [outputs]


EVALUATE = Stage(
    "evaluate",
    _evaluate,
    lambda run: {
        **data_origin("data.test", run.config.data.test, run.config.evaluate.samples),
        **section_origin("evaluate", run.config.evaluate),
    },
)
