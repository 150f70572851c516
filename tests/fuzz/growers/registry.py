"""The operators that may stand in an integer graph, each with how it is grown."""

from __future__ import annotations

from collections.abc import Callable

from mrt.symbol import Symbol
from tests.fuzz.growth import Growth

Grower = Callable[[Growth, str], Symbol]
GROWERS: dict[str, Grower] = {}


def grows(*ops: str) -> Callable[[Grower], Grower]:
    """Registers what grows some operators: told the graph so far and the operator's name, it gives a new tensor."""

    def register(grower: Grower) -> Grower:
        GROWERS.update(dict.fromkeys(ops, grower))
        return grower

    return register
