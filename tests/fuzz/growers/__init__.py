"""The operators that may stand in an integer graph, each with how it is grown: one file a family."""

from tests.fuzz.growers import arrangement, elementwise, products, reductions  # noqa: F401
from tests.fuzz.growers.registry import GROWERS, grow

__all__ = ["GROWERS", "grow"]
