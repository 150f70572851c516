"""Accuracy beside that of others: MRT, ONNX Runtime and NNCF on the same networks, samples and float outputs.

    MRT_DATA=/path/to/data python benchmarks/peers.py --accuracy
    MRT_DATA=/path/to/data python benchmarks/peers.py --accuracy --networks kws_dscnn --widths W8A8,W4A8 --json out.json
    python benchmarks/peers.py --accuracy --model net.onnx --calibration-data some.npz --test-data others.npz

MRT quantizes as it does with nothing set but the widths, and --set. Of each other tool every way that it has is tried,
and the best is shown, by the SQNR of the logits of the test samples: a choice that a user could not make so. Softmaxes
at the end are cut off for all. Seconds are those of calibration and quantization, from file to file. NNCF's
accuracy-aware mode gives operators back to float, and so has rows of its own. An .npz holds one array for each input,
called as it is, or x; and labels called y, or none. The other tools: pip install -e '.[benchmarks]'.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from command_line import Parser, folder, listed, new_file, one_of, whole, work_folder
from in_turns import ChildError, Store, machine, making_time, row, version_of
from makers import (
    CALIBRATION_FILE,
    IR,
    LABELS_FILE,
    NETWORK,
    OUTPUTS_FILE,
    VALIDATION_LABELS_FILE,
    Array,
    samples_of,
)
from peer_choices import NEEDS, TOOLS, W8A8, Choice, choices, widths_of

from mrt.errors import MRTError
from mrt.evaluation import agreement, quantization_noise, top1

ONNX_NETWORKS = ("kws_dscnn", "resnet20_cifar10", "mlperf_resnet8_cifar10", "mobilenet_v1_0.25_224")
TRANSFORMER, MXNET_NETWORK = "kwt1_speechcommands12", "cifar_resnet20_v1"
NETWORKS = (*ONNX_NETWORKS, TRANSFORMER, MXNET_NETWORK)
IMAGE = (1, 3, 32, 32)
"""The input of the network that MXNet wrote, which its file does not say."""
PACKAGES = ("apache-tvm", "onnxruntime", "openvino", "nncf")
COLUMNS = ("network", "widths", "tool", "how", "top-1, float", "top-1", "agreement", "SQNR", "seconds")


# Figures


@dataclass(frozen=True)
class Row:
    """What was found of one network in one way. sqnr: dB of each output; None where it has no error."""

    network: str
    widths: str
    tool: str
    title: str
    how: str
    calibration: int
    samples: int
    float_top1: float | None
    top1: float | None
    agreement: float
    sqnr: list[float | None]
    seconds: float
    quantizers: int | None = None
    error: float = 0.0

    @property
    def key(self) -> tuple[Any, ...]:
        """What no two rows share."""
        return self.network, self.widths, self.title, self.how, self.calibration, self.samples

    @property
    def cells(self) -> list[str]:
        shares = (self.float_top1, self.top1, self.agreement)
        found = ["-" if share is None else f"{100 * share:.2f} %" for share in shares]
        noise = " / ".join("exact" if ratio is None else f"{ratio:.2f}" for ratio in self.sqnr)
        kept = "" if self.quantizers is None else f", {self.quantizers} quantizers kept"
        return [self.network, self.widths, self.title, self.how + kept, *found, f"{noise} dB", f"{self.seconds:.0f}"]


def best(rows: Iterable[Row]) -> list[Row]:
    """For each network, widths and title the row with the least error, in the order of the first of them."""
    found: dict[tuple[str, str, str], Row] = {}
    for each in rows:
        place = (each.network, each.widths, each.title)
        if place not in found or each.error < found[place].error:
            found[place] = each
    return list(found.values())


def merged(earlier: Iterable[Row], later: Iterable[Row]) -> list[Row]:
    """Both, a later row in the place of an earlier one of the same key."""
    return list({each.key: each for each in (*earlier, *later)}.values())


def scored(reference: Sequence[Array], found: Sequence[Array], labels: Array | None) -> dict[str, Any]:
    """The figures of outputs, axis 0 the samples, against those of the float network.

    Top-1 and agreement are of the first output. error: over the signal, of all outputs together.
    """
    noises = [quantization_noise(f, q.reshape(f.shape)) for f, q in zip(reference, found, strict=True)]
    total = sum((noise.error for noise in noises), 0.0) / max(sum(noise.signal for noise in noises), 1e-300)
    return {
        "float_top1": None if labels is None else top1(reference[0], labels).value,
        "top1": None if labels is None else top1(found[0], labels).value,
        "agreement": agreement(reference[0], found[0]).value,
        "sqnr": [noise.sqnr_db for noise in noises],
        "error": total,
    }


# The run


@dataclass(frozen=True)
class Case:
    """A network with its data, as a folder of the store."""

    name: str
    place: Path

    @property
    def calibration(self) -> int:
        """How many samples calibrate: those asked for, or all that there are."""
        return len(next(iter(samples_of(self.place / CALIBRATION_FILE).values())))

    @property
    def labels(self) -> Array | None:
        return np.load(self.place / LABELS_FILE) if (self.place / LABELS_FILE).is_file() else None

    @property
    def is_transformer(self) -> bool:
        import onnx

        return any(node.op_type == "Softmax" for node in onnx.load(self.place / NETWORK).graph.node)

    def takes(self, choice: Choice, widths: str) -> bool:
        """Whether a choice is for this network and these widths."""
        if choice.widths and widths not in choice.widths:
            return False
        if choice.validates and not (self.place / VALIDATION_LABELS_FILE).is_file():
            return False
        return not choice.for_transformers or self.is_transformer

    def row(self, choice: Choice, widths: str, store: Store) -> Row:
        """Quantizes in one way and runs all test samples; ChildError where that fails."""
        model = store.get(choice.maker, network=self.place, **choice.arguments_for(widths))
        reference = _outputs(store.get("float-outputs", network=self.place))
        found = _outputs(store.get(choice.outputs, network=self.place, model=model))
        kept = (model / IR).read_text().count('type="FakeQuantize"') if choice.validates else None
        figures = scored(reference, found, self.labels)
        counts = {"calibration": self.calibration, "samples": len(reference[0]), "quantizers": kept}
        names = {"network": self.name, "widths": widths, "tool": choice.tool, "title": choice.title, "how": choice.how}
        return Row(**names, **counts, **figures, seconds=making_time(model))


def _outputs(place: Path) -> list[Array]:
    with np.load(place / OUTPUTS_FILE) as arrays:
        return list(arrays.values())


def described(name: str, data: Path) -> dict[str, Any]:
    """The configuration of one of `NETWORKS`."""
    loader = {"loader": f"{data / 'datasets.py'}:load", "args": {"model": name}}
    model: dict[str, Any] = {"path": str(data / "models" / "onnx" / f"{name}.onnx")}
    if name == MXNET_NETWORK:
        model = {"path": str(data / "mxnet" / name / f"{name}-symbol.json"), "shapes": {"data": IMAGE}}
    return {"model": model, "data": {split: {**loader, "split": split} for split in ("calibration", "test")}}


def given(arguments: Namespace) -> dict[str, Any]:
    """The configuration of --model."""
    splits = {"calibration": arguments.calibration_data, "test": arguments.test_data}
    if None in splits.values():
        sys.exit("--model: --calibration-data and --test-data are needed, too, each an .npz file")
    data: dict[str, Any] = {}
    for split, path in splits.items():
        with np.load(path) as arrays:
            names = [name for name in arrays.files if name != "y"]
            labels = "y" if "y" in arrays.files else None
        data[split] = {"npz": str(path.absolute()), "x": "x" if names == ["x"] else {n: n for n in names}, "y": labels}
    return {"model": {"path": str(arguments.model.absolute())}, "data": data}


def configurations(arguments: Namespace) -> dict[str, dict[str, Any]]:
    """What is measured, by name; nothing where MRT_DATA is missing."""
    if arguments.model is not None:
        return {arguments.model.stem: given(arguments)}
    if not os.environ.get("MRT_DATA"):
        print("skipped: the variable MRT_DATA is not set; it names the folder of models and data")
        return {}
    return {name: described(name, Path(os.environ["MRT_DATA"]).absolute()) for name in arguments.networks}


def measure_all(arguments: Namespace, store: Store) -> int:
    """Prints every row as it is found, then the table of the best; the exit status."""
    tools = [TOOLS[name] for name in arguments.tools]
    for tool in list(tools):
        lacking = [name for name in NEEDS[tool] if find_spec(name) is None]
        if lacking:
            print(f"{tool}: left out, {' and '.join(lacking)} not installed; pip install -e '.[benchmarks]'")
            tools.remove(tool)
    rows = earlier_rows(arguments.json)
    failed = False
    measured: list[Row] = []
    asked = configurations(arguments)
    if not asked:
        return 0
    for name, config in asked.items():
        try:
            place = store.get("case", config=config, calibration=arguments.calibration, samples=arguments.samples)
        except ChildError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        for found in _rows(Case(name, place), choices(tools, arguments.set), arguments, store):
            failed |= found is None
            measured += [] if found is None else [found]
            save(arguments.json, merged(rows, measured))
    shown = [each for each in merged(rows, measured) if each.network in asked]
    print(table(shown if arguments.all else best(shown)))
    return 1 if failed else 0


def _rows(case: Case, tried: Sequence[Choice], arguments: Namespace, store: Store) -> Iterator[Row | None]:
    """The rows of one network; None for what failed."""
    for widths, choice in product(arguments.widths, tried):
        if not case.takes(choice, widths):
            continue
        try:
            found = case.row(choice, widths, store)
        except (ChildError, MRTError) as error:
            print(f"{case.name}, {widths}, {choice.title}, {choice.how}: {error}", file=sys.stderr)
            yield None
            continue
        print(row(found.cells), file=sys.stderr, flush=True)
        yield found


def table(rows: Sequence[Row]) -> str:
    versions = ", ".join(f"{name} {version_of(name) or 'not installed'}" for name in PACKAGES)
    lines = [row(COLUMNS), row(["---"] * len(COLUMNS)), *(row(each.cells) for each in rows)]
    return "\n".join((machine(), versions, "", *lines))


def earlier_rows(file: Path | None) -> list[Row]:
    """The rows that a file holds already; SystemExit where it is something else."""
    if file is None or not file.is_file():
        return []
    try:
        return [Row(**each) for each in json.loads(file.read_text())["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"--json {file}: {error} was found; a file that this program wrote, or a new one, is needed")


def save(file: Path | None, rows: Sequence[Row]) -> None:
    if file is not None:
        content = {"machine": machine(), "versions": {name: version_of(name) for name in PACKAGES}}
        file.write_text(json.dumps({**content, "rows": [asdict(each) for each in rows]}, indent=1) + "\n")


def parser() -> Parser:
    found = Parser(__doc__)
    found.add_argument("--accuracy", action="store_true", help="what this is")
    found.add_argument("--networks", type=listed(one_of(NETWORKS)), default=list(NETWORKS), help="by commas; all")
    found.add_argument("--model", type=Path, help="a model file in their place")
    found.add_argument("--calibration-data", type=Path, metavar="FILE", help="an .npz file, for --model")
    found.add_argument("--test-data", type=Path, metavar="FILE", help="an .npz file, for --model")
    found.add_argument("--tools", type=listed(one_of(list(TOOLS))), default=list(TOOLS), help=",".join(TOOLS))
    found.add_argument("--widths", type=listed(widths_of), default=[W8A8], help="by commas; W8A8")
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="MRT's options, as of `mrt run`")
    found.add_argument("--calibration", type=whole(1), default=128, help="samples that calibrate (128)")
    found.add_argument("--samples", type=whole(1), help="how many test samples are scored; by default all")
    found.add_argument("--all", action="store_true", help="show every row, not only the best")
    found.add_argument("--json", type=new_file, metavar="FILE", help="where all rows are written; earlier ones stay")
    found.add_argument("--work", type=folder, metavar="FOLDER", help="keeps what was made for the next run")
    return found


def main() -> None:
    arguments = parser().parse_args()
    try:
        with work_folder(arguments.work) as work:
            sys.exit(measure_all(arguments, Store(work)))
    except MRTError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
