"""What scales by channel cost: latency by granularity of the activations, over that of one scale per tensor.

    python benchmarks/granularity.py
    python benchmarks/granularity.py --models resnet20 --steps 16 --isa vnni --json out.json

Seeded networks whose channels are spread, as those of trained networks are, are quantized with one scale for every STEP
channels of their activations, by the preset `mrt`: the default one gives some tensors more bits, and other ones with
other granularity. Each module is a process of its own, and they are measured in turns.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from command_line import Parser, add_isa, add_turns, listed, one_of, whole, work_folder
from in_turns import Case, Launch, Measured, Store, cases, cosine, machine, measure, row

MODELS = ("mobilenetv1_025", "resnet20")
STEPS = (16, 4, 1)
SPREAD = 16.0
"""The widest channel over the narrowest. With channels that are all alike nothing would be split."""
LAYER, FLOAT = "layer", "float"


def main() -> None:
    arguments = _parser().parse_args()
    with work_folder(arguments.work) as work:
        sys.exit(measure_all(arguments, Store(work)))


def _parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("--models", type=listed(one_of(MODELS)), default=list(MODELS), help="separated by commas; all")
    parser.add_argument("--steps", type=listed(whole(1)), default=list(STEPS), help="channels of one scale: 16,4,1")
    parser.add_argument("--threads", type=listed(whole(1)), default=[1], help="1")
    parser.add_argument("--batch", type=listed(whole(1)), default=[1], help="samples of one call: 1")
    add_isa(parser)
    add_turns(parser)
    return parser


def measure_all(arguments: Namespace, store: Store) -> int:
    """Prints the table as it is found; the exit status."""
    steps = [str(step) for step in arguments.steps]
    columns = ["model", "threads", "batch", LAYER, *steps, *(f"{step} / {LAYER}" for step in steps)]
    columns += [f"cosine {granularity}" for granularity in (LAYER, *steps)]
    print(f"{machine()}; instructions: {arguments.isa}\n\n{row(columns)}\n{row(['---'] * len(columns))}", flush=True)
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for case in cases(arguments.models, arguments.threads, arguments.batch):
        launches = {name: partial(launch, name, case, store, arguments.isa) for name in (FLOAT, LAYER, *steps)}
        found, failed = measure(launches, arguments.rounds, arguments.seconds)
        failures += [f"{case}, granularity {name}: {error}" for name, error in failed.items()]
        print(line(case, steps, found), flush=True)
        rows += [
            case.facts(found[name], granularity=name if name == LAYER else {"channel": int(name)})
            for name in (LAYER, *steps)
            if name in found
        ]
        if arguments.json is not None:
            arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def launch(granularity: str, case: Case, store: Store, isa: str) -> Launch:
    """The module of one granularity, or the float network; ChildError where it cannot be made. isa: one of `ISA`."""
    network = store.get("network", name=case.model, spread=SPREAD)
    arguments: dict[str, Path] = {"network": network}
    if granularity != FLOAT:
        step = LAYER if granularity == LAYER else {"channel": int(granularity)}
        options = {"preset": "mrt", "activation": {"granularity": step}}
        model = store.get("mrt-model", network=network, options=options)
        facts = {"threads": case.threads, "batch": case.batch, "machine": machine(), "isa": isa}
        arguments = {"module": store.get("mrt-module", model=model, **facts)}
    engine = "mrt-f32" if granularity == FLOAT else "mrt-int8"
    return Launch(engine, arguments, network, case.threads, case.batch, isa)


def line(case: Case, steps: list[str], found: Mapping[str, Measured]) -> str:
    """The table's row of one case."""
    times = {name: measured.milliseconds for name, measured in found.items()}
    cells = [case.model, str(case.threads), str(case.batch)]
    cells += [f"{times[name]:.2f}" if name in times else "-" for name in (LAYER, *steps)]
    cells += [f"{times[step] / times[LAYER]:.2f}" if {step, LAYER} <= set(times) else "-" for step in steps]
    for name in (LAYER, *steps):
        known = {name, FLOAT} <= set(found)
        cells.append(f"{cosine(found[name].outputs, found[FLOAT].outputs):.4f}" if known else "-")
    return row(cells)


if __name__ == "__main__":
    main()
