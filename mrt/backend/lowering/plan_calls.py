"""Which functions a graph calls, in which order, and in which memory each result lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm import relax, te

from mrt.backend.fusion import partition
from mrt.backend.fusion.regions import Region
from mrt.backend.layout.in_place import in_place, last_readers
from mrt.backend.layout.layouts import Layouts
from mrt.backend.layout.plan import plan_layouts, read_along, requested_storage
from mrt.backend.lowering.region import Copy, LoweredRegion, scheduled_function, storing_function
from mrt.backend.machine import Machine
from mrt.backend.memory.alignment import tensor_of
from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import VECTOR, Storage, View, Walk, padded_length
from mrt.backend.rewrites import apply_rewrites
from mrt.backend.rewrites.known_bounds import Bounds
from mrt.backend.schedule.tilings import Scheduler
from mrt.backend.te.operands import Packed, Surroundings
from mrt.backend.te.packing import form_computed, pack_parameter
from mrt.backend.te.registry import has_compute, joined_axis, layout_request_of
from mrt.errors import CompilationError
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.passes import Refusal

AddFunction = Callable[[Any, str, Callable[[Scheduler], Any]], Any]
"""Of a key, a name and what makes the function, gives the function; equal keys have equal functions."""
Constants = dict[Any, tuple[list[Any], Array | None]]
"""Relax's constants by the parameter and how it is packed, and the parameter."""
Put = Callable[[Array], Any]
"""Gives TVM's tensor of a copy of an array."""


@dataclass(frozen=True, eq=False)
class Call:
    """The call of a PrimFunc that gives `results`, tensors or copies, in `storages`. arguments: tensors, constants.

    lowered: what the function was made from, None for one that copies. written: the tensor in whose memory the last
    result is written, as a Concat of which others have written other parts, or a tensor that is not read again. The
    function takes that memory as its result only.
    """

    function: Any
    arguments: list[Any]
    results: Sequence[Symbol | Copy]
    storages: Sequence[Storage]
    lowered: LoweredRegion | None = None
    written: Symbol | None = None


@dataclass(frozen=True, eq=False)
class PlannedCalls:
    """graph: as it is compiled. calls: in order. results: what each output of the graph is, and how it lies.

    refusals: why rewrites left symbols alone that they might have changed.
    """

    graph: Graph
    calls: Sequence[Call]
    results: Sequence[tuple[Any, Storage]]
    refusals: Sequence[Refusal]


def plan_calls(
    graph: Graph,
    machine: Machine,
    add_function: AddFunction,
    constants: Constants,
    known: Bounds,
    as_they_lie: bool = False,
    put: Put = tensor_of,
) -> PlannedCalls:
    """The calls that compute a graph on a machine.

    constants: those made so far. known: intervals of tensors by name; what they leave open follows from dtypes.
    as_they_lie: see `ModuleBuilder.add`. put: gives constants their memory. Raises CompilationError listing every
    operator that has no compute.
    """
    rewritten, bounds = apply_rewrites(graph, machine, known)
    graph = rewritten.graph
    lacking = sorted({symbol.op for symbol in graph.operators if not has_compute(type(symbol.operator))})
    if lacking:
        raise CompilationError(f"no compute for TVM is registered for: {', '.join(lacking)}")
    regions = partition(graph)
    layouts = plan_layouts(graph, regions, machine, bounds, as_they_lie)
    planner = _CallPlanner(graph, bounds, layouts, machine, add_function, constants, put)
    last = last_readers(graph, regions, layouts)
    for region in regions:
        if not layouts.needs_no_call(region.output):
            planner.add(*in_place(region, graph, layouts, last))
    results = [planner.result(symbol, as_they_lie) for symbol in graph.outputs]
    return PlannedCalls(graph, planner.calls, results, rewritten.refusals)


