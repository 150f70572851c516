"""Damaged saved models, their certificate made anew: what is verified is loaded, keeps its bounds and is compiled."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import mrt
from mrt.certificate import CERTIFICATE_FILE, derive, verify, vouch
from mrt.certificate.verify import GRAPH_FILE, PARAMETERS_FILE, QUANTIZATION_FILE
from mrt.errors import MRTError
from mrt.model import QuantizedModel
from mrt.symbol import Interval
from mrt.symbol.files import graph_from_bytes
from tests.backend.compiled import assert_same_values
from tests.fuzz import corpus
from tests.fuzz.case import Outcome
from tests.fuzz.draw import Draw
from tests.fuzz.files import refusal
from tests.fuzz.mutation import damaged

CLOSE = 1 << 20
"""Elements of an input beyond which a model is not run: its graph may ask for any shape."""


def fuzz_model(draw: Draw, thorough: bool) -> Outcome:
    """Forged to be believed in four of five cases."""
    found = corpus.models()
    example, other = draw.choice(found), draw.choice(found)
    files, outcome = dict(example.files), Outcome()
    for _ in range(draw.choice((1, 1, 2))):
        name = draw.choice(sorted(files))
        files[name] = damaged(draw, files[name], other.files.get(name, b""))
        outcome.tried[name] += 1
    if draw.chance(0.8):
        files = _signed(files) if draw.chance(0.5) else _forged(files)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        outcome.refused.update(refusal(lambda: verify(folder), "verify"))
        if not outcome.refused:
            outcome.refused.update(refusal(lambda: _use(mrt.load(folder), draw, outcome), "load, run or compile"))
    return outcome


def _signed(files: corpus.Files) -> corpus.Files:
    """The certificate with the digests of the files as they are."""
    try:
        certificate = json.loads(files[CERTIFICATE_FILE])
        for name in certificate["files"]:
            certificate["files"][name] = hashlib.sha256(files[name]).hexdigest()
        return files | {CERTIFICATE_FILE: json.dumps(certificate).encode()}
    except (ValueError, KeyError, TypeError, RecursionError):
        return files


def _forged(files: corpus.Files) -> corpus.Files:
    """A certificate that states what is derived of the files, and outputs that lie within it."""
    names = (GRAPH_FILE, PARAMETERS_FILE)
    try:
        graph = graph_from_bytes(*(files[name] for name in names), *names)
        facts: Any = json.loads(files[QUANTIZATION_FILE])
        entries = {entry["name"]: entry for entry in facts["inputs"]}
        ranges = {s.name: Interval.of(entries[s.name]["lo"], entries[s.name]["hi"], s.shape) for s in graph.inputs}
        derived = derive(graph, ranges)
        for entry, symbol in zip(facts["outputs"], graph.outputs, strict=True):
            fact = derived[symbol.name]
            entry |= {"name": symbol.name, "shape": list(fact.shape), "dtype": fact.dtype, "lo": fact.lo, "hi": fact.hi}
        made = files | {QUANTIZATION_FILE: json.dumps(facts).encode()}
        vouched = {name: content for name, content in made.items() if name != CERTIFICATE_FILE}
        return made | {CERTIFICATE_FILE: vouch(graph, derived, vouched).to_json().encode()}
    except (MRTError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return _signed(files)  # the readers are to refuse it, in one line


def _use(model: QuantizedModel, draw: Draw, outcome: Outcome) -> None:
    """Runs a verified model at the ends of its inputs and between, evaluated and compiled."""
    outcome.tried["verified"] += 1
    if any(symbol.type.size > CLOSE for symbol in (*model.graph.inputs, *model.graph.symbols)):
        return
    compiled = None
    try:
        compiled = model.compile()
    except MRTError:
        outcome.refused["compile"] += 1
    for kind in range(3):
        feeds = {e.name: _fed(draw, kind, e.lo, e.hi, e.shape).astype(e.dtype) for e in model.inputs}
        for symbol, value in model.graph.walk(feeds):
            fact = model.facts[symbol.name]
            assert fact.lo <= value.min() and value.max() <= fact.hi, (symbol, fact)
        if compiled is not None:
            outcome.tried["compiled"] += 1
            given = compiled.run_integer(feeds if len(feeds) > 1 else next(iter(feeds.values())))
            assert_same_values(model.graph, given if isinstance(given, list) else [given], model.graph.evaluate(feeds))


def _fed(draw: Draw, kind: int, lo: int, hi: int, shape: tuple[int, ...]) -> np.ndarray:
    if kind == 2:
        return draw.random.integers(lo, hi, shape, endpoint=True)
    return np.full(shape, (lo, hi)[kind], np.int64)
