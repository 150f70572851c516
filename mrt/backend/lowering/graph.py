"""From a graph to a Relax module: one PrimFunc per region, called from the function `main`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from mrt.backend.fusion.join_rows import join_rows
from mrt.backend.fusion.regions import Region, find_regions, join_branches
from mrt.backend.kernels.x86.amx.instructions import needs_tiles, tile_request
from mrt.backend.kernels.x86.requantize_int16 import has_late
from mrt.backend.layout.in_place import in_place, last_readers
from mrt.backend.layout.layouts import Layouts
from mrt.backend.layout.packing import form_computed, pack_parameter
from mrt.backend.layout.plan import plan_layouts, requested_storage
from mrt.backend.link.libraries import Libraries
from mrt.backend.lowering.region import Copy, LoweredRegion, finish, storing
from mrt.backend.machine import Machine
from mrt.backend.memory.alignment import tensor_of
from mrt.backend.memory.storage import Storage, View, Walk, padded_length
from mrt.backend.rewrites.bias_into_sum import EarlyBias
from mrt.backend.rewrites.clip_before_scaling import EarlyRelu
from mrt.backend.rewrites.clip_limits_as_parameters import SharedLimits
from mrt.backend.rewrites.interleave_channels import ShuffleAtOnce
from mrt.backend.rewrites.known_bounds import NOTHING, Bounds, known_bounds
from mrt.backend.rewrites.merge_slices import MergeSlices
from mrt.backend.rewrites.narrow_to_int16 import Words
from mrt.backend.rewrites.tile_as_concat import TileAsConcat
from mrt.backend.rewrites.widen_clips import OpenLimits
from mrt.backend.schedule.tilings import Scheduler, schedule_by_rule
from mrt.backend.te.operands import Packed, Surroundings
from mrt.backend.te.registry import has_compute, layout_request_of
from mrt.compilation import NATIVE, Target
from mrt.errors import CompilationError
from mrt.runtime import REQUEST
from mrt.symbol import Array, Graph, Symbol


def build_module(graph: Graph, name: str = "main", target: Target = NATIVE) -> tvm.IRModule:
    """A Relax module whose function `name` computes the graph.

    The function takes the graph's inputs in order and gives a tuple of its outputs in order, also where it is one.
    Parameters are constants; schedules are made for `target`, results do not depend on it in integers.
    Raises CompilationError listing every operator that has no compute, or naming the symbol where TVM fails.
    """
    emitter = Emitter(Machine.of(target))
    emitter.add(graph, name)
    return emitter.module()


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


class Emitter:
    """Collects the functions of one module; regions of the same structure share a PrimFunc."""

    def __init__(
        self,
        machine: Machine,
        scheduler: Scheduler = schedule_by_rule,
        libraries: Libraries | None = None,
        given: Callable[[Any], Any] = lambda results: results,
    ) -> None:
        """scheduler: chooses among the ways in which a function may be scheduled. libraries: what compiles functions
        while others are made. given: what a function gives, of the tuple of its results."""
        self._machine, self._scheduler, self._libraries, self._given = machine, scheduler, libraries, given
        self._builder = relax.BlockBuilder()
        self._functions: dict[Any, Any] = {}
        self._needs_tiles = False
        self._constants: dict[Any, tuple[list[Any], Array]] = {}

    def module(self) -> tvm.IRModule:
        """The module of all that was added; nothing can be added then."""
        if self._needs_tiles:
            asking = self._builder.add_func(tile_request(), "ask_for_tiles")
            with self._builder.function(REQUEST, []):
                given = self._builder.emit(relax.call_tir(asking, relax.Tuple([]), _tensor_type((1,), "int32")))
                self._builder.emit_func_output(given)
        return self._builder.finalize()

    def add(self, graph: Graph, name: str, known: Bounds = NOTHING, as_they_lie: bool = False) -> list[Storage]:
        """Adds the function `name` that computes `graph`; gives how its outputs lie in memory.

        known: intervals of its tensors, such as of its inputs. as_they_lie: whether outputs may lie as suits their
        makers and readers, as far as that can be read; else they lie in the graph's order.
        """
        # All that can fail comes first: TVM's builder complains if it is left in the middle of a function.
        graph, calls, results = plan_calls(
            graph, self._machine, self._add_function, self._constants, known, as_they_lie
        )
        values: dict[Any, Any] = {
            symbol: relax.Var(f"input{i}", _tensor_type(symbol.shape, symbol.dtype))
            for i, symbol in enumerate(graph.inputs)
        }
        with self._builder.function(name, [values[symbol] for symbol in graph.inputs]):
            with self._builder.dataflow():
                for call in calls:
                    arguments = [values[a] if isinstance(a, (Symbol, Copy)) else a for a in call.arguments]
                    held = None if call.written is None else values[call.written]
                    made = self._builder.emit(_call(call.function, arguments, call.storages, held))
                    for i, result in enumerate(call.results):
                        values[result] = self._builder.emit(relax.TupleGetItem(made, i)) if call.results[1:] else made
                found = [values[r] if isinstance(r, (Symbol, Copy)) else r for r, _ in results]
                emitted = self._builder.emit_output(self._given(relax.Tuple(found)))
            self._builder.emit_func_output(emitted)
        return [storage for _, storage in results]

    def add_bytes(self, content: bytes, name: str) -> None:
        """Adds the function `name` that takes nothing and gives `content` as a uint8 tensor."""
        with self._builder.function(name, []):
            self._builder.emit_func_output(_constant(np.frombuffer(content, np.uint8)))

    def _add_function(self, key: Any, name: str, make: Callable[[Scheduler], Any]) -> Any:
        """The function that `make` makes, or the one that was made for the same key."""
        if key not in self._functions:
            made = make(self._scheduler)
            self._needs_tiles = self._needs_tiles or needs_tiles(made)
            self._functions[key] = self._builder.add_func(made, name)
            if self._libraries is not None:
                self._libraries.add(self._functions[key].name_hint, made)
        return self._functions[key]


def plan_calls(
    graph: Graph,
    machine: Machine,
    add_function: Callable[[Any, str, Callable[[Scheduler], Any]], Any],
    constants: dict[Any, tuple[list[Any], Array]],
    known: Bounds,
    as_they_lie: bool = False,
) -> tuple[Graph, list[Call], list[tuple[Any, Storage]]]:
    """The graph as it is compiled, the calls that compute it in order, and what its outputs are and how they lie.

    add_function: of a key, a name and what makes the function, gives the function. constants: those made so far.
    known: intervals of tensors by name; what they leave open follows from dtypes. as_they_lie: see `Emitter.add`.
    Raises CompilationError listing every operator that has no compute.
    """
    graph, bounds = _adapted(graph, known, machine)
    lacking = sorted({symbol.op for symbol in graph.operators if not has_compute(type(symbol.operator))})
    if lacking:
        raise CompilationError(f"no compute for TVM is registered for: {', '.join(lacking)}")
    regions = join_rows(graph, join_branches(graph, find_regions(graph)))
    layouts = plan_layouts(graph, regions, machine, as_they_lie)
    calls = _Calls(graph, bounds, layouts, machine, add_function, constants)
    last = last_readers(graph, regions, layouts)
    for region in regions:
        if not layouts.is_seen(region.output):
            calls.add(*in_place(region, graph, layouts, last))
    results = [calls.result(symbol, as_they_lie) for symbol in graph.outputs]
    return graph, calls.made, results


def _adapted(graph: Graph, known: Bounds, machine: Machine) -> tuple[Graph, Bounds]:
    """The same integers by operators that compile to less, and what is known of all tensors then."""
    graph = TileAsConcat()(ShuffleAtOnce()(MergeSlices(machine)(graph)))
    known = known_bounds(graph, known)
    graph = EarlyBias(known)(graph)
    known = known_bounds(graph, known)
    graph = EarlyRelu(known)(graph)
    known = known_bounds(graph, known)
    graph = SharedLimits()(Words(known, has_late(machine))(OpenLimits(known)(graph)))
    return graph, known_bounds(graph, known)


class _Calls:
    """The calls that compute one graph, collected region by region."""

    def __init__(
        self,
        graph: Graph,
        bounds: Bounds,
        layouts: Layouts,
        machine: Machine,
        add_function: Callable[..., Any],
        constants: dict[Any, Any],
    ) -> None:
        self.made: list[Call] = []
        self._graph, self._layouts, self._machine, self._add_function = graph, layouts, machine, add_function
        self._constants, self._bounds = constants, bounds
        self._copies: dict[tuple[Symbol, Storage], Copy] = {}
        self._begun: set[Symbol] = set()

    def result(self, symbol: Symbol, as_it_lies: bool) -> tuple[Any, Storage]:
        """What the graph's output `symbol` is, a tensor, a copy in the graph's order or a constant, and how it lies."""
        plain, value = Storage.plain(symbol.type), self._graph.value(symbol)
        if value is not None:
            return _constant(value), plain
        storage = self._layouts.storages[symbol]
        if storage.is_plain or (as_it_lies and storage.is_readable):
            return symbol, storage
        return self._copied(symbol, plain), plain

    def add(self, region: Region, replaced: Symbol | None) -> None:
        """The call of the region's function, and before it the copies that it needs.

        replaced: the input over which the last output is written, if any (see `in_place`).
        """
        tensors: dict[Symbol, Symbol | Copy] = {}
        for source in region.inputs:
            if self._graph.value(source) is None:
                tensors[source] = self._served(region, source)
        copies = {source: held.storage for source, held in tensors.items() if isinstance(held, Copy)}
        views = {source: self._layouts.view(source, None, copies.get(source)) for source in tensors}
        storages = tuple(self._layouts.storages[output] for output in region.outputs)
        walk = Walk.over(storages)
        packed: dict[tuple[Symbol, int], Packed] = {}
        arguments: list[Any] = [held for held in dict.fromkeys(tensors.values()) if held is not replaced]
        for reader in region.symbols:
            for index, source in enumerate(reader.inputs):
                if source not in region.inputs:
                    continue
                if source not in tensors:
                    constants, packed[reader, index] = self._parameter(reader, index, source, views, walk)
                    arguments += constants
                elif (formed := form_computed(reader, index, self._surroundings(reader, views, walk))) is not None:
                    packed[reader, index] = formed
        lowered = LoweredRegion(region, self._layouts, tensors, packed, storages, replaced)
        function = self._add_function(
            lowered.key(),
            f"region_{region.symbols[0].op.strip('_').lower()}",
            lambda scheduler: lowered.function(self._machine, scheduler),
        )
        results = [self._layouts.owner(output) for output in region.outputs]
        written = results[-1] if results[-1] in self._begun else replaced
        self._begun.update(results)
        self.made.append(Call(function, arguments, results, storages, lowered, written))

    def _served(self, region: Region, source: Symbol) -> Symbol | Copy:
        """The tensor that holds `source` as its readers in the region request: its owner, or a copy."""
        values = self._graph.value
        requests = [
            request
            for reader in region.symbols
            for index, read in enumerate(reader.inputs)
            if read is source
            and (request := layout_request_of(reader, index, [values(s) for s in reader.inputs], self._machine))
            is not None
        ]
        if all(self._layouts.serves(source, request) for request in requests):
            return self._layouts.owner(source)
        axis = next(request.inner for request in requests if request.inner is not None)
        inner = Storage.with_inner(source.type, axis, padded_length(source.shape[axis]))
        wanted = requested_storage(inner, requests)
        return self._copied(source, wanted)

    def _copied(self, symbol: Symbol, storage: Storage) -> Copy:
        if (symbol, storage) not in self._copies:
            key = ("copy", symbol.type, self._layouts.memory(symbol), self._layouts.way(symbol), storage)
            function = self._add_function(key, "copy", lambda _: self._copy_function(symbol, storage))
            copy = Copy(symbol, storage)
            self.made.append(Call(function, [self._layouts.owner(symbol)], [copy], [storage]))
            self._copies[symbol, storage] = copy
        return self._copies[symbol, storage]

    def _copy_function(self, symbol: Symbol, storage: Storage) -> Any:
        owner = self._layouts.storages[self._layouts.owner(symbol)]
        held = te.placeholder(owner.shape, owner.dtype, "held")
        view = self._layouts.view(symbol, held)
        walk = Walk.over([storage])
        return finish(storing([held], [view], [storage], walk), [storage], walk, self._machine)

    def _parameter(
        self, reader: Symbol, index: int, source: Symbol, views: Mapping[Symbol, View], walk: Walk
    ) -> tuple[list[Any], Packed]:
        value = self._graph.value(source)
        packed = pack_parameter(reader, index, np.asarray(value), self._surroundings(reader, views, walk))
        # The array is kept with its constants, so that its id is not given to another.
        key = (id(value), packed.form, packed.storages, reader.operator)
        if key not in self._constants:
            self._constants[key] = [_constant(array) for array in packed.arrays], value
        constants, _ = self._constants[key]
        return constants, packed

    def _surroundings(self, reader: Symbol, views: Mapping[Symbol, View], walk: Walk) -> Surroundings:
        bounds = tuple(self._bounds[s.name] for s in reader.inputs)
        return Surroundings(tuple(views.get(s) for s in reader.inputs), self._machine, walk, bounds)


def _call(function: Any, arguments: list[Any], storages: Sequence[Storage], held: Any) -> Any:
    """The call of a function of new tensors, or of one whose last result is written into `held`."""
    kinds = [_tensor_type(storage.shape, storage.dtype) for storage in storages]
    if held is None:
        return relax.call_tir(function, relax.Tuple(arguments), kinds if kinds[1:] else kinds[0])
    new = [relax.op.builtin.alloc_tensor(relax.ShapeExpr(storage.shape), storage.dtype, 0) for storage in storages[:-1]]
    places = list(range(len(arguments), len(arguments) + len(kinds)))
    return relax.op.call_tir_inplace(function, relax.Tuple([*arguments, *new, held]), places, kinds)


def _constant(value: Array | None) -> Any:
    return relax.const(tensor_of(np.asarray(value)))


def _tensor_type(shape: Sequence[int], dtype: str) -> Any:
    return relax.TensorType(list(shape), dtype)
