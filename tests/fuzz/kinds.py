"""The kinds of cases, and what each is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz import corpus, files, graphs, models, networks
from tests.fuzz.case import Limits, Outcome, isolated
from tests.fuzz.draw import Draw


@dataclass(frozen=True)
class Kind:
    """run: a case, told whether to be thorough. share: how many cases one round has.
    prepare: makes once, before the first case, what all of them need."""

    name: str
    run: Callable[[Draw, bool], Outcome]
    limits: Limits
    share: int = 1
    prepare: Callable[[], object] = tuple


KINDS = {
    kind.name: kind
    for kind in (
        Kind("graphs", graphs.fuzz_graph, Limits(60, 8192), 4),
        Kind("networks", networks.fuzz_network, Limits(300, 8192), 2),
        Kind("files", files.fuzz_file, Limits(20, 1536), 40, corpus.examples),
        Kind("models", models.fuzz_model, Limits(60, 4096), 20, corpus.models),
    )
}


def run_case(kind: Kind, seed: int, number: int, thorough: bool = False) -> Outcome:
    """Case `number` of a kind and a seed, in a process of its own."""
    kind.prepare()
    draw = Draw(list(KINDS).index(kind.name), seed, number)
    return isolated(lambda: kind.run(draw, thorough), kind.limits)
