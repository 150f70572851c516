"""How much a second core gives: two threads of one call, beside two processes that call by one thread each.

    python benchmarks/two_cores.py
    python benchmarks/two_cores.py --models resnet50 --batch 16 --rounds 6

Two processes share nothing but the machine: its clock, which falls where more cores work, its third cache and its
memory. What they reach together is what two threads can reach there, and they wait for each other besides. Networks are
in int8 by `preset: mrt`. Figures are milliseconds of one run, in turns: the median, and in a row below it what a tenth
of the calls took at most, which is little changed by what else runs. Two threads wait for the one that was disturbed,
so that their median suffers most.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from command_line import Parser, add_isa, add_turns, listed, whole, work_folder
from in_turns import Case, Child, ChildError, Launch, Store, cases, figures, machine, race, row
from latency import a_model, network_of, own_module

COLUMNS = ("model", "batch", "of the calls", "one thread", "two processes", "two threads")
GAINS = ("two processes ×", "two threads ×")
ALONE, BESIDE, THREADS = COLUMNS[3:]
SHARES = {"half": "median_ms", "a tenth": "tenth_ms"}
"""How many of the calls took no longer than what a row tells, and its name among `figures`."""


@dataclass(frozen=True)
class SideBySide:
    """Processes that are measured at the same time."""

    children: Sequence[Child]

    def measure(self, seconds: float) -> list[float]:
        """The seconds of each call of all of them."""
        with ThreadPoolExecutor(len(self.children)) as pool:
            turns = [pool.submit(child.measure, seconds) for child in self.children]
            return [took for turn in turns for took in turn.result()]


def line(case: Case, share: str, found: Mapping[str, float]) -> str:
    """A row of the table, of milliseconds by column: how many times as much two do in the time of one."""
    alone, beside, threads = (found[name] for name in (ALONE, BESIDE, THREADS))
    times = [f"{each:.2f}" for each in (alone, beside, threads)]
    return row([case.model, str(case.batch), share, *times, f"{2 * alone / beside:.2f}", f"{alone / threads:.2f}"])


def measured(case: Case, store: Store, arguments: Namespace) -> dict[str, Sequence[float]]:
    """The seconds of all calls by column; ChildError where something fails."""
    network = network_of(store, case.model)

    def start(stack: ExitStack, threads: int) -> Child:
        made = own_module(store, network, Case(case.model, threads, case.batch), arguments.isa)
        launch = Launch("mrt-int8", made, network, threads, case.batch, arguments.isa)
        child = stack.enter_context(launch.start())
        child.reply()
        return child

    with ExitStack() as stack:
        first, second, both = (start(stack, threads) for threads in (1, 1, 2))
        runners = {ALONE: first, BESIDE: SideBySide([first, second]), THREADS: both}
        found = race(runners, arguments.rounds, arguments.seconds)
    times: dict[str, Sequence[float]] = {}
    for name, each in found.items():
        if isinstance(each, ChildError):
            raise each
        times[name] = each
    return times


def measure_all(arguments: Namespace, store: Store) -> int:
    """Prints the table as it is found; the exit status."""
    print(f"{machine()}; instructions: {arguments.isa}\n")
    print(row([*COLUMNS, *GAINS]), row(["---"] * len([*COLUMNS, *GAINS])), sep="\n", flush=True)
    rows, failed = [], []
    for case in cases(arguments.models, [1], arguments.batch):
        try:
            times = measured(case, store, arguments)
        except ChildError as error:
            failed.append(f"{case.model}, batch {case.batch}: {error}")
            continue
        by_column = {name: figures(each) for name, each in times.items()}
        told = {key: {name: each[key] for name, each in by_column.items()} for key in SHARES.values()}
        for share, key in SHARES.items():
            print(line(case, share, told[key]), flush=True)
        rows.append({"model": case.model, "batch": case.batch, **told})
        if arguments.json is not None:
            arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    for each in failed:
        print(each, file=sys.stderr)
    return 1 if failed else 0


def _parser() -> Parser:
    parser = Parser(__doc__)
    models = "names or ONNX files, separated by commas"
    parser.add_argument("--models", type=listed(a_model), default=["resnet50", "mobilenetv2"], help=models)
    parser.add_argument("--batch", type=listed(whole(1)), default=[1], help="samples of one call: 1")
    add_isa(parser)
    add_turns(parser)
    return parser


def main() -> None:
    arguments = _parser().parse_args()
    with work_folder(arguments.work) as work:
        sys.exit(measure_all(arguments, Store(work)))


if __name__ == "__main__":
    main()
