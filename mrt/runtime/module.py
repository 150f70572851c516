"""A compiled model: what users call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from mrt.cpu_flags import check_runs_here
from mrt.errors import CompilationError, DataError, DeviceError, ModelFileError
from mrt.module_record import (
    MODULE_FILE,
    MODULE_LIMIT,
    ModuleRecord,
    Provenance,
    check_model,
    check_same,
    read_module,
    record_path,
    remedy,
)
from mrt.paths import as_path
from mrt.runtime.code import Library, Linkable, check_whole, line_of
from mrt.runtime.device import THIS_DEVICE, Device, Loaded, Runs, Step
from mrt.runtime.metadata import Metadata
from mrt.runtime.outputs import Outputs
from mrt.symbol.arrays import as_array
from mrt.symbol.files import atomic_write_all, read_file
from mrt.symbol.quantized_tensor import Array, TensorQuantization
from mrt.symbol.runner import Evaluate
from mrt.symbol.stream import Kept, Stream

Taken = Callable[[Sequence[Array]], list[Array]]
"""Makes of the arrays that are given for all inputs what the network takes, any number of samples."""


class Module:
    """A compiled model. Not to be called from several threads at once; one call uses several cores."""

    def __init__(
        self,
        library: Linkable | Library,
        metadata: Metadata,
        device: Device = THIS_DEVICE,
        loaded: Loaded | None = None,
    ) -> None:
        """library: holds the functions named above. device: where it runs; it is loaded there when first needed, unless
        it is `loaded`. Users get modules from `compile` or `load_module`."""
        self._library = library
        self._metadata = metadata
        self._device, self._loaded = device, loaded

    @cached_property
    def _linked(self) -> Library:
        """What is run and saved, linked once."""
        return self._library if isinstance(self._library, Library) else self._library.library()

    @property
    def _on_device(self) -> Loaded:
        if self._loaded is None:
            self._loaded = self._device.load(self._linked)
        return self._loaded

    @cached_property
    def _workers(self) -> Sequence[Runs]:
        """What runs the module. It is made when first needed: for a module that is compiled to be saved, never.

        CompilationError where there is not the memory for it, or where this machine's CPU lacks what the code uses.
        """
        if self._device.is_here:
            check_runs_here(self._metadata.made_from.needs)
        try:
            return self._on_device.workers(self._fed, self.workers)
        except (MemoryError, tvm.error.InternalError) as error:
            raise CompilationError(
                f"there is not the memory to run {self.batch} samples at once ({line_of(error, -1)}); compile the "
                f"model with a smaller batch"
            ) from error

    @cached_property
    def _fed(self) -> tuple[TensorQuantization, ...]:
        """The inputs as the network takes them, for which states are given integers always."""
        kept = {state.input for state in self._metadata.states}
        return tuple(replace(entry, is_given=entry.is_given or entry.name in kept) for entry in self.inputs)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads of all workers but the first, which is the caller's."""
        return ThreadPoolExecutor(len(self._workers) - 1)

    @property
    def batch(self) -> int:
        """How many samples go through the network at once; any number may be given."""
        return self._metadata.made_from.batch

    @property
    def workers(self) -> int:
        """How many cores take samples each by itself; 1 where all cores share each kernel."""
        return self._metadata.made_from.workers

    @property
    def inputs(self) -> tuple[TensorQuantization, ...]:
        return self._metadata.inputs

    @property
    def outputs(self) -> tuple[TensorQuantization, ...]:
        """How the integer outputs stand for real values, before post-processing."""
        return self._metadata.outputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the network calls the outputs of a call, in order."""
        return self._metadata.output_names or tuple(entry.name for entry in self.outputs)

    @property
    def digest(self) -> str:
        """SHA-256 digest of the quantized model that this was compiled from."""
        return self._metadata.made_from.model

    def __call__(self, x: Array | Mapping[str, Array]) -> Array | list[Array]:
        """Real outputs, float32, for real inputs, post-processing applied.

        x: an array, or arrays by input name where there are several; axis 0 is the sample, any number of them. An input
        that is given as integers takes these, see `TensorQuantization.quantize`.
        Gives an array, or where there are several outputs a list of arrays that knows their names, see `Outputs`.
        Raises DataError for inputs that do not fit, hold NaN, or are integers beyond what was declared or in other
        units than calibration saw.
        """
        arrays = self._arrays(x)
        for entry, array in zip(self.inputs, arrays, strict=True):
            entry.check_shape(array)
        found = self._run(arrays, self._taken, integer=False)
        for state in self._metadata.states:
            found[state.final_output] = self.outputs[state.output].dequantize(found[state.final_output])
        return _single(found, self.output_names)

    def run_integer(self, xq: Array | Mapping[str, Array]) -> Array | list[Array]:
        """Integer outputs for integer inputs, given and returned as in a call.

        Raises DataError for inputs of another dtype or shape, or beyond what the model's proof covers.
        """
        fed = self._arrays(xq)
        for entry, array in zip(self.inputs, fed, strict=True):
            entry.check_integers(array)
        return _single(self._run(fed, list, integer=True), [entry.name for entry in self.outputs])

    def seconds(self, xq: Array | Mapping[str, Array]) -> float:
        """How long `run_integer` takes for these samples: the median of some calls, by the clock of the device that
        runs them, without what goes over a network. Raises as `run_integer` does."""
        batches = self._batches(self._arrays(xq))
        return self._on_device.seconds(lambda: self.run_integer(xq), batches)

    def close(self) -> None:
        """Frees what the module takes on another device; called again it is loaded again."""
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None
        self.__dict__.pop("_workers", None)

    def stream(self, integer: bool = False, length: int | None = None) -> Stream:
        """The module with its states, which are kept between calls; streams of one module do not know of each other.

        A call of it takes and gives what a call of the module does, or of `run_integer` if `integer`, but for the
        states; axis 0 counts streams that go side by side. Its states are kept exactly: real values go to their
        integers and back without a change. length: after so many calls they are what they are at first; None for
        never. Raises DataError where the model has no states, and as a call does.
        """
        entries = {entry.name: entry for entry in self.inputs}
        kept = []
        for state in self._metadata.states:
            entry, place = entries[state.input], state.output if integer else state.final_output
            real = None if integer else entry.dequantize
            kept.append(Kept(state.input, place, entry.filled(state.initial), real))
        return Stream(list(entries), kept, lambda: self._stepping(integer), length)

    def _stepping(self, integer: bool) -> Evaluate:
        """The network for one stream."""
        kept = {state.output if integer else state.final_output: state for state in self._metadata.states}
        in_place = [place for place, state in kept.items() if state.in_place]
        states = {state.input for state in kept.values()}
        made: tuple[Runs, Step] | None = None

        def checked(entry: TensorQuantization, array: Array) -> Array:
            """What the network takes for what a stream gets, or holds."""
            if entry.name in states:
                return array
            if integer:
                entry.check_integers(array)
                return array
            entry.check_shape(array)
            return entry.quantize(array) if entry.is_given else entry.real(array)

        def run(feeds: Mapping[str, Array]) -> list[Array]:
            nonlocal made
            batch = [checked(*each) for each in zip(self.inputs, self._arrays(feeds), strict=True)]
            if len(batch[0]) != self.batch:
                return self._run(batch, list, integer)
            worker = self._workers[0]
            if made is None or made[0] is not worker:  # another one after `close`
                made = worker, worker.steps(integer, kept, in_place)
            return made[1](batch)

        return run

    @cached_property
    def record(self) -> ModuleRecord:
        """The size and SHA-256 digest of the module's file, and what it was compiled from.

        Raises CompilationError where the module was not linked before and the system's linker fails.
        """
        return ModuleRecord.of(self._linked.content, self._metadata.made_from)

    @property
    def files(self) -> dict[str, bytes]:
        """What `save` writes, by the names that it has in the folder of a saved model; raises as `record`."""
        return {MODULE_FILE: self._linked.content, record_path(Path(MODULE_FILE)).name: self.record.to_json()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one self-contained shared library and its record, PATH.json, both or none.

        Raises ModelFileError where they cannot be written, CompilationError where the system's linker fails.
        """
        target = as_path(path, "path")
        atomic_write_all({target: self._linked.content, record_path(target): self.record.to_json()})

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process runs it on its own machine."""
        return _arrived, (self._linked.content, self._metadata)

    def _arrays(self, x: Array | Mapping[str, Array]) -> list[Array]:
        """The array of each input, in order."""
        if not isinstance(x, Mapping) and len(self.inputs) == 1:
            return [as_array(x, self.inputs[0].name)]
        names = [entry.name for entry in self.inputs]
        if not isinstance(x, Mapping):
            raise DataError(f"one array is given, the model has the inputs {names}; give arrays by input name")
        if set(x) != set(names):
            raise DataError(f"inputs {sorted(map(str, x))} are given, {sorted(names)} are needed")
        return [as_array(x[name], name) for name in names]

    def _taken(self, arrays: Sequence[Array]) -> list[Array]:
        """What the network takes for real inputs, or integers that are given."""
        triples = zip(self.inputs, self._fed, arrays, strict=True)
        return [entry.quantize(array) if fed.is_given else entry.real(array) for entry, fed, array in triples]

    def _run(self, arrays: Sequence[Array], taken: Taken, integer: bool) -> list[Array]:
        """All samples in batches, the last one filled up with what is dropped again; constant outputs once.

        Each worker makes what it is fed by `taken` itself, since that reads and checks every element.
        """
        count = len(arrays[0])
        if len(arrays) > 1 and any(len(array) != count for array in arrays):
            raise DataError(f"inputs hold different numbers of samples: {sorted({len(array) for array in arrays})}")
        if count == self.batch:
            return self._workers[0].outputs(taken(arrays), integer)
        constants = self._metadata.constants if integer else self._metadata.final_constants
        batches = self._batches(arrays)
        share = -(-len(batches) // len(self._workers))

        def run(worker: Runs, first: int) -> list[list[Array]]:
            return worker.run([taken(batch) for batch in batches[first : first + share]], integer)

        begun = [
            self._pool.submit(run, worker, place * share)
            for place, worker in enumerate(self._workers)
            if 0 < place * share < len(batches)
        ]
        parts = run(self._workers[0], 0)
        for future in begun:
            parts += future.result()
        return [
            pieces[0] if place in constants else _joined(pieces, count)
            for place, pieces in enumerate(zip(*parts, strict=True))
        ]

    def _batches(self, fed: Sequence[Array]) -> list[list[Array]]:
        starts = range(0, max(len(fed[0]), 1), self.batch)
        return [[x[start : start + self.batch] for x in fed] for start in starts]


def load_module(
    path: str | os.PathLike[str], digest: str | None = None, *, recorded: bool = True, device: Device = THIS_DEVICE
) -> Module:
    """The module that `Module.save` wrote: just the bytes that were checked, whatever becomes of the file.

    digest: of the quantized model that it must be compiled from, such as `QuantizedModel.digest`; None for any.
    recorded: whether its record, PATH.json, must be there and fit; False for a module that was copied without it, of
    which nobody can say that it is whole. device: where it runs, such as `open_device` gives; by default here.
    Raises ModelFileError where the file is missing, no such module, not what the record or `digest` say, or compiled by
    another version of TVM;
    CompilationError where it cannot be loaded from the folder of temporary files.

    A module is machine code, which loading makes part of this process: load only files that you trust. The record is
    no protection from who can write both.
    """
    path = as_path(path, "path")
    content, record = read_module(path) if recorded else (read_file(path, MODULE_LIMIT, follow=True), None)
    if record is not None:  # before any of its code runs
        _check_made(path, record.made_from, digest)
    try:
        check_whole(content)
        library = Library(content)
        loaded = device.load(library)
        stored = loaded.metadata()
    except DeviceError:
        raise
    except CompilationError as error:
        made_for = "" if record is None else f" (compiled for {record.made_from.target.mtriple})"
        raise CompilationError(f"{path}{made_for}: {error}") from None
    except Exception as error:  # what fails, and how, depends on what the file is
        raise ModelFileError(f"{path} is no module that MRT compiled: {line_of(error, 0)}") from None
    metadata = _metadata_of(path, stored)
    if record is not None:
        check_same(path, record.made_from, metadata.made_from)
    _check_made(path, metadata.made_from, digest)
    return Module(library, metadata, device, loaded)


def _check_made(path: Path, made_from: Provenance, digest: str | None) -> None:
    """ModelFileError for a module of another model than that with `digest`, or one that calls another runtime."""
    if digest is not None:
        check_model(path, made_from, digest)
    if made_from.versions.tvm != tvm.__version__:
        raise ModelFileError(
            f"{path} was compiled by TVM {made_from.versions.tvm} and calls its runtime; this is TVM "
            f"{tvm.__version__}: {remedy(path)}"
        )


def _metadata_of(path: Path, stored: bytes) -> Metadata:
    """What a module says of itself."""
    try:
        return Metadata.from_json(stored.decode())
    except (ModelFileError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path}: {error}") from None


def _arrived(content: bytes, metadata: Metadata) -> Module:
    """The module that came from another process."""
    return Module(Library(content), metadata)


def _joined(pieces: Sequence[Array], count: int) -> Array:
    """The first `count` samples of an output."""
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces))[:count]


def _single(outputs: list[Array], names: Sequence[str]) -> Array | list[Array]:
    return outputs[0] if len(outputs) == 1 else Outputs(outputs, names if len(names) == len(outputs) else [])
