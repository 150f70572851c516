"""What is known of tensors before their readers are looked at: one table a fact, each filled as a whole by one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mrt.calibration import Range
from mrt.errors import QuantizationError
from mrt.quantization.constant_grids import ConstantGrid
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.channel_split import ChannelSplit
from mrt.quantization.plan.parts import Parts
from mrt.quantization.quantizer import Target
from mrt.quantization.tensor_plan import QuantizerOptions
from mrt.symbol import Graph


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts found so far, by the name of the tensor; QuantizationError where one is read that no pass has filled.

    graph: the prepared float graph, its quantized constants as parameters. calibrated: the ranges that calibration
    found. constants: the integers of parameters that came quantized. tables: by the name of the fact. left_alone: what
    passes left as it was although the options ask for more, and why.
    """

    graph: Graph
    config: QuantizationConfig
    calibrated: Mapping[str, Range]
    constants: Mapping[str, ConstantGrid]
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    left_alone: tuple[str, ...] = ()

    @property
    def fixed(self) -> Mapping[str, Target]:
        """The forms that trained quantization gives, of the tensors that have one."""
        return self._table("fixed")

    @property
    def ranges(self) -> Mapping[str, Range]:
        """The real values that each tensor takes."""
        return self._table("ranges")

    @property
    def never_negative(self) -> Mapping[str, bool]:
        """Whether each tensor is proven to stay at or above zero."""
        return self._table("never_negative")

    @property
    def options(self) -> Mapping[str, QuantizerOptions]:
        """What is asked of each tensor's quantizer."""
        return self._table("options")

    @property
    def states(self) -> Mapping[str, Target]:
        """The quantizers of states, by their inputs and by the outputs that they hold next."""
        return self._table("states")

    @property
    def held(self) -> Mapping[str, Target]:
        """The quantizers of states, by these and by what only moves what they hold."""
        return self._table("held")

    @property
    def own(self) -> Mapping[str, Target]:
        """The quantizer of each tensor's whole range, with one scale."""
        return self._table("own")

    @property
    def parts(self) -> Mapping[str, Parts]:
        """The tensors that are joined of others, and what keeps the parts apart behind."""
        return self._table("parts")

    @property
    def part_splits(self) -> Mapping[str, ChannelSplit]:
        """The tensors that are joined of parts which keep scales of their own."""
        return self._table("part_splits")

    @property
    def splits(self) -> Mapping[str, ChannelSplit]:
        """The tensors that have channel groups."""
        return self._table("splits")

    def _table(self, fact: str) -> Mapping[str, Any]:
        if fact not in self.tables:
            raise QuantizationError(f"planning reads {fact}, which no pass has filled yet; order the passes otherwise")
        return self.tables[fact]


def _nothing(facts: Facts) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class FactPass:
    """Finds one fact of all tensors that have it.

    fills: the name of the fact. find: its table, by the name of the tensor. requires: the facts that `find` reads.
    left_alone: what it left as it was although the options ask for more, and why; told once the table is filled.
    """

    fills: str
    find: Callable[[Facts], Mapping[str, Any]]
    requires: tuple[str, ...] = ()
    left_alone: Callable[[Facts], tuple[str, ...]] = _nothing

    def run(self, facts: Facts) -> Facts:
        """The facts with this one; QuantizationError where one that it requires is missing, or this one is there."""
        missing = [fact for fact in self.requires if fact not in facts.tables]
        if missing or self.fills in facts.tables:
            found = f"needs {', '.join(missing)}, which no pass has filled" if missing else "is filled twice"
            raise QuantizationError(f"planning: {self.fills} {found}; order the passes otherwise")
        filled = replace(facts, tables={**facts.tables, self.fills: self.find(facts)})
        return replace(filled, left_alone=(*facts.left_alone, *self.left_alone(filled)))


def run_fact_passes(facts: Facts, passes: Sequence[FactPass]) -> Facts:
    """Runs passes in order."""
    for step in passes:
        facts = step.run(facts)
    return facts
