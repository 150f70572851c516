"""The seconds that each function of a compiled graph takes, one called after the other, beside what they are made of.

A call is measured by itself, so that it finds in the caches what the functions before it left there; the least of
several runs is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from mrt.backend.kernels.x86.amx.instructions import needs_tiles, tile_request
from mrt.backend.link.kernel_compiler import GROUP, in_memory
from mrt.backend.lowering.plan_calls import Call, PlannedCalls, plan_calls
from mrt.backend.lowering.region import Copy
from mrt.backend.machine import Machine
from mrt.backend.memory_plan import MemoryPlan, memory_plan
from mrt.backend.peak import Peak
from mrt.backend.rewrites.known_bounds import Bounds
from mrt.backend.schedule.tilings import schedule_by_rule
from mrt.errors import CompilationError
from mrt.quantization.cost import elements, multiplications
from mrt.symbol import Array, Symbol
from mrt.symbol.graph import Graph
from mrt.workers import in_order


@dataclass(frozen=True, eq=False)
class MeasuredCall:
    """A call, the products that it forms, its seconds (None: not measured), and those that the products take at the
    peak (None: no peak)."""

    call: Call
    products: int
    seconds: float | None
    at_peak: float | None

    @property
    def symbols(self) -> Sequence[Symbol]:
        """What it computes; nothing for a copy."""
        return self.call.lowered.region.symbols if self.call.lowered else ()


@dataclass(frozen=True, eq=False)
class Profile:
    """calls: in order. plan: what they are of. memory: where their results lie."""

    plan: PlannedCalls
    calls: Sequence[MeasuredCall]
    memory: MemoryPlan


def profile(
    graph: Graph, known: Bounds, machine: Machine, runs: int, peak: Peak | None = None, share: float = 1.0
) -> Profile:
    """Compiles a graph for a machine that is this one, and measures each of its functions.

    known: bounds of the graph's inputs, by name. peak: with which functions that form products are measured in turns.
    share: how many of the functions are compiled and measured, those whose calls form most products, or of those that
    form as many, give most values; at least one.
    Raises CompilationError where TVM fails, or where this process does not get the tile registers that the code uses.
    """
    made: dict[Any, tuple[str, Callable[[Any], Any]]] = {}

    def add_function(key: Any, name: str, make: Callable[[Any], Any]) -> str:
        if key not in made:
            made[key] = f"{name}_{len(made)}", make
        return made[key][0]

    plan = plan_calls(graph, machine, add_function, {}, known)
    products = [sum(map(_products, call.lowered.region.symbols)) if call.lowered else 0 for call in plan.calls]
    chosen = _chosen(plan, products, share)
    written = {name: make(schedule_by_rule) for name, make in made.values() if name in chosen}
    functions = compiled_functions(written, machine)
    steps = _steps(plan, functions, known)
    times, loops = _times(steps, products, runs, peak)
    calls = [
        MeasuredCall(call, count, seconds, count / peak.products * loop if peak and count and seconds else None)
        for call, count, seconds, loop in zip(plan.calls, products, times, loops, strict=True)
    ]
    return Profile(plan, calls, memory_plan(plan))


def _chosen(plan: PlannedCalls, products: Sequence[int], share: float) -> set[str]:
    """The names of the functions that are measured."""
    weights: dict[str, tuple[int, int]] = {}
    for call, count in zip(plan.calls, products, strict=True):
        values = sum(int(np.prod(storage.shape)) for storage in call.storages)
        before = weights.get(call.function, (0, 0))
        weights[call.function] = before[0] + count, before[1] + values
    ranked = sorted(weights, key=lambda name: weights[name], reverse=True)
    return set(ranked[: max(int(share * len(ranked)), 1)])


Step = tuple[Callable[..., Any] | None, Sequence[Any]]
"""A function, None for one that is not measured, and what it is given."""


def _products(symbol: Symbol) -> int:
    """Of all samples of a symbol."""
    each = multiplications(symbol)
    return each * (symbol.type.size // elements(symbol)) if each else 0


def _steps(plan: PlannedCalls, functions: Mapping[str, Any], known: Bounds) -> list[Step]:
    """Every call with what it is given; inputs of the graph hold numbers by chance."""
    random = np.random.default_rng(0)
    memory: dict[Any, Any] = {symbol: tvm.runtime.tensor(_fed(symbol, known, random)) for symbol in plan.graph.inputs}
    steps: list[Step] = []
    for call in plan.calls:
        if call.written is not None:
            memory.setdefault(call.results[-1], memory.get(call.written))
        for result, storage in zip(call.results, call.storages, strict=True):
            if memory.get(result) is None:
                memory[result] = tvm.runtime.tensor(np.zeros(storage.shape, storage.dtype))
        given = [memory[each] if isinstance(each, (Symbol, Copy)) else each.value for each in call.arguments]
        steps.append((functions.get(call.function), [*given, *(memory[result] for result in call.results)]))
    return steps


def _fed(symbol: Symbol, known: Bounds, random: np.random.Generator) -> Array:
    """Numbers for an input of a graph: integers within its bounds, or floats."""
    if symbol.name not in known:
        return random.standard_normal(symbol.shape).astype(symbol.dtype)
    bounds = known[symbol.name]
    return random.integers(bounds.lo, bounds.hi, symbol.shape, endpoint=True).astype(symbol.dtype)


def _times(
    steps: Sequence[Step], products: Sequence[int], runs: int, peak: Peak | None
) -> tuple[list[float | None], list[float]]:
    """The least seconds of each call that is measured, and of a loop of the peak behind it."""
    times, loops = ([float("inf")] * len(steps) for _ in range(2))
    for run in range(2 * (runs + 1)):
        if run % 2 and peak is None:
            continue
        for place, (function, given) in enumerate(steps):
            if function is None:
                continue
            began = time.perf_counter()
            function(*given)
            if run % 2 == 0:
                times[place] = min(times[place], time.perf_counter() - began)
            elif products[place] and peak is not None:
                loops[place] = min(loops[place], peak.call())
    return [None if np.isinf(seconds) else seconds for seconds in times], loops


def compiled_functions(functions: Mapping[str, Any], machine: Machine) -> Mapping[str, Any]:
    """The PrimFuncs by name, compiled on all cores; the process has the registers that they use."""
    every = dict(functions)
    asks = any(needs_tiles(function) for function in functions.values())
    if asks:
        every["request"] = tile_request()
    names = list(every)
    groups = [{name: every[name] for name in names[first : first + GROUP]} for first in range(0, len(names), GROUP)]
    modules = in_order(lambda group: in_memory(group, machine.target), groups)
    compiled = {name: module[name] for group, module in zip(groups, modules, strict=True) for name in group}
    if asks:
        answer = tvm.runtime.tensor(np.zeros(1, np.int32))
        compiled["request"](answer)
        if answer.numpy().any():
            raise CompilationError("this process does not get the tile registers that the code uses")
    return {name: compiled[name] for name in functions}
