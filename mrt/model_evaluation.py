"""The compiled model against the float network, and its integers against their meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.backend import TvmRunner
from mrt.blas import one_blas_thread
from mrt.datasets import Dataset
from mrt.errors import VerificationError
from mrt.evaluation import (
    Comparison,
    Counterpart,
    Measure,
    Measured,
    TensorError,
    batched,
    compare,
    compare_batch,
    counterparts,
    in_batches,
    sample_walk,
    tensor_error,
)
from mrt.execution import THREADS, Executor, Program
from mrt.model import QuantizedModel
from mrt.module_record import MODULE_FILE
from mrt.progress import Reporter
from mrt.report.errors import ErrorTable
from mrt.runtime import Module
from mrt.symbol import Array, Graph, NumpyRunner
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.states import states_of
from mrt.symbol.stream import Stream, stream_of


@dataclass(frozen=True, eq=False)
class Networks:
    """One network in all its forms: float as read and as prepared, integer, compiled."""

    original: Graph
    prepared: Graph
    model: QuantizedModel
    module: Module

    @property
    def floats(self) -> tuple[Graph, ...]:
        """The float networks of the scores and of the integer outputs: one for both where no float tail is between."""
        return (self.original,) if self.model.postprocess is None else (self.original, self.prepared)


@dataclass(frozen=True)
class Evaluated:
    """How close the compiled model comes to the float network, over all samples and tensor by tensor over a few."""

    compared: Comparison
    errors: ErrorTable


def evaluate(
    networks: Networks,
    data: Dataset,
    batch_size: int,
    check: int,
    report: Reporter,
    stream_length: int | None = None,
    executor: Executor = THREADS,
) -> Evaluated:
    """Scores `data`; compares the compiled integers of its first `check` samples with `Graph.evaluate`.

    batch_size: of the float runs. stream_length: networks with states run along the data in its order, each with states
    of its own, which are what they are at first after so many samples (None: never); where they are compared tensor by
    tensor all have those of the float network. executor: whose workers take samples, unless these are a stream.
    Raises VerificationError where integers differ, DataError for unusable data.
    """
    checked = data.first(min(check, data.size))
    if not states_of(networks.model.graph):
        errors = _check_samples(networks, checked, None, report, executor)
        return Evaluated(_compared(networks, data, batch_size, report, executor), errors)
    filler = stream_of(networks.prepared, TvmRunner(), stream_length)
    errors = _check_samples(networks, checked, filler, report, THREADS)
    with report.progress("evaluate", data.size) as progress:
        measures = _along_streams(networks, stream_length)
        return Evaluated(compare(data.batches(batch_size), data.labels, *measures, progress), errors)


def _compared(networks: Networks, data: Dataset, batch_size: int, report: Reporter, executor: Executor) -> Comparison:
    """The scores of all samples, added up in their order. TVM uses all cores for a batch."""
    runner = TvmRunner()
    programs = [batched(graph, runner, batch_size) for graph in networks.floats]
    parts = [_Samples.of(data, k, min(k + batch_size, data.size)) for k in range(0, data.size, batch_size)]
    total = Comparison()
    with report.progress("evaluate", data.size) as progress:
        for found in executor.in_order(_compare_samples, parts, (networks.module, *programs), most=1):
            total += found
            progress(total.samples)
    return total


@dataclass(frozen=True, eq=False)
class _Samples:
    """The samples of a dataset from one to another, and their labels."""

    data: Dataset
    start: int
    stop: int
    labels: Array | None

    @classmethod
    def of(cls, data: Dataset, start: int, stop: int) -> _Samples:
        return cls(data, start, stop, None if data.labels is None else data.labels[start:stop])

    @property
    def feeds(self) -> dict[str, Array]:
        return self.data.batch(self.start, self.stop)


def _compare_samples(samples: _Samples, module: Module, *floats: Program) -> Comparison:
    """floats: see `Networks.floats`; the second one is there where a float tail stands behind the integer outputs."""
    feeds, integers = samples.feeds, _integers(samples, module)
    logits = [entry.dequantize(value) for entry, value in zip(module.outputs, integers, strict=True)]
    measured = Measured(logits if len(floats) == 1 else _listed(module(feeds)), logits)
    exact = [in_batches(program, feeds) for program in floats]
    return compare_batch(Measured(exact[0], exact[-1]), measured, samples.labels)


def _along_streams(networks: Networks, length: int | None) -> tuple[Measure, Measure]:
    """What the float networks and the compiled one give along a stream, their states left out."""
    model, module = networks.model, networks.module
    floats = [stream_of(graph, TvmRunner(), length) for graph in networks.floats]
    integer, real = module.stream(integer=True, length=length), module.stream(length=length)
    states = {state.place for state in states_of(model.graph)}
    entries = {entry.name: entry for entry in model.inputs}
    outputs = [entry for place, entry in enumerate(model.outputs) if place not in states]

    def reference(feeds: Mapping[str, Array]) -> Measured:
        exact = [stream.along(feeds) for stream in floats]
        return Measured(exact[0], exact[-1])

    def measured(feeds: Mapping[str, Array]) -> Measured:
        found = integer.along({name: entries[name].quantize(x) for name, x in feeds.items()})
        logits = [entry.dequantize(value) for entry, value in zip(outputs, found, strict=True)]
        return Measured(real.along(feeds) if model.postprocess is not None else logits, logits)

    return reference, measured


def _check_samples(
    networks: Networks, data: Dataset, filler: Stream | None, report: Reporter, executor: Executor
) -> ErrorTable:
    """Compares the compiled integers with `graph.evaluate`, and its tensors with those of the float graph.

    filler: says what the states of a network that has some hold.
    Gives the errors against float. Raises VerificationError naming the first output and sample whose integers differ.
    """
    model, module = networks.model, networks.module
    forms = _measurable(model, networks.prepared)
    programs = [Program(graph, NumpyRunner()) for graph in (model.graph, networks.prepared)]
    samples = [_Sample(data, place) for place in range(data.size)]
    if filler is not None:
        samples = [_Sample(data, place, filler.completed(feeds)) for place, feeds in enumerate(data.batches(1))]
    compiled = list(executor.in_order(_integers, samples, (module,), most=1))
    errors: dict[str, TensorError] = {}
    with report.progress("compare tensors", data.size) as progress, one_blas_thread():
        work, parts = _CheckSample(forms, module.inputs, module.outputs), zip(samples, compiled, strict=True)
        for done, found in enumerate(executor.in_order(work, parts, programs), 1):
            for name, error in found.items():
                errors[name] = errors.get(name, TensorError()) + error
            progress(done)
    return ErrorTable.of(model.digest, data.size, forms, errors)


@dataclass(frozen=True, eq=False)
class _Sample:
    """One sample of a dataset; given: its arrays, where they are more than the dataset holds."""

    data: Dataset
    place: int
    given: Mapping[str, Array] | None = None

    @property
    def feeds(self) -> Mapping[str, Array]:
        return self.data.batch(self.place, self.place + 1) if self.given is None else self.given


def _integers(sample: _Sample | _Samples, module: Module) -> list[Array]:
    """The outputs of the compiled model, which runs on all cores and is called by one thread at a time."""
    feeds = sample.feeds
    return _listed(module.run_integer({entry.name: entry.quantize(feeds[entry.name]) for entry in module.inputs}))


@dataclass(frozen=True, eq=False)
class _CheckSample:
    """Gives the errors of the tensors of one sample, and checks what the compiled model gave for it.

    forms: the tensors that are measured. inputs, outputs: the model's.
    """

    forms: Sequence[Counterpart]
    inputs: Sequence[TensorQuantization]
    outputs: Sequence[TensorQuantization]

    def __call__(
        self, part: tuple[_Sample, list[Array]], integer: Program, prepared: Program
    ) -> dict[str, TensorError]:
        sample, compiled = part
        forms = {form.name: form for form in self.forms}
        origins = {form.origin for form in self.forms}
        outputs = {entry.name for entry in self.outputs}
        feeds = sample.feeds
        integers = {entry.name: entry.quantize(feeds[entry.name]) for entry in self.inputs}
        real = {symbol.name: value for symbol, value in sample_walk(prepared.graph)(feeds) if symbol.name in origins}
        meant: dict[str, Array] = {}
        errors: dict[str, TensorError] = {}
        for symbol, value in sample_walk(integer.graph)(integers):
            if symbol.name in outputs:
                meant[symbol.name] = value
            form = forms.get(symbol.name)
            if form is not None and real[form.origin].shape == value.shape:
                error = tensor_error(real[form.origin], value, form.scale, form.zero_point)
                errors[form.name] = errors.get(form.name, TensorError()) + error
        _check_bits(self.outputs, compiled, meant, sample.place)
        return errors


def _measurable(model: QuantizedModel, prepared: Graph) -> tuple[Counterpart, ...]:
    """The integer tensors that stand for tensors of the prepared float graph, one for each."""
    bounds = {name: (fact.lo, fact.hi) for name, fact in model.certificate.tensors.items()}
    ranges = {name: (found.lo, found.hi) for name, found in model.ranges.items()}
    forms = counterparts(model.graph, model.scales, model.zero_points, bounds, ranges)
    names = {symbol.name for symbol in prepared.symbols}
    return tuple(form for form in forms if form.origin in names)


def _check_bits(
    outputs: Sequence[TensorQuantization], found: list[Array], meant: Mapping[str, Array], sample: int
) -> None:
    for entry, compiled in zip(outputs, found, strict=True):
        wanted = meant[entry.name][: len(compiled)]
        if not np.array_equal(compiled, wanted):
            raise VerificationError(
                f"output {entry.name}: the compiled integers of sample {sample} differ from graph.evaluate in "
                f"{int((compiled != wanted).sum())} of {wanted.size} elements; do not use {MODULE_FILE}"
            )


def _listed(outputs: Array | list[Array]) -> list[Array]:
    """The outputs of a module as a list also where there is one."""
    return outputs if isinstance(outputs, list) else [outputs]
