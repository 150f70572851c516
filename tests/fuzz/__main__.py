"""Tries random cases of every kind until the time or their number is up; exit status 1 where there are findings.

    python -m tests.fuzz --seconds 600 --seed 1
    python -m tests.fuzz --cases 200 --kind graphs
    python -m tests.fuzz --kind graphs --seed 1 --case 17

Case number n of a kind and a seed is always the same. Each runs in a process of its own, held to limits of time and
memory. One that is named by --case is tried on every CPU level, and says what it found in full.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Collection

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # other threads would not be there in a forked process

from tests.fuzz.case import shortened
from tests.fuzz.kinds import KINDS, Kind, run_case


def main() -> int:
    arguments = _arguments()
    kinds = [KINDS[name] for name in arguments.kind or KINDS]
    if arguments.case is not None:
        outcome = run_case(kinds[0], arguments.seed, arguments.case, thorough=True)
        print(outcome.finding or "nothing was found")
        return bool(outcome.finding)
    tallies = {kind.name: Tally(kind, arguments.seed) for kind in kinds}
    with contextlib.suppress(KeyboardInterrupt):  # what was tried is told all the same
        _try_all(tallies.values(), arguments.cases, arguments.seconds)
    for tally in tallies.values():
        tally.show()
    return int(any(tally.findings for tally in tallies.values()))


class Tally:
    """What was tried of one kind."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind, self.seed = kind, seed
        self.cases = self.findings = 0
        self.tried: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def add(self, number: int) -> None:
        outcome = run_case(self.kind, self.seed, number)
        self.cases += 1
        self.tried += outcome.tried
        self.refused += outcome.refused
        if outcome.finding:
            self.findings += 1
            print(f"FINDING {self.kind.name}: {shortened(outcome.finding)}")
            command = f"python -m tests.fuzz --kind {self.kind.name} --seed {self.seed} --case {number}"
            print(f"again by: {command}\n", flush=True)

    def show(self) -> None:
        print(f"{self.kind.name}, seed {self.seed}: {self.cases} cases, {self.findings} findings")
        for what, counts in (("tried", self.tried), ("refused", self.refused)):
            said = ", ".join(f"{name} {count}" for name, count in counts.most_common())
            print(f"  {what}: {said or 'nothing'}")


def _try_all(tallies: Collection[Tally], rounds: int | None, seconds: float) -> None:
    until = time.monotonic() + seconds
    for place in itertools.count() if rounds is None else range(rounds):
        for tally in tallies:
            for number in range(place * tally.kind.share, (place + 1) * tally.kind.share):
                if time.monotonic() > until:
                    return
                tally.add(number)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="when to stop")
    parser.add_argument("--cases", type=int, help="how many rounds, in each of which every kind has its share")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="all by default; may be given again")
    parser.add_argument("--case", type=int, help="the number of one case of one kind")
    arguments = parser.parse_args()
    if arguments.case is not None and len(arguments.kind or ()) != 1:
        parser.error("--case is a number of one kind: name it by --kind")
    if arguments.case is None and arguments.cases is None and arguments.seconds == float("inf"):
        parser.error("say when to stop, by --seconds or --cases")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
