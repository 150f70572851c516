"""A rule: steps of a chain that become fewer, or the reason why they do not."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mrt.simplification.chain import Add, Chain, Multiply, Round, Step, Store, Sum, are_integers
from mrt.symbol import Interval


@dataclass(frozen=True, eq=False)
class Known:
    """A chain of integers with what is proven of it.

    intervals: after so many steps; None in the middle of what is one operator.
    """

    chain: Chain
    intervals: Sequence[Interval | None]

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.chain.steps

    def holds_integers(self, index: int) -> bool:
        """Whether the elements before step `index` are proven to be integers."""
        integer = True
        for step in self.steps[:index]:
            match step:
                case Round() | Store():
                    integer = True
                case Multiply(factor=values) | Add(term=values) | Sum(factor=values):
                    integer = integer and are_integers(values)
        return integer


Outcome = Chain | str | None
"""The chain that a rule makes, the reason why it leaves one alone that it might have changed, or nothing to say."""


@dataclass(frozen=True)
class Rule(ABC):
    """Base of rules. A rule's chain gives the same elements; the pass proves that it fits, and that it is shorter."""

    @property
    def name(self) -> str:
        """The name in notes: MergeProducts is `merge products`."""
        return re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__).lower()

    @abstractmethod
    def apply(self, known: Known, at: int) -> Outcome:
        """The rule at step `at`, the first one that it looks at."""
