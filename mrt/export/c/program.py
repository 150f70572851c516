"""An integer graph as a program: calls of kernels in order, on tensors that each have a place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrt.backend.fusion.regions import Region, find_regions
from mrt.backend.rewrites.assigned_values import AssignedValues
from mrt.backend.rewrites.merge_slices import MergeSlices
from mrt.backend.te.registry import Kind, kind_of
from mrt.export.c.kernels import Kernel, write_kernel
from mrt.export.c.memory import Lifetime, plan_offsets
from mrt.export.description import stated_states
from mrt.symbol import Array, Graph, Symbol

WORKSPACE = "instance->workspace"
"""The union, with a member for each dtype, that holds the tensors between the inputs and the outputs."""
STATE = "instance->state"
"""What is followed by the number of a state, of what holds it."""


@dataclass(frozen=True)
class Call:
    """A call of a kernel for the value of `output`. arguments: C expressions of pointers."""

    kernel: Kernel
    arguments: tuple[str, ...]
    output: Symbol


@dataclass(frozen=True)
class Copy:
    """`size` elements, from one pointer to another, both C expressions."""

    source: str
    target: str
    size: int


@dataclass(frozen=True, eq=False)
class Parameter:
    """An array of the program, of rank 1, and the graph's parameters that it is the value of."""

    name: str
    value: Array
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True)
class Program:
    """What a graph does, call by call. The inputs that are no states are called input0, input1, …, the outputs that set
    none output0, output1, ….

    kernels: the functions that are called, each once. copies: what fills outputs that no call computes, and then the
    states, after all calls. workspace_bytes: the size of the workspace. inputs, outputs: the places in the graph of
    those that are called so.
    """

    kernels: tuple[Kernel, ...]
    parameters: tuple[Parameter, ...]
    calls: tuple[Call, ...]
    copies: tuple[Copy, ...]
    workspace_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def parameter_bytes(self) -> int:
        return sum(parameter.value.nbytes for parameter in self.parameters)


@dataclass(frozen=True)
class _Step:
    """One region and its kernel. reads: what the kernel reads, views followed to what they show."""

    kernel: Kernel
    reads: tuple[Symbol, ...]
    output: Symbol


def make_program(graph: Graph) -> Program:
    """The program of an integer graph, each of whose operators has a compute.

    Parameters that are equal are one. A reshape is no call: it shows what it reads. Tensors that are neither inputs,
    outputs nor parameters share the workspace by the steps at which they are needed; what a state holds next is one of
    them, until all calls are done.
    Raises CompilationError where a kernel cannot be made.
    """
    pairs = stated_states(graph)
    graph = MergeSlices()(AssignedValues()(graph))
    states = {pair.input: pair.output for pair in pairs}
    fed = tuple(place for place in range(len(graph.inputs)) if place not in states)
    shown = tuple(place for place in range(len(graph.outputs)) if place not in states.values())
    kept = [(f"{STATE}{i}", graph.outputs[pair.output]) for i, pair in enumerate(pairs)]
    steps = _live(_steps(graph), graph)
    computed = {step.output for step in steps}
    outputs = [(f"output{i}", graph.outputs[place]) for i, place in enumerate(shown)]
    given = {symbol: name for name, symbol in reversed(outputs) if symbol in computed}
    given |= {graph.inputs[place]: f"input{i}" for i, place in enumerate(fed)}
    given |= {graph.inputs[pair.input]: f"{STATE}{i}" for i, pair in enumerate(pairs)}
    parameters = _parameters(graph, (*(symbol for step in steps for symbol in step.reads), *graph.outputs))
    given |= {symbol: parameter.name for parameter in parameters for symbol in parameter.symbols}
    # A state that another one is to hold next is copied before it changes.
    moved = list(dict.fromkeys(s for name, s in kept if given.get(s, name).startswith(STATE) and given.get(s) != name))
    inner, scratch, before, workspace_bytes = _plan_workspace(steps, given, {s for _, s in kept}, moved)
    places = given | inner
    calls = tuple(
        Call(step.kernel, (*(places[source] for source in step.reads), places[step.output], *buffers), step.output)
        for step, buffers in zip(steps, scratch, strict=True)
    )
    copies = [Copy(places[s], name, s.type.size) for name, s in outputs if places[s] != name]
    copies += [Copy(places[s], before[s], s.type.size) for s in moved]
    copies += [Copy(before.get(s, places[s]), name, s.type.size) for name, s in kept if places[s] != name]
    kernels = {step.kernel.name: step.kernel for step in steps}
    return Program(tuple(kernels.values()), parameters, calls, tuple(copies), workspace_bytes, fed, shown)


