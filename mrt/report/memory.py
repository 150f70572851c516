"""The memory plan of a saved model, for a terminal: a row for each piece of memory, and where most is needed."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.backend.explain import explain
from mrt.backend.memory_plan import memory_plan_of
from mrt.compilation import Target
from mrt.messages import counted
from mrt.model import QuantizedModel
from mrt.report.facts import MemoryPlan
from mrt.report.inspect import shown
from mrt.report.measure.memory import memory_facts
from mrt.report.table import aligned

COLUMNS = ("tensor", "dtype", "shape", "bytes", "offset", "from", "to", "")
NUMBERS = frozenset({"bytes", "offset", "from", "to"})
WIDEST = 48
"""Characters of a name."""
AT_PEAK, OUTPUT = "at the peak", "output"


def memory_text(model: QuantizedModel, target: Target) -> str:
    """Every piece of memory of a run of one sample, in the order in which they are made, and below it the whole."""
    single = model.rebatched(1)
    plan = memory_plan_of(single.graph, single.inputs, target)
    facts = memory_facts(plan, single.graph, {}, len(plan.tensors))
    calls = explain(single.graph, single.inputs, target).calls
    holder = "" if facts.peak_at is None else ", ".join(map(shown, calls[facts.peak_at].outputs))
    return f"{aligned(memory_lines(facts), NUMBERS)}\n\n{_overview(facts, holder)}"


def memory_lines(plan: MemoryPlan) -> list[tuple[str, ...]]:
    """The header and a line for each piece of memory."""
    return [COLUMNS, *(_cells(place, plan) for place in range(len(plan.tensors)))]


def _cells(place: int, plan: MemoryPlan) -> tuple[str, ...]:
    tensor = plan.tensors[place]
    at_peak = plan.peak_at is not None and tensor.first <= plan.peak_at <= tensor.last
    where = OUTPUT if tensor.is_output else AT_PEAK if at_peak else ""
    numbers = (tensor.bytes, tensor.offset, tensor.first, tensor.last)
    return (_names(tensor.names), tensor.dtype, "×".join(map(str, tensor.shape)), *map(str, numbers), where)


def _names(names: Sequence[str]) -> str:
    first = shown(names[0]) if len(names[0]) <= WIDEST else f"{shown(names[0])[: WIDEST - 1]}…"
    return first if len(names) == 1 else f"{first} and {len(names) - 1} over it"


def _overview(plan: MemoryPlan, holder: str) -> str:
    held = f"the most at once {plan.peak}, at call {plan.peak_at} ({holder})" if plan.peak else "nothing in between"
    return (
        f"{counted(len(plan.alive), 'call')} of one sample; tensors in between: {plan.arena} bytes, {held}; each in a "
        f"place of its own: {plan.separate}; outputs: {plan.outputs}; parameters: {plan.parameters}"
    )
