"""Re-checks a saved model from nothing but its files; shares only the operator records with what made it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mrt.certificate.certificate import CERTIFICATE_FILE, Certificate, derive
from mrt.collector import paused_collector
from mrt.errors import ModelFileError, MRTError, VerificationError
from mrt.module_record import MODULE_FILE, ModuleRecord, module_in
from mrt.symbol import Graph, Interval
from mrt.symbol.files import graph_from_bytes
from mrt.symbol.quantized_tensor import TensorQuantization

GRAPH_FILE = "graph.json"
PARAMETERS_FILE = "params.safetensors"
QUANTIZATION_FILE = "quantization.json"


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

    Checks that files match their digests, that every operator and tensor is an integer of at most 32 bits, that
    every bound and intermediate fits, that the certificate states just what is derived, and that the inputs and
    outputs of quantization.json are those of the graph. Where there is a compiled module, or the record of one, checks
    that both are there, that the record has the module's digest, and that it names this model; the code itself is not
    loaded, and not proven.
    Raises VerificationError saying what is wrong.
    """
    summary = open_verified(directory).summary
    try:
        return replace(summary, module=module_in(Path(directory), summary.digest))
    except ModelFileError as error:
        raise VerificationError(str(error)) from None


@dataclass(frozen=True, eq=False)
class Verified:
    """A saved model as it was verified. files: their contents by name; quantization: what is in quantization.json."""

    summary: Summary
    graph: Graph
    files: Mapping[str, bytes]
    quantization: Any


@paused_collector()
def open_verified(directory: str | os.PathLike[str]) -> Verified:
    """Verifies as `verify` does all but the compiled module, and gives what was verified: each file is read once."""
    folder = Path(directory)
    content = _read(folder / CERTIFICATE_FILE)
    stated = Certificate.from_json(content.decode("utf-8", "replace"))
    files = {name: _checked(folder, name, digest) for name, digest in stated.files.items()}
    for needed in (GRAPH_FILE, PARAMETERS_FILE, QUANTIZATION_FILE):
        if needed not in files:
            raise VerificationError(f"{CERTIFICATE_FILE} does not vouch for {needed}")
    try:
        graph = graph_from_bytes(
            files[GRAPH_FILE], files[PARAMETERS_FILE], folder / GRAPH_FILE, folder / PARAMETERS_FILE
        )
        facts = _parsed(files[QUANTIZATION_FILE])
        # The files' digests are those that are stated, or reading them has failed.
        derived = Certificate(derive(graph, _input_intervals(graph, facts)), stated.files, graph.count_operators())
    except VerificationError:
        raise
    except MRTError as error:
        raise VerificationError(str(error)) from None
    _compare(stated, derived)
    _check_interface(graph, facts, derived)
    summary = Summary(
        len(derived.tensors),
        sum(derived.operators.values()),
        derived.max_bits,
        hashlib.sha256(content).hexdigest(),
    )
    return Verified(summary, graph, files | {CERTIFICATE_FILE: content}, facts)


def _compare(stated: Certificate, derived: Certificate) -> None:
    for name, fact in derived.tensors.items():
        if name not in stated.tensors:
            raise VerificationError(f"{name} is not in the certificate")
        if stated.tensors[name] != fact:
            raise VerificationError(f"{name}: the certificate states {stated.tensors[name]}, {fact} is derived")
    for name in stated.tensors:
        if name not in derived.tensors:
            raise VerificationError(f"the certificate states {name}, which the graph lacks")
    if dict(stated.operators) != dict(derived.operators):
        raise VerificationError(f"the certificate counts {dict(stated.operators)}, the graph {dict(derived.operators)}")


def _parsed(quantization: bytes) -> Any:
    try:
        return json.loads(quantization)
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{QUANTIZATION_FILE} is malformed: {error}") from None


def _input_intervals(graph: Graph, facts: Any) -> Mapping[str, Interval]:
    try:
        inputs = {entry["name"]: entry for entry in facts["inputs"]}
        return {
            symbol.name: Interval.of(int(inputs[symbol.name]["lo"]), int(inputs[symbol.name]["hi"]), symbol.shape)
            for symbol in graph.inputs
        }
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise VerificationError(f"{QUANTIZATION_FILE}: the inputs' ranges are malformed or missing: {error}") from None


def _check_interface(graph: Graph, facts: Any, derived: Certificate) -> None:
    """VerificationError where an input or output is not stated as the graph has it, or has no positive scale."""
    try:
        inputs, outputs = ([TensorQuantization.from_json(entry) for entry in facts[k]] for k in ("inputs", "outputs"))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise VerificationError(f"{QUANTIZATION_FILE}: its inputs or outputs are malformed: {error}") from None
    for kind, entries, symbols in (("inputs", inputs, graph.inputs), ("outputs", outputs, graph.outputs)):
        stated = [(entry.name, entry.shape, entry.dtype) for entry in entries]
        found = [(symbol.name, symbol.shape, symbol.dtype) for symbol in symbols]
        if stated != found:
            raise VerificationError(f"{QUANTIZATION_FILE} states the {kind} {stated}, the graph has {found}")
    for entry in (*inputs, *outputs):
        if not (np.isfinite(entry.scale) & (entry.scale > 0)).all():
            raise VerificationError(f"{QUANTIZATION_FILE}: {entry.name} has scale {entry.scale}; it must be positive")
    for entry in outputs:
        fact = derived.tensors[entry.name]
        if (entry.lo, entry.hi) != (fact.lo, fact.hi):
            raise VerificationError(
                f"{QUANTIZATION_FILE} states [{entry.lo}, {entry.hi}] for {entry.name}, "
                f"[{fact.lo}, {fact.hi}] is derived"
            )


def _checked(folder: Path, name: str, digest: str) -> bytes:
    if Path(name).name != name:
        raise VerificationError(f"{CERTIFICATE_FILE} names {name!r}, which is no file of the model's folder")
    content = _read(folder / name)
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise VerificationError(f"{name}: its SHA-256 is {found}, the certificate states {digest}")
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise VerificationError(f"{path} cannot be read: {error.strerror}") from None
