"""Re-checks a saved model from nothing but its files; shares only the operator records with what made it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mrt.certificate.certificate import CERTIFICATE_FILE, Certificate, derive
from mrt.certificate.quantization_file import QuantizationFacts
from mrt.collector import paused_collector
from mrt.errors import ModelFileError, MRTError, VerificationError
from mrt.module_record import MODULE_FILE, ModuleRecord, module_in
from mrt.result_folder import current, settled
from mrt.symbol import Graph, Interval
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.files import check_nothing_else, graph_from_bytes, read_file
from mrt.symbol.limits import JSON_BYTES, PARAMETER_BYTES
from mrt.symbol.states import states_of

GRAPH_FILE = "graph.json"
PARAMETERS_FILE = "params.safetensors"
QUANTIZATION_FILE = "quantization.json"
POSTPROCESS_FILE = "postprocess.json"
POSTPROCESS_PARAMETERS_FILE = "postprocess.safetensors"
NEEDED = frozenset({GRAPH_FILE, PARAMETERS_FILE, QUANTIZATION_FILE})
"""The files that every saved model has beside its certificate."""
POSTPROCESS = frozenset({POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE})
"""The files of the float tail, which a saved model has both or neither of."""


@dataclass(frozen=True)
class Summary:
    """What was proven of a saved model.

    digest: the SHA-256 of its certificate, which vouches for all other files but the compiled module. module: the
    record of that, which is of the file that is there, compiled from this model; None where there is none.
    """

    tensors: int
    operators: int
    max_bits: int
    digest: str
    module: ModuleRecord | None = None

    def __str__(self) -> str:
        return (
            f"integer-only: {self.operators} operators, {self.tensors} tensors, "
            f"at most {self.max_bits} bits; digest {self.digest}; {self._about_module}"
        )

    @property
    def _about_module(self) -> str:
        if self.module is None:
            return "no compiled module"
        return f"{MODULE_FILE} is recorded as compiled from it, SHA-256 {self.module.sha256}"


def verify(directory: str | os.PathLike[str]) -> Summary:
    """Re-derives every bound of the model saved in `directory` and compares it with the certificate.

    Checks that all that is read of the model is what the certificate vouches for and holds nothing else, that every
    operator and tensor is an integer of at most 32 bits, that every bound and intermediate fits, that each state stays
    in its interval from call to call, that the certificate states just what is derived, that the inputs, outputs and
    states of quantization.json are those of the graph, and that the float tail takes the outputs. Where there is a
    compiled module, or the record of one, checks that both are there, that the record has the module's digest, and that
    it names this model; the code itself is not loaded, and not proven.
    Raises VerificationError saying what is wrong.
    """
    summary = open_verified(directory).summary
    try:
        folder = Path(directory)
        return replace(summary, module=settled(folder, lambda: module_in(folder, summary.digest)))
    except ModelFileError as error:
        raise VerificationError(str(error)) from None


@dataclass(frozen=True, eq=False)
class Verified:
    """A saved model as it was verified.

    files: their contents by name. quantization: the facts of quantization.json. postprocess: the float tail, None where
    there is none.
    """

    summary: Summary
    graph: Graph
    postprocess: Graph | None
    files: Mapping[str, bytes]
    quantization: QuantizationFacts


@paused_collector()
def open_verified(directory: str | os.PathLike[str]) -> Verified:
    """Verifies as `verify` does all but the compiled module, and gives what was verified: each file is read once."""
    if not isinstance(directory, str | os.PathLike):
        raise VerificationError(f"{directory!r} is no path; the folder of a saved model is needed")
    folder = Path(directory)
    try:
        return settled(folder, lambda: _open_verified(folder))
    except VerificationError:
        raise
    except MRTError as error:
        raise VerificationError(str(error)) from None
    except MemoryError:
        raise VerificationError(f"{directory}: there is not enough memory to verify it") from None


def _open_verified(folder: Path) -> Verified:
    content = read_file(current(folder, CERTIFICATE_FILE), JSON_BYTES)
    stated = Certificate.from_json(content)
    _check_names(stated)
    files = {name: _checked(folder, name, digest) for name, digest in stated.files.items()}
    graph = _graph(folder, files, GRAPH_FILE, PARAMETERS_FILE)
    facts = QuantizationFacts.from_json(files[QUANTIZATION_FILE], QUANTIZATION_FILE)
    intervals = {entry.name: Interval.of(entry.lo, entry.hi, entry.shape) for entry in facts.inputs}
    # The files' digests are those that are stated, or reading them has failed.
    derived = Certificate(derive(graph, intervals), stated.files, graph.count_operators())
    _compare(stated, derived)
    _check_interface(facts, graph, derived)
    _check_nothing_else(graph, folder, files, GRAPH_FILE, PARAMETERS_FILE)
    tail = None
    if POSTPROCESS_FILE in files:
        tail = _graph(folder, files, POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE)
        _check_tail(tail, graph)
        _check_nothing_else(tail, folder, files, POSTPROCESS_FILE, POSTPROCESS_PARAMETERS_FILE)
    _check_titles(facts, tail or graph)
    summary = Summary(
        len(derived.tensors),
        sum(derived.operators.values()),
        derived.max_bits,
        hashlib.sha256(content).hexdigest(),
    )
    return Verified(summary, graph, tail, files | {CERTIFICATE_FILE: content}, facts)


def _check_names(stated: Certificate) -> None:
    """VerificationError unless the certificate vouches for the files of a saved model, and for no other."""
    names = set(stated.files)
    if missing := sorted(NEEDED - names):
        raise VerificationError(f"{CERTIFICATE_FILE} does not vouch for {', '.join(missing)}")
    if unknown := sorted(names - NEEDED - POSTPROCESS):
        raise VerificationError(f"{CERTIFICATE_FILE} names {unknown[0]!r}, which is no file of a saved model")
    if len(names & POSTPROCESS) == 1:
        raise VerificationError(f"{CERTIFICATE_FILE} names {names & POSTPROCESS}; both or neither of them are needed")


def _graph(folder: Path, files: Mapping[str, bytes], symbols: str, parameters: str) -> Graph:
    return graph_from_bytes(files[symbols], files[parameters], folder / symbols, folder / parameters)


def _compare(stated: Certificate, derived: Certificate) -> None:
    for name, fact in derived.tensors.items():
        if name not in stated.tensors:
            raise VerificationError(f"{name} is not in the certificate")
        if stated.tensors[name] != fact:
            raise VerificationError(
                f"{name}: the certificate states {stated.tensors[name]}, {fact} is derived: files were changed, or "
                "another version of MRT, whose bounds differ, saved the model; verify it by that, or quantize again"
            )
    for name in stated.tensors:
        if name not in derived.tensors:
            raise VerificationError(f"the certificate states {name}, which the graph lacks")
    if dict(stated.operators) != dict(derived.operators):
        raise VerificationError(f"the certificate counts {dict(stated.operators)}, the graph {dict(derived.operators)}")


def _check_nothing_else(graph: Graph, folder: Path, files: Mapping[str, bytes], symbols: str, parameters: str) -> None:
    check_nothing_else(graph, files[symbols], files[parameters], folder / symbols, folder / parameters)


def _check_interface(facts: QuantizationFacts, graph: Graph, derived: Certificate) -> None:
    """VerificationError where quantization.json states other inputs, outputs or tensors than the graph has."""
    for kind, entries, symbols in (("inputs", facts.inputs, graph.inputs), ("outputs", facts.outputs, graph.outputs)):
        stated = [(entry.name, entry.shape, entry.dtype) for entry in entries]
        found = [(symbol.name, symbol.shape, symbol.dtype) for symbol in symbols]
        if stated != found:
            raise VerificationError(f"{QUANTIZATION_FILE} states the {kind} {stated}, the graph has {found}")
    for entry in facts.outputs:
        fact = derived.tensors[entry.name]
        if (entry.lo, entry.hi) != (fact.lo, fact.hi):
            raise VerificationError(
                f"{QUANTIZATION_FILE} states [{entry.lo}, {entry.hi}] for {entry.name}, "
                f"[{fact.lo}, {fact.hi}] is derived"
            )
        lowest, highest = DTYPE_RANGES[entry.dtype]
        if not lowest <= entry.zero_point <= highest:
            raise VerificationError(
                f"{QUANTIZATION_FILE}: {entry.name} has zero point {entry.zero_point}; its {entry.dtype} holds "
                f"[{lowest}, {highest}]"
            )
    facts.check_tensors(graph, QUANTIZATION_FILE)
    _check_states(facts, graph)


def _check_states(facts: QuantizationFacts, graph: Graph) -> None:
    """VerificationError where quantization.json states other states than the graph has, or a state at two scales."""
    states = states_of(graph)
    found = {state.name: state.output.name for state in states}
    if facts.states != found:
        raise VerificationError(f"{QUANTIZATION_FILE} states the states {facts.states}, the graph has {found}")
    entries = {entry.name: entry for entry in facts.inputs}
    for state in states:
        held, given = entries[state.name], facts.outputs[state.place]
        if held.zero_point != given.zero_point or not np.array_equal(held.scale, given.scale):
            raise VerificationError(
                f"{QUANTIZATION_FILE}: state {held.name} has scale {held.scale} and zero point {held.zero_point}, and "
                f"{given.name}, which it holds next, {given.scale} and {given.zero_point}; they must be the same"
            )


def _check_titles(facts: QuantizationFacts, whole: Graph) -> None:
    """VerificationError unless quantization.json names as many outputs as a call gives, or none. whole: gives them."""
    if len(facts.output_names) not in (0, len(whole.outputs)):
        raise VerificationError(
            f"{QUANTIZATION_FILE} names the outputs {list(facts.output_names)}; there are {len(whole.outputs)}"
        )


def _check_tail(tail: Graph, graph: Graph) -> None:
    """VerificationError where the float tail does not take the real values of the graph's outputs."""
    taken = [(symbol.shape, symbol.dtype) for symbol in tail.inputs]
    given = [(symbol.shape, "float32") for symbol in graph.outputs]
    if taken != given:
        raise VerificationError(f"{POSTPROCESS_FILE} takes {taken}; the outputs, {given}, are needed")
    empty = [symbol for symbol in tail.symbols if not symbol.type.size]
    if empty:
        raise VerificationError(f"{POSTPROCESS_FILE}: {empty[0].name} is {empty[0].type}; elements are needed")


def _checked(folder: Path, name: str, digest: str) -> bytes:
    content = read_file(current(folder, name), JSON_BYTES if name.endswith(".json") else PARAMETER_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise VerificationError(f"{name}: its SHA-256 is {found}, the certificate states {digest}")
    return content