@dataclass(eq=False)
class _CallPlanner:
    """Collects the calls that compute one graph, region by region."""

    graph: Graph
    bounds: Bounds
    layouts: Layouts
    machine: Machine
    add_function: AddFunction
    constants: Constants
    put: Put
    calls: list[Call] = field(default_factory=list)
    copies: dict[tuple[Symbol, Storage], Copy] = field(default_factory=dict)
    written: set[Symbol] = field(default_factory=set)
    """The tensors in whose memory a call has written, all or a part."""

    def result(self, symbol: Symbol, as_it_lies: bool) -> tuple[Any, Storage]:
        """What the graph's output `symbol` is, a tensor, a copy in the graph's order or a constant, and how it lies."""
        plain, value = Storage.plain(symbol.type), self.graph.value(symbol)
        if value is not None:
            return constant_of(value, self.put), plain
        storage = self.layouts.storages[symbol]
        if storage.is_plain or (as_it_lies and storage.is_readable):
            return symbol, storage
        return self._copied(symbol, plain), plain

    def add(self, region: Region, replaced: Symbol | None) -> None:
        """The call of the region's function, and before it the copies that it needs.

        replaced: the input over which the last output is written, if any (see `in_place`).
        """
        tensors: dict[Symbol, Symbol | Copy] = {}
        for source in region.inputs:
            if self.graph.value(source) is None:
                tensors[source] = self._served(region, source)
        storages = tuple(self.layouts.storages[output] for output in region.outputs)
        parameters, packed = self._packed_inputs(region, tensors, Walk.over(storages))
        arguments = [held for held in dict.fromkeys(tensors.values()) if held is not replaced]
        lowered = LoweredRegion(region, self.layouts, tensors, packed, storages, replaced)
        function = self.add_function(
            lowered.key(),
            f"region_{region.symbols[0].op.strip('_').lower()}",
            lambda scheduler: lowered.function(self.machine, scheduler),
        )
        results = [self.layouts.owner(output) for output in region.outputs]
        written = results[-1] if results[-1] in self.written else replaced
        self.written.update(results)
        self.calls.append(Call(function, [*arguments, *parameters], results, storages, lowered, written))

    def _packed_inputs(
        self, region: Region, tensors: Mapping[Symbol, Symbol | Copy], walk: Walk
    ) -> tuple[list[Any], dict[tuple[Symbol, int], Packed]]:
        """The constants of all parameters of a region, and how each input that has a form, or is one, is packed."""
        copies = {source: held.storage for source, held in tensors.items() if isinstance(held, Copy)}
        views = {source: self.layouts.view(source, None, copies.get(source)) for source in tensors}
        constants: list[Any] = []
        packed: dict[tuple[Symbol, int], Packed] = {}
        for reader in region.symbols:
            for index, source in enumerate(reader.inputs):
                if source not in region.inputs:
                    continue
                if source not in tensors:
                    made, packed[reader, index] = self._parameter(reader, index, source, views, walk)
                    constants += made
                elif (formed := form_computed(reader, index, self._surroundings(reader, views, walk))) is not None:
                    packed[reader, index] = formed
        return constants, packed

    def _served(self, region: Region, source: Symbol) -> Symbol | Copy:
        """The tensor that holds `source` as its readers in the region request: its owner, or a copy."""
        requests = [
            request
            for reader in region.symbols
            for index, read in enumerate(reader.inputs)
            if read is source
            and (request := layout_request_of(reader, index, self.graph, self.bounds, self.machine)) is not None
        ]
        along = read_along(region, self.graph).get(source, self._joined_along(region, source))
        if along is not None and self.layouts.lies_across(source, along):
            requests.append(LayoutRequest(along))
        if all(self.layouts.serves(source, request) for request in requests):
            return self.layouts.owner(source)
        axis = next(request.inner for request in requests if request.inner is not None)
        inner = Storage.with_inner(source.type, axis, padded_length(source.shape[axis]))
        wanted = requested_storage(inner, requests)
        return self._copied(source, wanted)

    def _joined_along(self, region: Region, source: Symbol) -> int | None:
        """The axis along which `source` is joined with others, if the result is written along it.

        A part that lies otherwise would be read element by element, each behind a choice between the parts; a copy of
        the part is turned by whole vectors.
        """
        inner = self.layouts.storages[region.output].inner
        joins = {joined_axis(reader) for reader in region.symbols if source in reader.inputs}
        return inner if inner is not None and joins == {inner} and source.shape[inner] >= VECTOR else None

    def _copied(self, symbol: Symbol, storage: Storage) -> Copy:
        if (symbol, storage) not in self.copies:
            key = ("copy", symbol.type, self.layouts.memory(symbol), self.layouts.view_path(symbol), storage)
            function = self.add_function(key, "copy", lambda _: self._copy_function(symbol, storage))
            copy = Copy(symbol, storage)
            self.calls.append(Call(function, [self.layouts.owner(symbol)], [copy], [storage]))
            self.copies[symbol, storage] = copy
        return self.copies[symbol, storage]

    def _copy_function(self, symbol: Symbol, storage: Storage) -> Any:
        owner = self.layouts.storages[self.layouts.owner(symbol)]
        held = te.placeholder(owner.shape, owner.dtype, "held")
        view = self.layouts.view(symbol, held)
        walk = Walk.over([storage])
        return scheduled_function(storing_function([held], [view], [storage], walk), [storage], walk, self.machine)

    def _parameter(
        self, reader: Symbol, index: int, source: Symbol, views: Mapping[Symbol, View], walk: Walk
    ) -> tuple[list[Any], Packed]:
        value = self.graph.value(source)
        packed = pack_parameter(reader, index, np.asarray(value), self._surroundings(reader, views, walk))
        # The array is kept with its constants, so that its id is not given to another.
        key = (id(value), packed.form, packed.storages, reader.operator)
        if key not in self.constants:
            self.constants[key] = [constant_of(array, self.put) for array in packed.arrays], value
        constants, _ = self.constants[key]
        # What follows knows the form alone, and arrays would be held until all is compiled.
        return constants, replace(packed, arrays=())

    def _surroundings(self, reader: Symbol, views: Mapping[Symbol, View], walk: Walk) -> Surroundings:
        bounds = tuple(self.bounds[s.name] for s in reader.inputs)
        return Surroundings(tuple(views.get(s) for s in reader.inputs), self.machine, walk, bounds)


def constant_of(value: Array | None, put: Put = tensor_of) -> Any:
    """Relax's constant of a copy of an array, in memory that `put` gives."""
    return relax.const(put(np.asarray(value)))
