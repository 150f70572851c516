"""Latency of ours and others' engines on seeded networks or yours, in float and in int8; a row for every network.

    python benchmarks/latency.py
    python benchmarks/latency.py --models resnet50,mobilenetv2 --engines mrt,ort --threads 1 --batch 1 --json out.json
    python benchmarks/latency.py --models path/to/yours.onnx

Each engine is a process of its own, and they are measured in turns. Figures are medians in milliseconds; ratios are of
medians of one run, so that below 1 ours is faster; lines below the table tell what a tenth of the calls took at most,
which is little changed by what else runs, and what nine tenths did, which is. The cosine is between the outputs of 16
samples and those in float.
docs/performance.md says what each column is.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from command_line import Parser, add_isa, add_turns, listed, one_of, whole, work_folder
from in_turns import (
    Case,
    ChildError,
    Launch,
    Measured,
    Store,
    cases,
    cosine,
    figures,
    machine,
    making_time,
    measure,
    row,
    version_of,
)
from makers import IR, NETWORK

MODELS = (
    *("resnet50", "resnet18", "mobilenetv2", "mobilenetv1_025"),
    *("efficientnet_b0", "yolov8n", "squeezenet", "resnet8", "kws_dscnn", "kwt1"),
)
ENGINES = {
    "mrt": ("mrt-f32", "mrt-int8"),
    "ort": ("ort-f32", "ort-int8"),
    "openvino": ("openvino-f32", "openvino-int8"),
}
REFERENCES = ("ort-f32", "openvino-f32", "mrt-f32")
"""Whose outputs the others are compared with: the first that ran."""
RATIOS = (
    ("mrt-int8", "openvino-int8"),
    ("mrt-int8", "ort-int8"),
    ("mrt-int8", "ort-f32"),
    ("mrt-f32", "openvino-f32"),
    ("mrt-f32", "ort-f32"),
)
ALIKE = {"f32": 0.999, "int8": 0.9}
"""The least cosine with the reference: below it a float engine computes something else, and int8 is of little use."""
PACKAGES = ("apache-tvm", "onnxruntime", "openvino", "nncf")
PRESETS = ("mrt", "fast", "best")
"""Of MRT's options; that of 8 bits throughout first, as peers have them, and the default of `mrt.quantize` last."""


