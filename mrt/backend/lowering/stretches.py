"""A batch in stretches: each part of the network runs for as many samples at once as suit it (see `batches`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
from tvm import relax

from mrt.backend.batches import Traffic, stretches
from mrt.backend.link.program import Given, Made, Part, Program, bytes_of, bytes_type, placed
from mrt.backend.lowering.plan_calls import Call, PlannedCalls
from mrt.backend.lowering.region import Copy
from mrt.backend.memory.alignment import Shelf
from mrt.backend.memory.storage import Storage
from mrt.backend.rewrites.known_bounds import Bounds
from mrt.errors import GraphError
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.rebatch import Rebatch, batch_of

Plan = Callable[[Graph, Bounds], PlannedCalls]
"""The planned calls of a graph, of whose tensors some intervals are known."""
Place = tuple[str, int]
"""A tensor by what all plans of a network have in common: an input by its name, or what is made by its number."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """Calls that follow each other, for `samples` at once. places: of the tensors that they and their graph know."""

    samples: int
    calls: Sequence[Call]
    places: Mapping[Any, Place]


@dataclass(frozen=True, eq=False)
class StretchedCalls:
    """graph: of the whole batch. stretches: in order. results: what each output is, as the last stretch knows it, and
    how it lies."""

    graph: Graph
    stretches: Sequence[Stretch]
    results: Sequence[tuple[Any, Storage]]


def in_stretches(graph: Graph, known: Bounds, plan: Plan, near: int) -> StretchedCalls | None:
    """The calls of a graph by stretches; None where all samples at once are as good, or the only way.

    known: intervals of its tensors. near: bytes of a cache beyond which data is far.
    """
    batch = batch_of(graph)
    try:
        # For one sample none of what is planned is compiled, unless a stretch takes it.
        single = _planned(graph, 1, known, plan)
    except GraphError:
        return None
    if any(call.written in single.graph.inputs for call in single.calls):
        return None  # a state that is changed where it lies, of all samples
    sizes = stretches(_traffic(single), batch, near)
    if set(sizes) <= {batch}:
        return None
    plans = {size: single if size == 1 else _planned(graph, size, known, plan) for size in sorted({*sizes})}
    places = {size: _places(made) for size, made in plans.items()}
    forms = [_form(made, places[size], size) for size, made in plans.items()]
    if any(each is None or each != forms[0] for each in forms):
        return None
    found, first = [], 0
    for size, group in groupby(sizes):
        count = len(list(group))
        found.append(Stretch(size, plans[size].calls[first : first + count], places[size]))
        first += count
    return StretchedCalls(graph, found, plans[sizes[-1]].results)


def _planned(graph: Graph, samples: int, known: Bounds, plan: Plan) -> PlannedCalls:
    """The plan of the graph for so many samples. What holds for each of a batch holds for these."""
    sized, found = Rebatch(samples)(graph), dict(known)
    for symbol in sized.symbols:
        held = known.get(symbol.name)
        if held is not None and held.shape != symbol.shape:
            lo, hi = held.lo.min(axis=0, keepdims=True), held.hi.max(axis=0, keepdims=True)
            found[symbol.name] = Interval(lo, hi, symbol.shape)
    return plan(sized, found)


def _traffic(plan: PlannedCalls) -> list[Traffic]:
    """Of each call of a plan for one sample."""
    sizes: dict[Any, int] = {symbol: _bytes(Storage.plain(symbol.type)) for symbol in plan.graph.inputs}
    found = []
    for call in plan.calls:
        made = {result: _bytes(storage) for result, storage in zip(call.results, call.storages, strict=True)}
        read = [each for each in call.arguments if isinstance(each, (Symbol, Copy))]
        weights = [each.value for each in call.arguments if not isinstance(each, (Symbol, Copy))]
        kept = sum(math.prod(each.shape) * np.dtype(str(each.dtype)).itemsize for each in weights)
        found.append(Traffic(kept, sum(sizes[each] for each in read) + sum(made.values())))
        sizes |= made
    return found


def _bytes(storage: Storage) -> int:
    return math.prod(storage.shape) * np.dtype(storage.dtype).itemsize


def _places(plan: PlannedCalls) -> dict[Any, Place]:
    """Where each tensor lies: what is written over another has its place."""
    places: dict[Any, Place] = {symbol: (symbol.name, -1) for symbol in plan.graph.inputs}
    count = 0
    for call in plan.calls:
        for result in call.results:
            is_over = result is call.results[-1] and call.written is not None
            places[result] = places[call.written] if is_over else places.get(result, ("", count))
            count += 1
    return places


def _form(plan: PlannedCalls, places: Mapping[Any, Place], samples: int) -> Any:
    """What two plans must have in common to be parts of one; None where samples do not lie one behind the other."""
    storages = [storage for call in plan.calls for storage in call.storages]
    storages += [storage for _, storage in plan.results]
    for storage in storages:
        if storage.type.shape[:1] != (samples,) or storage.order[0] != 0 or storage.before[0] or storage.after[0]:
            return None
    single = [replace(each, type=each.type.with_shape((1, *each.type.shape[1:]))) for each in storages]
    calls = [
        (
            [places.get(each) for each in call.arguments if isinstance(each, (Symbol, Copy))],
            [places[result] for result in call.results],
        )
        for call in plan.calls
    ]
    return single, calls, [places.get(result) for result, _ in plan.results]


def program_of(stretched: StretchedCalls, constants: Shelf) -> Program:
    """What a function does that makes the calls; their functions are variables of the module, by name."""
    graph = stretched.graph
    types = [relax.TensorType(list(symbol.shape), symbol.dtype) for symbol in graph.inputs]
    program = Program([Given(place, type) for place, type in enumerate(types)])
    writer = _Writer(stretched, constants, program)
    writer.write()
    last = stretched.stretches[-1].places
    for result, _ in stretched.results:
        program.give(writer.output(last[result]) if isinstance(result, (Symbol, Copy)) else result)
    program.plan()
    return program


@dataclass(eq=False)
class _Writer:
    """Adds to a program the calls of all samples: of each stretch once those before it have its samples ready."""

    stretched: StretchedCalls
    constants: Shelf
    program: Program
    sizes: dict[Place, int] = field(default_factory=dict)
    """Bytes of a sample."""
    needed: dict[Place, int] = field(default_factory=dict)
    """The last stretch that knows a tensor; that behind all of them where it is an output."""
    outputs: dict[Place, Any] = field(default_factory=dict)
    """The types of outputs."""
    made: dict[tuple[Place, int], Made] = field(default_factory=dict)
    """The memory of a tensor, and of which sample on."""

    def __post_init__(self) -> None:
        for level, stretch in enumerate(self.stretched.stretches):
            for call in stretch.calls:
                for each in (*call.arguments, *call.results):
                    if isinstance(each, (Symbol, Copy)):
                        self.needed[stretch.places[each]] = level
                for result, storage in zip(call.results, call.storages, strict=True):
                    self.sizes.setdefault(stretch.places[result], _bytes(storage) // stretch.samples)
        last, batch = self.stretched.stretches[-1].places, batch_of(self.stretched.graph)
        for result, storage in self.stretched.results:
            if isinstance(result, (Symbol, Copy)):
                self.needed[last[result]] = len(self.stretched.stretches)
                self.outputs[last[result]] = relax.TensorType([batch, *storage.shape[1:]], storage.dtype)

    def write(self) -> None:
        for stretch, sample in self._turns():
            for call in stretch.calls:
                held = [self._argument(stretch, each, sample) for each in call.arguments]
                results = [self._memory(stretch.places[each], sample) for each in call.results]
                self.program.call(call.function.name_hint, [*held, *results])

    def _turns(self) -> Iterator[tuple[Stretch, int]]:
        """Each stretch with the sample that it begins with, in the order in which they run."""
        found = self.stretched.stretches
        for end in range(1, batch_of(self.stretched.graph) + 1):
            yield from ((each, end - each.samples) for each in found if end % each.samples == 0)

    def _argument(self, stretch: Stretch, argument: Any, sample: int) -> Any:
        if not isinstance(argument, (Symbol, Copy)):
            return placed(argument.value, self.constants)
        name, number = place = stretch.places[argument]
        if number >= 0:
            return self._memory(place, sample)
        given = self._input(name)
        return Part(given, sample * bytes_of(given.type) // batch_of(self.stretched.graph))

    def _memory(self, place: Place, sample: int) -> Part:
        """A tensor from a sample on, whose memory holds those of the last stretch that reads it."""
        level, together = self.needed[place], batch_of(self.stretched.graph)
        if level < len(self.stretched.stretches):
            together = self.stretched.stretches[level].samples
        first = sample - sample % together
        if (place, first) not in self.made:
            type = self.outputs.get(place) or bytes_type(together * self.sizes[place])
            self.made[place, first] = self.program.make(type)
        return Part(self.made[place, first], (sample - first) * self.sizes[place])

    def output(self, place: Place) -> Any:
        """The memory of an output for all samples, an input where it is one."""
        name, number = place
        return self._input(name) if number < 0 else self.made[place, 0]

    def _input(self, name: str) -> Given:
        names = [symbol.name for symbol in self.stretched.graph.inputs]
        return self.program.inputs[names.index(name)]
