"""The compiled model against the float network, and its integers against their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from mrt.backend import TvmRunner
from mrt.datasets import Dataset
from mrt.errors import VerificationError
from mrt.evaluation import (
    Comparison,
    Counterpart,
    Measure,
    Measured,
    TensorError,
    compare,
    counterparts,
    run_batched,
    sample_walk,
    tensor_error,
)
from mrt.model import QuantizedModel
from mrt.module_record import MODULE_FILE
from mrt.progress import Reporter, Tell
from mrt.report.errors import ErrorTable
from mrt.runtime import Module
from mrt.symbol import Array, Graph
from mrt.symbol.states import states_of
from mrt.symbol.stream import Stream, stream_of


@dataclass(frozen=True, eq=False)
class Networks:
    """One network in all its forms: float as read and as prepared, integer, compiled."""

    original: Graph
    prepared: Graph
    model: QuantizedModel
    module: Module


@dataclass(frozen=True)
class Evaluated:
    """How close the compiled model comes to the float network, over all samples and tensor by tensor over a few."""

    compared: Comparison
    errors: ErrorTable


def evaluate(
    networks: Networks, data: Dataset, batch_size: int, check: int, report: Reporter, stream_length: int | None = None
) -> Evaluated:
    """Scores `data`; compares the compiled integers of its first `check` samples with `Graph.evaluate`.

    batch_size: of the float runs. stream_length: networks with states run along the data in its order, each with states
    of its own, which are what they are at first after so many samples (None: never); where they are compared tensor by
    tensor all have those of the float network.
    Raises VerificationError where integers differ, DataError for unusable data.
    """
    has_states = bool(states_of(networks.model.graph))
    if has_states:
        measure, integers = _along_streams(networks, stream_length)
    else:
        with report.progress("compile the float network", 0):
            measure = _float_measure(networks, batch_size)
        integers = partial(_integer_measure, networks.model, networks.module)
    filler = stream_of(networks.prepared, TvmRunner(), stream_length) if has_states else None
    checked = data.first(min(check, data.size))
    with report.progress("compare tensors", checked.size) as progress:
        errors = _check_samples(networks, checked, filler, progress)
    with report.progress("evaluate", data.size) as progress:
        compared = compare(data.batches(batch_size), data.labels, measure, integers, progress)
    return Evaluated(compared, errors)


def _along_streams(networks: Networks, length: int | None) -> tuple[Measure, Measure]:
    """What the float networks and the compiled one give along a stream, their states left out."""
    model, module = networks.model, networks.module
    floats = [stream_of(graph, TvmRunner(), length) for graph in (networks.original, networks.prepared)]
    integer, real = module.stream(integer=True, length=length), module.stream(length=length)
    states = {state.place for state in states_of(model.graph)}
    entries = {entry.name: entry for entry in model.inputs}
    outputs = [entry for place, entry in enumerate(model.outputs) if place not in states]

    def reference(feeds: Mapping[str, Array]) -> Measured:
        return Measured(*(stream.along(feeds) for stream in floats))

    def measured(feeds: Mapping[str, Array]) -> Measured:
        found = integer.along({name: entries[name].quantize(x) for name, x in feeds.items()})
        logits = [entry.dequantize(value) for entry, value in zip(outputs, found, strict=True)]
        return Measured(real.along(feeds) if model.postprocess is not None else logits, logits)

    return reference, measured


def _check_samples(networks: Networks, data: Dataset, filler: Stream | None, progress: Tell) -> ErrorTable:
    """Compares the compiled integers with `graph.evaluate`, and its tensors with those of the float graph.

    filler: says what the states of a network that has some hold. progress: told how many samples are compared.
    Gives the errors against float. Raises VerificationError naming the first output and sample whose integers differ.
    """
    model, module = networks.model, networks.module
    forms = {form.name: form for form in _measurable(model, networks.prepared)}
    origins = {form.origin for form in forms.values()}
    outputs = {entry.name for entry in model.outputs}
    walk, walk_float = sample_walk(model.graph), sample_walk(networks.prepared)
    errors: dict[str, TensorError] = {}
    done = 0
    for given in data.batches(1):
        feeds = given if filler is None else filler.completed(given)
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
        progress(done)
    return ErrorTable.of(model.digest, done, tuple(forms.values()), errors)


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
                f"{int((compiled != wanted).sum())} of {wanted.size} elements; do not use {MODULE_FILE}"
            )


def _float_measure(networks: Networks, batch_size: int) -> Callable[[Mapping[str, Array]], Measured]:
    """The scores of the network as read, the logits of the prepared one."""
    original, prepared = (run_batched(g, TvmRunner(), batch_size) for g in (networks.original, networks.prepared))
    return lambda feeds: Measured(original(feeds), prepared(feeds))


def _integer_measure(model: QuantizedModel, module: Module, feeds: Mapping[str, Array]) -> Measured:
    logits = model.dequantize_outputs(_listed(module.run_integer(model.quantize_inputs(feeds))))
    return Measured(_listed(module(feeds)) if model.postprocess is not None else logits, logits)


def _listed(outputs: Array | list[Array]) -> list[Array]:
    """The outputs of a module as a list also where there is one."""
    return outputs if isinstance(outputs, list) else [outputs]
