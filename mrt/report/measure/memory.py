"""The memory plan of a compiled network as a report tells it."""

from __future__ import annotations

from collections.abc import Mapping

from mrt.backend.memory_plan import MemoryPlan as Planned
from mrt.backend.memory_plan import PlacedTensor
from mrt.report.facts import MemoryPlan, PlannedTensor
from mrt.symbol import Graph

MOST_TENSORS = 300
"""That are told; more cannot be told apart."""
MOST_CALLS = 4000
"""So many functions whose bytes are told one by one."""


def memory_facts(found: Planned, graph: Graph, place_of: Mapping[str, int], most: int = MOST_TENSORS) -> MemoryPlan:
    """graph: the integer network. place_of: the layer of its symbols by name. most: tensors that are told."""
    largest = sorted(range(len(found.tensors)), key=lambda i: -found.tensors[i].size)[:most]
    peak = max(found.alive, default=0)
    return MemoryPlan(
        arena=found.workspace,
        parameters=sum(value.nbytes for value in graph.parameters.values()),
        separate=found.separate,
        outputs=found.outputs,
        alive=list(found.alive) if len(found.alive) <= MOST_CALLS else [],
        peak=peak,
        peak_at=found.alive.index(peak) if found.alive else None,
        tensors=[_tensor(found.tensors[i], place_of) for i in sorted(largest)],
        tensor_count=len(found.tensors),
    )


def _tensor(tensor: PlacedTensor, place_of: Mapping[str, int]) -> PlannedTensor:
    return PlannedTensor(
        names=list(tensor.names),
        layer=next((place_of[name] for name in tensor.names if name in place_of), None),
        dtype=str(tensor.storage.dtype),
        shape=list(tensor.storage.shape),
        bytes=tensor.size,
        offset=tensor.offset,
        first=tensor.first,
        last=tensor.last,
        is_output=tensor.is_output,
    )
