"""The quantized model: integer graph, scales and certificate; saved, loaded, compiled."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mrt.calibration import Range
from mrt.certificate import CERTIFICATE_FILE, Certificate, TensorFact, derive, open_verified, vouch
from mrt.certificate.quantization_file import quantization_json
from mrt.certificate.verify import (
    GRAPH_FILE,
    PARAMETERS_FILE,
    POSTPROCESS_FILE,
    POSTPROCESS_PARAMETERS_FILE,
    QUANTIZATION_FILE,
)
from mrt.collector import paused_collector
from mrt.compilation import NATIVE, Target, TuneConfig
from mrt.errors import CompilationError, ConfigError, DataError, GraphError, ModelFileError, QuantizationError
from mrt.messages import short
from mrt.model_exports import Exporting
from mrt.model_page import model_page
from mrt.paths import as_path
from mrt.progress import ProgressOption, reporting
from mrt.quantization.integer.integer_graph import IntegerGraph, input_quantization
from mrt.result_folder import current, save_all
from mrt.symbol import Array, Graph, Interval
from mrt.symbol.arrays import named_inputs
from mrt.symbol.files import graph_to_bytes
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.rebatch import Rebatch, batch_of, check_batch
from mrt.symbol.states import places_behind, states_of
from mrt.symbol.stream import Kept, Stream

if TYPE_CHECKING:
    from mrt.frontend.anything import Original
    from mrt.progress import Reporter
    from mrt.runtime import Device, Module
    from mrt.scoring import Evaluation


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedModel(Exporting):
    """A network in integers.

    graph: the integer graph. inputs, outputs: how its integers stand for real values. postprocess: the float tail
    that was cut off, whose inputs are the dequantized outputs in order; None where there is none. ranges: the
    calibrated ranges. scales, zero_points: of every integer tensor that stands for real values (zero points where they
    are not 0). notes: what quantization gave up to stay within 32 bits, the error that it accepted, and what became of
    elementwise chains. corrections:
    what bias correction added to the real output of each reduction, by prepared float symbol, one value for each output
    channel. output_names: what the network calls its outputs, behind the tail; empty for the names of their tensors.
    network: the float network as read, or the file that it was read from, neither of which is saved; None where nobody
    gave it.
    """

    graph: Graph
    inputs: tuple[TensorQuantization, ...]
    outputs: tuple[TensorQuantization, ...]
    postprocess: Graph | None
    ranges: Mapping[str, Range]
    scales: Mapping[str, Array]
    zero_points: Mapping[str, Array]
    notes: tuple[str, ...] = ()
    corrections: Mapping[str, Array] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    network: Graph | Original | None = None

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The model's files by name, the certificate last."""
        content = dict(zip((GRAPH_FILE, PARAMETERS_FILE), graph_to_bytes(self.graph), strict=True))
        facts = self.inputs, self.outputs, self.ranges, self.scales, self.zero_points, self.notes, self.corrections
        content[QUANTIZATION_FILE] = quantization_json(*facts, self.states, self.output_names).encode()
        if self.postprocess is not None:
            tail = graph_to_bytes(self.postprocess)
            content |= dict(zip((POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE), tail, strict=True))
        certificate = vouch(self.graph, self.facts, content)
        return content | {CERTIFICATE_FILE: certificate.to_json().encode()}

    @cached_property
    def facts(self) -> Mapping[str, TensorFact]:
        """The bounds of every tensor by name, derived from scratch."""
        return derive(self.graph, self.intervals)

    @cached_property
    def certificate(self) -> Certificate:
        """What the model's certificate states."""
        return Certificate.from_json(self.files[CERTIFICATE_FILE].decode())

    @property
    def intervals(self) -> dict[str, Interval]:
        """The interval that each input is clipped to."""
        return {entry.name: Interval.of(entry.lo, entry.hi, entry.shape) for entry in self.inputs}

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate, which vouches for all other files."""
        return sha256(self.files[CERTIFICATE_FILE]).hexdigest()

    def quantize_inputs(self, x: Array | Mapping[str, Array]) -> dict[str, Array]:
        """The integers of inputs (one array, or arrays by input name), any number of samples.

        Raises DataError as a call of the compiled module does; see `TensorQuantization.quantize`.
        """
        feeds = named_inputs(x, [entry.name for entry in self.inputs])
        return {entry.name: entry.quantize(feeds[entry.name]) for entry in self.inputs}

    def dequantize_outputs(self, y: Sequence[Array]) -> list[Array]:
        """Float32 outputs, before post-processing, for the integer graph's outputs in order."""
        if not isinstance(y, Sequence) or isinstance(y, (str, bytes)):
            raise DataError(f"{short(y)} is given; a list of the {len(self.outputs)} outputs is needed")
        if len(y) != len(self.outputs):
            raise DataError(f"{len(y)} outputs are given, the model has {len(self.outputs)}")
        return [entry.dequantize(array) for entry, array in zip(self.outputs, y, strict=True)]

    @property
    def states(self) -> dict[str, str]:
        """The outputs that inputs hold in the next call, by the names of these."""
        return {state.name: state.output.name for state in states_of(self.graph)}

    def stream(self, integer: bool = False) -> Stream:
        """The model with its states, which are kept between calls, run by `Graph.evaluate`: slow, and what the stream
        of the compiled module equals; see `Module.stream`. One sample goes at a time."""
        return _stream(self.rebatched(1), integer)

    def __repr__(self) -> str:
        titles = self.output_names or tuple(symbol.name for symbol in (self.postprocess or self.graph).outputs)
        parts = self.graph, self.inputs, self.outputs, self.postprocess, self.facts, self.notes, titles
        return model_page(*parts)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    def evaluate(
        self,
        data: Any,
        network: Any = None,
        module: Module | None = None,
        samples: int | None = None,
        progress: ProgressOption = True,
    ) -> Evaluation:
        """How close the compiled model is to its float network on data, batches as `mrt.quantize` takes them.

        Labels that come with the inputs, as in (x, y), are scored where they fit an output. network: the float network,
        anything that `mrt.quantize` takes, of which a module is traced with the first batch; by default the one that
        this was made of, which files do not hold. module: by default compiled here. samples: how many are run, at most;
        None for all. progress: as `mrt.quantize` has it.
        Raises DataError for data that does not fit and labels beyond the classes, ConfigError without a network.
        """
        from mrt.frontend.anything import Original, Reading, read_anything
        from mrt.samples import first_in
        from mrt.scoring import evaluate

        if network is None and self.network is None:
            raise ConfigError(
                "network is missing: a loaded model does not hold the float network; give it or its file, as in "
                "model.evaluate(loader, 'model.onnx')"
            )
        with reporting(progress, "evaluate") as report:
            if module is None:
                with report.step("compile"):
                    module = self.compile()
            with report.step("evaluate"):
                first = self._example if isinstance(network, str | os.PathLike) else first_in(data)
                if network is None and isinstance(self.network, Original):
                    read = self.network.read(self._example)
                else:
                    read = read_anything(self.network if network is None else network, Reading(first_batch=first))
                return evaluate(read, module, data, samples, report)

    def _example(self) -> dict[str, Array]:
        """A batch by input name, of the shapes that the network has here: what its file may leave open."""
        return {entry.name: np.zeros(entry.shape, np.float32) for entry in self.inputs}

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the model's files into `directory`: all or, where they do not fit, none.

        The compiled module of another model that is there stays; `verify` refuses it.
        Raises ModelFileError where the folder cannot be made or written, BusyError where a run writes there.
        """
        save_all(as_path(directory, "directory"), self.files, (POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE))

    def rebatched(self, batch: int) -> QuantizedModel:
        """The same model for `batch` samples at once; GraphError with the reason where its graph bakes the batch in."""
        change = Rebatch(batch)
        if all(entry.shape[:1] == (batch,) for entry in self.inputs):
            return self
        graph = change(self.graph)
        tail = None if self.postprocess is None else change(self.postprocess)
        inputs = tuple(e.with_shape(s.shape) for e, s in zip(self.inputs, graph.inputs, strict=True))
        outputs = tuple(e.with_shape(s.shape) for e, s in zip(self.outputs, graph.outputs, strict=True))
        return replace(self, graph=graph, inputs=inputs, outputs=outputs, postprocess=tail)

    def compile(
        self,
        target: Target = NATIVE,
        batch: int = 1,
        tune: TuneConfig | None = None,
        database: str | os.PathLike[str] | None = None,
        report: Reporter | None = None,
        cache: bool = True,
        device: Device | None = None,
    ) -> Module:
        """The model compiled by TVM for `batch` samples at a time; the module takes any number.

        How many of them go through the network at once, and whether cores take samples or share kernels, is what is
        likely to be fastest (see `plan_batch`); of a graph that bakes its batch in, as many as that, which is reported.
        target: `native`, this machine's CPU, or the keys of `TargetConfig`, as a mapping or as JSON text. tune: whether
        tilings of kernels are measured, and how many. database: the folder where what was measured is kept; without
        `tune` what it knows is used and nothing is measured, without a folder it is forgotten. report: told of that.
        cache: whether what was compiled before is taken from the user's cache, and what is new kept there
        (docs/compiled_module.md); the module is the same without.
        device: where tilings are measured and the module runs, such as `open_device` gives; `native` is its CPU then.
        The integers are the same with all of these.
        Raises GraphError for what is no batch, and where states bake theirs in, CompilationError for a target that is
        not known, for what is no `TuneConfig`, or where TVM fails, ModelFileError for a database that is missing or
        broken, DeviceError for a device that cannot be reached or has not what the target names.
        """
        from mrt.backend import KernelCache, compile_model, plan_batch
        from mrt.backend.devices import target_on
        from mrt.backend.tuning.tuner import Tuner
        from mrt.progress import Reporter, silent
        from mrt.runtime import THIS_DEVICE, Linker

        if not isinstance(tune, TuneConfig | None):
            raise CompilationError(f"tune is {short(tune)}; an mrt.TuneConfig, or None, is needed")
        if not isinstance(report, Reporter | None):
            raise CompilationError(f"report is {short(report)}; an mrt.progress.Reporter, or None, is needed")
        if database is not None:
            database = as_path(database, "database")
        device = device or THIS_DEVICE
        report, on = report or silent(), target_on(device, target)
        plan = plan_batch(self._as_given(batch, report).graph, on, batch)
        sized = self.rebatched(plan.together)
        parts = sized.graph, sized.inputs, sized.outputs, sized.postprocess, self.digest, plan.target
        kept = KernelCache.usual() if cache else None
        if tune is None and database is None:
            return compile_model(*parts, None, plan.workers, self.output_names, kept, device)
        with tempfile.TemporaryDirectory() as forgotten:
            folder, trials = Path(forgotten if database is None else database), 0 if tune is None else tune.trials
            tuner = Tuner(folder, trials, report, device, Linker(on.mtriple, on.linker))
            return compile_model(*parts, tuner, plan.workers, self.output_names, kept, device)

    def _as_given(self, batch: int, report: Reporter) -> QuantizedModel:
        """The model for `batch` samples at once, or as it is where its graph bakes its batch in, which is reported.

        GraphError for what is no batch, and for states that cannot have it: their samples are one stream each.
        """
        check_batch(batch)
        try:
            return self.rebatched(batch)
        except GraphError as refusal:
            if states_of(self.graph):
                raise
            report.line(f"compile: samples go through the network in batches of {batch_of(self.graph)}: {refusal}")
            return self


def _stream(model: QuantizedModel, integer: bool) -> Stream:
    """The stream of one sample at a time of a model of batch 1."""
    entries, states, tail = {entry.name: entry for entry in model.inputs}, states_of(model.graph), model.postprocess
    places = places_behind(states, None if integer else tail)

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        if integer:
            return list(map(np.array, model.graph.evaluate(feeds)))
        real = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(feeds)))
        if tail is None:
            return real
        fed = {symbol.name: value for symbol, value in zip(tail.inputs, real, strict=True)}
        return list(map(np.array, tail.evaluate(fed)))

    kept = [
        Kept(state.name, place, state.first if integer else entries[state.name].dequantize(state.first))
        for state, place in zip(states, places, strict=True)
    ]
    return Stream(list(entries), kept, lambda: run)


def assemble(
    integer: IntegerGraph,
    postprocess: Graph | None,
    ranges: Mapping[str, Range],
    notes: Sequence[str] = (),
    network: Graph | None = None,
    original: Original | None = None,
) -> QuantizedModel:
    """The model of an integer graph and its float tail; notes: what preparation changed, before those of `integer`.

    network: the float network as read, which names the outputs. original: its file, which is kept instead.
    """
    inputs = tuple(input_quantization(symbol, target) for symbol, target in integer.inputs)
    names = {symbol.name: Interval.of(t.lo, t.hi, symbol.shape) for symbol, t in integer.inputs}
    bounds = derive(integer.graph, names)
    outputs = tuple(
        TensorQuantization(
            q.symbol.name,
            q.symbol.shape,
            q.symbol.dtype,
            q.step,
            q.zero_point,
            bounds[q.symbol.name].lo,
            bounds[q.symbol.name].hi,
        )
        for q in integer.outputs
    )
    for entry in (*inputs, *outputs):
        if entry.defect:
            raise QuantizationError(f"{entry.defect}; scale the network's weights or data")
    model = QuantizedModel(
        integer.graph,
        inputs,
        outputs,
        postprocess,
        {name: replace(found, channels=()) for name, found in ranges.items()},
        integer.scales,
        integer.zero_points,
        (*notes, *integer.notes),
        integer.corrections,
        () if network is None else network.titles,
        original or network,
    )
    return _knowing(model, facts=bounds)


@paused_collector()
def load(directory: str | os.PathLike[str]) -> QuantizedModel:
    """The model saved in `directory`, verified; ModelFileError or VerificationError saying what is wrong.

    Files that the certificate does not vouch for are not read.
    """
    if isinstance(directory, str | os.PathLike) and not os.path.lexists(current(Path(directory), CERTIFICATE_FILE)):
        raise ModelFileError(f"{directory} holds no saved model: {CERTIFICATE_FILE} is missing")
    verified = open_verified(directory)
    facts = verified.quantization
    model = QuantizedModel(
        verified.graph,
        facts.inputs,
        facts.outputs,
        verified.postprocess,
        {name: Range(found.lo, found.hi) for name, found in facts.thresholds.items()},
        facts.scales,
        facts.zero_points,
        facts.notes,
        facts.corrections,
        facts.output_names,
    )
    return _knowing(model, files=verified.files)


def _knowing(model: QuantizedModel, **known: Any) -> QuantizedModel:
    """`model` with cached properties filled in; a model made from it computes its own."""
    vars(model).update(known)
    return model