def _steps(graph: Graph) -> list[_Step]:
    """The regions in order with their kernels; those of the same structure share one."""
    kernels: dict[Any, Kernel] = {}
    views: dict[Symbol, Symbol] = {}
    steps = []
    for region in find_regions(graph):
        sources = [views.get(source, source) for source in region.inputs]
        if _is_view(region, graph):
            views[region.output] = sources[0]
            continue
        key = region.structure
        if key not in kernels:
            kernels[key] = write_kernel(region, f"{region.symbols[0].op.strip('_').lower()}_{len(kernels)}")
        kernel = kernels[key]
        steps.append(_Step(kernel, tuple(sources[i] for i in kernel.reads), region.output))
    return steps


def _is_view(region: Region, graph: Graph) -> bool:
    """Whether a region only reshapes a tensor that is no output of the graph."""
    (first, *others) = region.symbols
    return not others and kind_of(first) is Kind.RESHAPE and first not in graph.outputs


def _live(steps: list[_Step], graph: Graph) -> list[_Step]:
    """The steps that an output needs; some operators read no more of a tensor than its shape."""
    needed, live = set(graph.outputs), []
    for step in reversed(steps):
        if step.output in needed:
            live.append(step)
            needed.update(step.reads)
    return live[::-1]


def _parameters(graph: Graph, read: Iterable[Symbol]) -> tuple[Parameter, ...]:
    """The parameters among the symbols that are read, equal arrays as one."""
    found: dict[Any, list[Symbol]] = {}
    for symbol in dict.fromkeys(read):
        value = graph.value(symbol)
        if value is not None:
            found.setdefault((value.dtype.name, value.size, value.tobytes()), []).append(symbol)
    return tuple(
        Parameter(f"parameter{i}", np.ravel(graph.parameters[symbols[0].name]), tuple(symbols))
        for i, symbols in enumerate(found.values())
    )


def _plan_workspace(
    steps: Sequence[_Step], given: Collection[Symbol], kept: Collection[Symbol], moved: Sequence[Symbol]
) -> tuple[dict[Symbol, str], list[list[str]], dict[Symbol, str], int]:
    """The places of results that have none `given`, those of each step's buffers, and the size of the workspace.

    kept: results that are needed after all steps. moved: tensors that get a further place after all steps; these
    places come before the size.
    """
    end = len(steps)
    inner = {step.output: i for i, step in enumerate(steps) if step.output not in given}
    last = {source: i for i, step in enumerate(steps) for source in step.reads} | dict.fromkeys(kept, end)
    buffers = [(i, buffer) for i, step in enumerate(steps) for buffer in step.kernel.scratch]
    dtypes = [*(symbol.dtype for symbol in inner), *(s.dtype for s in moved), *(buffer.dtype for _, buffer in buffers)]
    lifetimes = [Lifetime(_bytes(symbol.dtype, symbol.type.size), i, last[symbol]) for symbol, i in inner.items()]
    lifetimes += [Lifetime(_bytes(symbol.dtype, symbol.type.size), end, end) for symbol in moved]
    lifetimes += [Lifetime(_bytes(buffer.dtype, buffer.size), i, i) for i, buffer in buffers]
    offsets, total = plan_offsets(lifetimes)
    places = [
        f"{WORKSPACE}.of_{dtype} + {offset // _bytes(dtype, 1)}" for dtype, offset in zip(dtypes, offsets, strict=True)
    ]
    scratch: list[list[str]] = [[] for _ in steps]
    for (i, _), place in zip(buffers, places[len(inner) + len(moved) :], strict=True):
        scratch[i].append(place)
    before = dict(zip(moved, places[len(inner) :], strict=False))
    return dict(zip(inner, places, strict=False)), scratch, before, total


def _bytes(dtype: str, size: int) -> int:
    return np.dtype(dtype).itemsize * size
