"""The operators that may stand in an integer graph, each with how it is grown: one file a family."""

from __future__ import annotations

from tests.fuzz.growers import arrangement, elementwise, products, reductions  # noqa: F401
from tests.fuzz.growers.blocks import BLOCKS
from tests.fuzz.growers.registry import GROWERS
from tests.fuzz.growth import Growth

__all__ = ["GROWERS", "grow"]


def grow(growth: Growth) -> str:
    """Adds an operator, or a block of several, to the pool and gives its name."""
    if growth.draw.chance(0.2):
        name = growth.draw.choice(tuple(BLOCKS))
        growth.pool.append(BLOCKS[name](growth))
    else:
        name = growth.draw.choice(tuple(GROWERS))
        growth.pool.append(GROWERS[name](growth, name))
    return name
