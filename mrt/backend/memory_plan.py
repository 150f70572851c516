"""Where the tensors of a compiled graph lie, and from which call to which each is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrt.backend.link.workspace import Lifetime, plan_memory
from mrt.backend.lowering.plan_calls import PlannedCalls, plan_calls
from mrt.backend.lowering.region import Copy
from mrt.backend.machine import Machine
from mrt.backend.memory.alignment import aligned
from mrt.backend.memory.storage import Storage
from mrt.backend.rewrites.known_bounds import bounds_of_inputs
from mrt.compilation import NATIVE, Target
from mrt.symbol import Graph, Symbol
from mrt.symbol.quantized_tensor import TensorQuantization


@dataclass(frozen=True)
class PlacedTensor:
    """A piece of memory that calls `first` to `last`, both included, need.

    names: of the tensors that lie there, each written over the one before. storage: how the first one lies. size: in
    bytes. offset: in the workspace, or in the memory of all outputs where `is_output`.
    """

    names: tuple[str, ...]
    storage: Storage
    size: int
    offset: int
    first: int
    last: int
    is_output: bool


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """tensors: in the order in which they are made. workspace, outputs: bytes of the memory of the tensors in between,
    which lie over each other where they are not needed at once, and of that of the outputs. separate: what the tensors
    in between would take side by side. alive: at each call, the bytes of those that are needed."""

    tensors: tuple[PlacedTensor, ...]
    workspace: int
    outputs: int
    separate: int
    alive: tuple[int, ...]


@dataclass(eq=False)
class _Piece:
    names: list[str]
    storage: Storage
    first: int
    last: int
    is_output: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.storage.shape)) * np.dtype(self.storage.dtype).itemsize


def memory_plan_of(graph: Graph, inputs: Sequence[TensorQuantization], target: Target = NATIVE) -> MemoryPlan:
    """The plan of `graph`, whose inputs are `inputs`, as it is compiled for `target`; CompilationError if it cannot
    be."""
    machine = Machine.of(target)
    return memory_plan(plan_calls(graph, machine, lambda key, name, make: name, {}, bounds_of_inputs(inputs)))


def memory_plan(plan: PlannedCalls) -> MemoryPlan:
    """Where the results of planned calls lie, by the planner that compiled functions are linked with."""
    pieces = _pieces(plan)
    inner, given = ([each for each in pieces if each.is_output is wanted] for wanted in (False, True))
    offsets, workspace = plan_memory([Lifetime(each.size, each.first, each.last) for each in inner])
    places, outputs = dict(zip(map(id, inner), offsets, strict=True)), 0
    for each in given:
        places[id(each)] = outputs
        outputs += aligned(each.size)
    alive = np.zeros(len(plan.calls), np.int64)
    for each in inner:
        alive[each.first : each.last + 1] += aligned(each.size)
    return MemoryPlan(
        tuple(
            PlacedTensor(tuple(p.names), p.storage, p.size, places[id(p)], p.first, p.last, p.is_output) for p in pieces
        ),
        workspace,
        outputs,
        sum(aligned(each.size) for each in inner),
        tuple(alive.tolist()),
    )


def _pieces(plan: PlannedCalls) -> list[_Piece]:
    """The memory that calls write, in order; what is written over another lies where that does."""
    found: dict[Any, _Piece] = {}
    pieces: list[_Piece] = []
    given = {result for result, _ in plan.results}
    for step, call in enumerate(plan.calls):
        for argument in call.arguments:
            if isinstance(argument, (Symbol, Copy)) and argument in found:
                found[argument].last = max(found[argument].last, step)
        for result, storage in zip(call.results, call.storages, strict=True):
            over = found.get(call.written) if result is call.results[-1] and call.written is not None else None
            if over is None:
                over = _Piece([], storage, step, step)
                pieces.append(over)
            over.names.append(result.symbol.name if isinstance(result, Copy) else result.name)
            over.last, over.is_output = max(over.last, step), over.is_output or result in given
            found[result] = over
    return pieces