# What runs

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A way to run a network, whose figure counts for `engine` if it is the best of those.

    start: the engine of `peers.py`. arguments: from the store, the network's folder, the case and the instruction set
    to its arguments, whose files are made on the way. needs: modules that must be installed.
    """

    engine: str
    start: str
    arguments: Callable[[Store, Path, Case, str], Arguments]
    needs: tuple[str, ...] = ()
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.engine} ({self.variant})" if self.variant else self.engine

    @property
    def lacks(self) -> list[str]:
        return [module for module in self.needs if find_spec(module) is None]


def as_it_is(store: Store, network: Path, case: Case, isa: str) -> Arguments:
    return {"network": network}


def own_float(store: Store, network: Path, case: Case, isa: str) -> Arguments:
    return {"network": network, "isa": isa}


def own_model(store: Store, network: Path, preset: str) -> Path:
    return store.get("mrt-model", network=network, options={"preset": preset})


def own_module(store: Store, network: Path, case: Case, isa: str, preset: str = PRESETS[0]) -> Arguments:
    facts = {"threads": case.threads, "batch": case.batch, "machine": machine(), "isa": isa}
    return {"module": store.get("mrt-module", model=own_model(store, network, preset), **facts)}


def by_onnx_runtime(store: Store, network: Path, case: Case, isa: str) -> Arguments:
    return {"network": store.get("ort-int8", network=network)}


def by_openvino(store: Store, network: Path, case: Case, isa: str) -> Arguments:
    return {"model": network, "file": NETWORK}


def by_nncf(store: Store, network: Path, case: Case, isa: str) -> Arguments:
    return {"model": store.get("openvino-nncf", network=network), "file": IR}


def by_qdq(store: Store, network: Path, case: Case, isa: str) -> Arguments:
    return {"model": store.get("ort-int8", network=network), "file": NETWORK}


CANDIDATES = (
    Candidate("mrt-f32", "mrt-f32", own_float),
    Candidate("mrt-int8", "mrt-int8", own_module),
    Candidate("ort-f32", "onnxruntime", as_it_is, ("onnxruntime",)),
    Candidate("ort-int8", "onnxruntime", by_onnx_runtime, ("onnxruntime", "sympy")),
    Candidate("openvino-f32", "openvino", by_openvino, ("openvino",)),
    Candidate("openvino-int8", "openvino", by_nncf, ("openvino", "nncf"), "NNCF"),
    Candidate("openvino-int8", "openvino", by_qdq, ("openvino", "onnxruntime", "sympy"), "QDQ"),
)


def candidates_by(preset: str) -> list[Candidate]:
    """All of them, ours quantized by a preset."""
    own = partial(own_module, preset=preset)
    return [replace(each, arguments=own) if each.engine == "mrt-int8" else each for each in CANDIDATES]


# Figures


@dataclass(frozen=True)
class Outcome:
    """What was found of one case: by engine the best of its candidates, and what there is to say.

    notes: what is worth knowing. failed: what went wrong.
    """

    case: Case
    best: Mapping[str, Measured]
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        case: Case,
        candidates: Sequence[Candidate],
        found: Mapping[str, Measured],
        failed: Mapping[str, ChildError],
    ) -> Outcome:
        """The outcome of the candidates; a float engine that computes something else has failed."""
        ran = sorted((c for c in candidates if c.name in found), key=lambda c: found[c.name].milliseconds)
        first: dict[str, Candidate] = {}
        for candidate in ran:
            first.setdefault(candidate.engine, candidate)
        outcome = cls(case, {engine: found[candidate.name] for engine, candidate in first.items()})
        notes = [
            f"{case}: {first[each.engine].name} counts, {each.name} takes {found[each.name].milliseconds:.2f} ms"
            for each in ran
            if each is not first[each.engine]
        ]
        wrong = [f"{case}: {name}: {error}" for name, error in failed.items()]
        for engine in outcome.best:
            precision = engine.rpartition("-")[2]
            share, least = outcome.cosine(engine), ALIKE[precision]
            if not share >= least:
                line = (
                    f"{case}: the outputs of {engine} have a cosine of {share:.4f} with those in float, below {least}"
                )
                (wrong if precision == "f32" else notes).append(line)
        return cls(case, outcome.best, tuple(notes), tuple(wrong))

    def cosine(self, engine: str) -> float:
        """Of an engine's outputs with the reference's; NaN where no float engine ran."""
        reference = next((self.best[name] for name in REFERENCES if name in self.best), None)
        if reference is None:
            return float("nan")
        return cosine(self.best[engine].outputs, reference.outputs)

    @property
    def engines(self) -> list[str]:
        """Those that ran, in the table's order."""
        return [engine for family in ENGINES.values() for engine in family if engine in self.best]

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the JSON file."""
        return [self.case.facts(self.best[engine], engine=engine) for engine in self.engines]

    def tenths(self) -> list[str]:
        """What a tenth and nine tenths of the calls took at most: where others use the machine, too, medians hold their
        work, and engines lose by it more or less."""
        found = {engine: figures(self.best[engine].times) for engine in self.engines}
        return [
            f"{self.case}: {share} of the calls took at most, in ms, "
            + ", ".join(f"{engine} {times[name]:.2f}" for engine, times in found.items())
            for share, name in (("a tenth", "tenth_ms"), ("nine tenths", "nine_tenths_ms"))
        ]


@dataclass(frozen=True)
class Report:
    """The table of the engines that are measured."""

    engines: Sequence[str]
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def ratios(self) -> list[tuple[str, str]]:
        return [pair for pair in RATIOS if set(pair) <= set(self.engines)]

    @property
    def integer(self) -> list[str]:
        return [engine for engine in self.engines if engine.endswith("-int8")]

    def heading(self) -> str:
        columns = ["model", "threads", "batch", *self.engines]
        columns += [f"{own} / {peer}" for own, peer in self.ratios]
        columns += [f"cosine {engine}" for engine in self.integer]
        return f"{row(columns)}\n{row(['---'] * len(columns))}"

    def line(self, outcome: Outcome) -> str:
        times = {engine: measured.milliseconds for engine, measured in outcome.best.items()}
        cells = [outcome.case.model, str(outcome.case.threads), str(outcome.case.batch)]
        cells += [f"{times[engine]:.2f}" if engine in times else "-" for engine in self.engines]
        cells += [
            f"{times[own] / times[peer]:.2f}" if own in times and peer in times else "-" for own, peer in self.ratios
        ]
        cells += [f"{outcome.cosine(engine):.4f}" if engine in times else "-" for engine in self.integer]
        return row(cells)

    def to_json(self) -> str:
        return json.dumps({"rows": [line for outcome in self.outcomes for line in outcome.rows()]}, indent=1) + "\n"


# The run


def main() -> None:
    arguments = _parser().parse_args()
    with work_folder(arguments.work) as work:
        sys.exit(measure_all(arguments, Store(work)))


def a_model(text: str) -> str:
    """The name of a seeded network, or the path of an ONNX file."""
    return text if text.endswith(".onnx") and Path(text).is_file() else one_of([*MODELS, "an ONNX file"])(text)


def _parser() -> Parser:
    parser = Parser(__doc__)
    models = "names or ONNX files, separated by commas; all names"
    parser.add_argument("--models", type=listed(a_model), default=list(MODELS), help=models)
    parser.add_argument("--engines", type=listed(one_of(list(ENGINES))), default=list(ENGINES), help="mrt,ort,openvino")
    parser.add_argument("--threads", type=listed(whole(1)), default=[1, 2], help="1,2")
    parser.add_argument("--batch", type=listed(whole(1)), default=[1, 16], help="samples of one call: 1,16")
    preset = "what quantizes for mrt-int8: mrt, fast or best, the default of mrt.quantize"
    parser.add_argument("--preset", type=one_of(PRESETS), default=PRESETS[0], help=preset)
    add_isa(parser)
    add_turns(parser)
    return parser


def measure_all(arguments: Namespace, store: Store) -> int:
    """Prints the table as it is found; the exit status."""
    chosen = [engine for family in arguments.engines for engine in ENGINES[family]]
    asked = [candidate for candidate in candidates_by(arguments.preset) if candidate.engine in chosen]
    for candidate in asked:
        if candidate.lacks:
            print(f"{candidate.name}: left out, {' and '.join(candidate.lacks)} not installed")
    present = [candidate for candidate in asked if not candidate.lacks]
    if not present:
        print("no engine is left; install the extra [benchmarks]", file=sys.stderr)
        return 1
    versions = ", ".join(f"{package} {version_of(package)}" for package in PACKAGES if version_of(package))
    print(f"{machine()}\n{versions}; instructions: {arguments.isa}\n")
    report = Report([engine for engine in chosen if any(engine == candidate.engine for candidate in present)])
    print(report.heading(), flush=True)
    for case in cases(arguments.models, arguments.threads, arguments.batch):
        launches = {each.name: partial(launch, each, case, store, arguments.isa) for each in present}
        outcome = Outcome.of(case, present, *measure(launches, arguments.rounds, arguments.seconds))
        report.outcomes.append(outcome)
        print(report.line(outcome), flush=True)
        if arguments.json is not None:
            arguments.json.write_text(report.to_json())
    notes = [line for outcome in report.outcomes if outcome.best for line in outcome.tenths()]
    notes += [note for outcome in report.outcomes for note in outcome.notes]
    failed = [line for outcome in report.outcomes for line in outcome.failed]
    print("\n".join(["", *making_times(arguments.models, present, store, arguments), *notes]))
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


def launch(candidate: Candidate, case: Case, store: Store, isa: str) -> Launch:
    """Makes what a candidate needs; ChildError where that fails."""
    network = network_of(store, case.model)
    arguments = candidate.arguments(store, network, case, isa)
    return Launch(candidate.start, arguments, network, case.threads, case.batch, isa)


def network_of(store: Store, model: str) -> Path:
    """The folder of a seeded network, or of a file's."""
    if model in MODELS:
        return store.get("network", name=model, spread=1.0)
    file = Path(model).resolve()
    return store.get("own-network", file=str(file), digest=sha256(file.read_bytes()).hexdigest())


def making_times(
    models: Sequence[str], candidates: Sequence[Candidate], store: Store, arguments: Namespace
) -> Iterator[str]:
    """How long each network took to quantize and to compile, by those that do."""
    engines = {candidate.name for candidate in candidates}
    for model in models:
        parts = []
        try:
            network = network_of(store, model)
            if "mrt-int8" in engines:
                integer = own_model(store, network, arguments.preset)
                case = next(iter(cases([model], arguments.threads, arguments.batch)))
                module = own_module(store, network, case, arguments.isa, arguments.preset)["module"]
                parts.append(f"mrt {making_time(integer):.1f} s and {making_time(module):.1f} s to compile")
            if "ort-int8" in engines:
                parts.append(f"ONNX Runtime {making_time(store.get('ort-int8', network=network)):.1f} s")
            if "openvino-int8 (NNCF)" in engines:
                parts.append(f"NNCF {making_time(store.get('openvino-nncf', network=network)):.1f} s")
        except ChildError:
            continue  # the table says so
        if parts:
            yield f"{model}: quantized by {', '.join(parts)}"


if __name__ == "__main__":
    main()
