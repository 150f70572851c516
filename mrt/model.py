"""The quantized model: integer graph, scales and certificate; saved, loaded, compiled."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mrt.calibration import Range
from mrt.certificate import CERTIFICATE_FILE, Certificate, TensorFact, derive, open_verified, vouch
from mrt.certificate.quantization_file import FORMAT_VERSION
from mrt.certificate.verify import (
    GRAPH_FILE,
    PARAMETERS_FILE,
    POSTPROCESS_FILE,
    POSTPROCESS_PARAMETERS_FILE,
    QUANTIZATION_FILE,
)
from mrt.collector import paused_collector
from mrt.compilation import NATIVE, Target, TuneConfig
from mrt.errors import CompilationError, DataError, ModelFileError, QuantizationError
from mrt.messages import short
from mrt.model_exports import Exporting
from mrt.paths import as_path
from mrt.quantization.integer.integer_graph import IntegerGraph, input_quantization
from mrt.result_folder import current, save_all
from mrt.symbol import Array, Graph, Interval
from mrt.symbol.files import graph_to_bytes, indented_json
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.rebatch import Rebatch
from mrt.symbol.states import places_behind, states_of
from mrt.symbol.stream import Kept, Stream

if TYPE_CHECKING:
    from mrt.progress import Reporter
    from mrt.runtime import Module


@dataclass(frozen=True, eq=False)
class QuantizedModel(Exporting):
    """A network in integers.

    graph: the integer graph. inputs, outputs: how its integers stand for real values. postprocess: the float tail
    that was cut off, whose inputs are the dequantized outputs in order; None where there is none. ranges: the
    calibrated ranges. scales, zero_points: of every integer tensor that stands for real values (zero points where they
    are not 0). notes: what quantization gave up to stay within 32 bits, the error that it accepted, and what became of
    elementwise chains. corrections:
    what bias correction added to the real output of each reduction, by prepared float symbol, one value for each output
    channel.
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

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The model's files by name, the certificate last."""
        content = dict(zip((GRAPH_FILE, PARAMETERS_FILE), graph_to_bytes(self.graph), strict=True))
        content[QUANTIZATION_FILE] = self._quantization_json().encode()
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
    ) -> Module:
        """The model compiled by TVM for `batch` samples at a time; the module takes any number.

        How many of them go through the network at once, and whether cores take samples or share kernels, is what is
        likely to be fastest (see `plan_batch`).
        target: `native`, this machine's CPU, or the keys of `TargetConfig`, as a mapping or as JSON text. tune: whether
        tilings of kernels are measured, and how many. database: the folder where what was measured is kept; without
        `tune` what it knows is used and nothing is measured, without a folder it is forgotten. report: told of that.
        The integers are the same with all of these.
        Raises GraphError where the batch cannot be changed, CompilationError for a target that is not known, for
        what is no `TuneConfig`, or where TVM fails, ModelFileError for a database that is missing or broken.
        """
        from mrt.backend import compile_model, plan_batch
        from mrt.backend.tuning.tuner import Tuner
        from mrt.progress import Reporter, silent

        if not isinstance(tune, TuneConfig | None):
            raise CompilationError(f"tune is {short(tune)}; an mrt.TuneConfig, or None, is needed")
        if not isinstance(report, Reporter | None):
            raise CompilationError(f"report is {short(report)}; an mrt.progress.Reporter, or None, is needed")
        if database is not None:
            database = as_path(database, "database")
        sized = self.rebatched(batch)
        plan = plan_batch(sized.graph, target)
        sized = self.rebatched(plan.samples)
        parts = sized.graph, sized.inputs, sized.outputs, sized.postprocess, self.digest, plan.target
        if tune is None and database is None:
            return compile_model(*parts, workers=plan.workers)
        with tempfile.TemporaryDirectory() as forgotten:
            folder, trials = Path(forgotten if database is None else database), 0 if tune is None else tune.trials
            return compile_model(*parts, Tuner(folder, trials, report or silent()), plan.workers)

    def _quantization_json(self) -> str:
        return indented_json(
            {
                "format_version": FORMAT_VERSION,
                "inputs": [entry.to_json() for entry in self.inputs],
                "outputs": [entry.to_json() for entry in self.outputs],
                "thresholds": {name: found.to_json() for name, found in self.ranges.items()},
                "scales": {name: np.asarray(scale) for name, scale in self.scales.items()},
                "zero_points": {name: np.asarray(zero) for name, zero in self.zero_points.items()},
                "notes": self.notes,
                "corrections": dict(self.corrections),
                **({"states": self.states} if self.states else {}),
            }
        )


def _stream(model: QuantizedModel, integer: bool) -> Stream:
    """The stream of one sample at a time of a model of batch 1."""
    entries, states, tail = {entry.name: entry for entry in model.inputs}, states_of(model.graph), model.postprocess
    places = places_behind(states, None if integer else tail)

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        if integer:
            return model.graph.evaluate(feeds)
        real = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(feeds)))
        if tail is None:
            return real
        return tail.evaluate({symbol.name: value for symbol, value in zip(tail.inputs, real, strict=True)})

    kept = [
        Kept(state.name, place, state.first if integer else entries[state.name].dequantize(state.first))
        for state, place in zip(states, places, strict=True)
    ]
    return Stream(list(entries), kept, run)


def named_inputs(x: Array | Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """`x` by input name: an array serves a single input; DataError for missing or unknown names."""
    if not isinstance(x, Mapping):
        if len(names) != 1:
            raise DataError(f"one array is given, the model has the inputs {list(names)}; give a mapping")
        return {names[0]: x}
    if set(x) != set(names):
        raise DataError(f"inputs {sorted(map(str, x))} are given, {sorted(names)} are needed")
    return dict(x)


def assemble(
    integer: IntegerGraph, postprocess: Graph | None, ranges: Mapping[str, Range], notes: Sequence[str] = ()
) -> QuantizedModel:
    """The model of an integer graph and its float tail; notes: what preparation changed, before those of `integer`."""
    inputs = tuple(input_quantization(symbol, target) for symbol, target in integer.inputs)
    names = {symbol.name: Interval.of(t.lo, t.hi, symbol.shape) for symbol, t in integer.inputs}
    bounds = derive(integer.graph, names)
    outputs = tuple(
        TensorQuantization(
            q.symbol.name,
            q.symbol.shape,
            q.symbol.dtype,
            np.float64(q.step),
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
    )
    return _knowing(model, files=verified.files)


def _knowing(model: QuantizedModel, **known: Any) -> QuantizedModel:
    """`model` with cached properties filled in; a model made from it computes its own."""
    vars(model).update(known)
    return model
