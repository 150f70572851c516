"""From a graph to a Relax module: one PrimFunc per region, called from the function `main`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from mrt.backend.compute import has_compute, wish_of
from mrt.backend.layouts import Layouts, padded_length, plan_layouts, serves, wished_storage
from mrt.backend.lowering import Copy, LoweredRegion, finish
from mrt.backend.machine import Machine, Target
from mrt.backend.merge_slices import MergeSlices
from mrt.backend.packing import Packed, Surroundings, pack_parameter
from mrt.backend.regions import Region, find_regions, join_branches
from mrt.backend.storage import Storage, View, Walk
from mrt.errors import CompilationError
from mrt.symbol import Array, Graph, Symbol


def build_module(graph: Graph, name: str = "main", target: Target = "llvm") -> tvm.IRModule:
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

    lowered: what the function was made from, None for one that copies.
    """

    function: Any
    arguments: list[Any]
    results: Sequence[Symbol | Copy]
    storages: Sequence[Storage]
    lowered: LoweredRegion | None = None


class Emitter:
    """Collects the functions of one module; regions of the same structure share a PrimFunc."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._builder = relax.BlockBuilder()
        self._functions: dict[Any, Any] = {}
        self._constants: dict[Any, tuple[list[Any], Array]] = {}

    def module(self) -> tvm.IRModule:
        return self._builder.finalize()

    def add(self, graph: Graph, name: str) -> None:
        """Adds the function `name` that computes `graph`."""
        # All that can fail comes first: TVM's builder complains if it is left in the middle of a function.
        graph, calls, results = plan_calls(graph, self._machine, self._add_function, self._constants)
        values: dict[Any, Any] = {
            symbol: relax.Var(f"input{i}", _tensor_type(symbol.shape, symbol.dtype))
            for i, symbol in enumerate(graph.inputs)
        }
        with self._builder.function(name, [values[symbol] for symbol in graph.inputs]):
            with self._builder.dataflow():
                for call in calls:
                    arguments = [values[a] if isinstance(a, (Symbol, Copy)) else a for a in call.arguments]
                    kinds = [_tensor_type(storage.shape, storage.dtype) for storage in call.storages]
                    given = relax.Tuple(arguments)
                    made = self._builder.emit(relax.call_tir(call.function, given, kinds if kinds[1:] else kinds[0]))
                    for i, result in enumerate(call.results):
                        values[result] = self._builder.emit(relax.TupleGetItem(made, i)) if kinds[1:] else made
                found = [values[r] if isinstance(r, (Symbol, Copy)) else r for r in results]
                emitted = self._builder.emit_output(relax.Tuple(found))
            self._builder.emit_func_output(emitted)

    def add_bytes(self, content: bytes, name: str) -> None:
        """Adds the function `name` that takes nothing and gives `content` as a uint8 tensor."""
        with self._builder.function(name, []):
            self._builder.emit_func_output(_constant(np.frombuffer(content, np.uint8)))

    def _add_function(self, key: Any, name: str, make: Callable[[], Any]) -> Any:
        """The function that `make` makes, or the one that was made for the same key."""
        if key not in self._functions:
            self._functions[key] = self._builder.add_func(make(), name)
        return self._functions[key]


def plan_calls(
    graph: Graph,
    machine: Machine,
    add_function: Callable[[Any, str, Callable[[], Any]], Any],
    constants: dict[Any, tuple[list[Any], Array]],
) -> tuple[Graph, list[Call], list[Any]]:
    """The graph as it is compiled, the calls that compute it in order, and what its outputs are.

    add_function: of a key, a name and what makes the function, gives the function. constants: those made so far.
    Raises CompilationError listing every operator that has no compute.
    """
    graph = MergeSlices()(graph)
    lacking = sorted({symbol.op for symbol in graph.operators if not has_compute(symbol.op)})
    if lacking:
        raise CompilationError(f"no compute for TVM is registered for: {', '.join(lacking)}")
    regions = join_branches(graph, find_regions(graph))
    calls = _Calls(graph, plan_layouts(graph, regions, machine), machine, add_function, constants)
    for region in regions:
        calls.add(region)
    results = [calls.result(symbol) for symbol in graph.outputs]
    return graph, calls.made, results


class _Calls:
    """The calls that compute one graph, collected region by region."""

    def __init__(
        self,
        graph: Graph,
        layouts: Layouts,
        machine: Machine,
        add_function: Callable[..., Any],
        constants: dict[Any, Any],
    ) -> None:
        self.made: list[Call] = []
        self._graph, self._layouts, self._machine, self._add_function = graph, layouts, machine, add_function
        self._constants = constants
        self._copies: dict[tuple[Symbol, Storage], Copy] = {}

    def result(self, symbol: Symbol) -> Any:
        """What the graph's output `symbol` is: a tensor or a copy in the graph's own order, or a constant."""
        value = self._graph.value(symbol)
        if value is not None:
            return _constant(value)
        if self._layouts.storages[symbol].is_plain:
            return symbol
        return self._copied(symbol, Storage.plain(symbol.type))

    def add(self, region: Region) -> None:
        """The call of the region's function, and before it the copies that it needs."""
        if region.output in self._layouts.sources:
            return
        tensors: dict[Symbol, Symbol | Copy] = {}
        for source in region.inputs:
            if self._graph.value(source) is None:
                tensors[source] = self._served(region, source)
        copies = {source: held.storage for source, held in tensors.items() if isinstance(held, Copy)}
        views = {source: self._layouts.view(source, None, copies.get(source)) for source in tensors}
        storages = tuple(self._layouts.storages[output] for output in region.outputs)
        walk = Walk.over(storages)
        packed: dict[tuple[Symbol, int], Packed] = {}
        arguments: list[Any] = list(dict.fromkeys(tensors.values()))
        for reader in region.symbols:
            for index, source in enumerate(reader.inputs):
                if source in region.inputs and source not in tensors:
                    constants, packed[reader, index] = self._parameter(reader, index, source, views, walk)
                    arguments += constants
        lowered = LoweredRegion(region, self._layouts, tensors, packed, storages)
        function = self._add_function(
            lowered.key(), f"region_{region.symbols[0].op.strip('_').lower()}", lambda: lowered.function(self._machine)
        )
        self.made.append(Call(function, arguments, region.outputs, storages, lowered))

    def _served(self, region: Region, source: Symbol) -> Symbol | Copy:
        """The tensor that holds `source` as its readers in the region wish it: its owner, or a copy."""
        values = self._graph.value
        wishes = [
            wish
            for reader in region.symbols
            if reader.inputs[:1] == (source,)
            and (wish := wish_of(reader, [values(s) for s in reader.inputs], self._machine)) is not None
        ]
        if all(serves(self._layouts.memory(source), wish) for wish in wishes):
            return self._layouts.owner(source)
        wish = wishes[0]
        inner = Storage.with_inner(source.type, wish.inner, padded_length(source.shape[wish.inner]))
        wanted = wished_storage(source, inner, wishes)
        return self._copied(source, wanted)

    def _copied(self, symbol: Symbol, storage: Storage) -> Copy:
        if (symbol, storage) not in self._copies:
            key = ("copy", symbol.type, self._layouts.memory(symbol), storage)
            function = self._add_function(key, "copy", lambda: self._copy_function(symbol, storage))
            copy = Copy(symbol, storage)
            self.made.append(Call(function, [self._layouts.owner(symbol)], [copy], [storage]))
            self._copies[symbol, storage] = copy
        return self._copies[symbol, storage]

    def _copy_function(self, symbol: Symbol, storage: Storage) -> Any:
        owner = self._layouts.storages[self._layouts.owner(symbol)]
        held = te.placeholder(owner.shape, owner.dtype, "held")
        view = self._layouts.view(symbol, held)
        return finish([held], [view], [storage], True, 1, self._machine)

    def _parameter(
        self, reader: Symbol, index: int, source: Symbol, views: Mapping[Symbol, View], walk: Walk
    ) -> tuple[list[Any], Packed]:
        value = self._graph.value(source)
        beside = tuple(views.get(s) for s in reader.inputs)
        packed = pack_parameter(reader, index, np.asarray(value), Surroundings(beside, self._machine, walk))
        # The array is kept with its constants, so that its id is not given to another.
        key = (id(value), packed.form, packed.storages, reader.operator)
        if key not in self._constants:
            self._constants[key] = [_constant(array) for array in packed.arrays], value
        constants, _ = self._constants[key]
        return constants, packed


def _constant(value: Array | None) -> Any:
    return relax.const(tvm.runtime.tensor(np.array(value, order="C")))


def _tensor_type(shape: Sequence[int], dtype: str) -> Any:
    return relax.TensorType(list(shape), dtype)
