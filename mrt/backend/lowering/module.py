"""From a graph to a Relax module: one PrimFunc per region, called from the function `main`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mrt.backend.kernels.x86.amx.instructions import needs_tiles, tile_request
from mrt.backend.link.program import Program
from mrt.backend.lowering.plan_calls import Constants, PlannedCalls, constant_of, plan_calls
from mrt.backend.lowering.region import Copy
from mrt.backend.lowering.stretches import Stretch, StretchedCalls, in_stretches, program_of
from mrt.backend.machine import Machine
from mrt.backend.memory.alignment import Shelf
from mrt.backend.memory.storage import Storage
from mrt.backend.rewrites.known_bounds import NOTHING, Bounds
from mrt.backend.schedule.tilings import Scheduler, schedule_by_rule
from mrt.compilation import NATIVE, Target
from mrt.runtime import REQUEST
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.rebatch import batch_of

Recall = Callable[[str, Any, Callable[[], Any]], Any]
ROOM = 5
"""What constants take as they are packed, as a share of parameters, seldom exceeds this."""


def build_module(graph: Graph, name: str = "main", target: Target = NATIVE) -> tvm.IRModule:
    """A Relax module whose function `name` computes the graph.

    The function takes the graph's inputs in order and gives a tuple of its outputs in order, also where it is one.
    Parameters are constants; schedules are made for `target`, results do not depend on it in integers.
    Raises CompilationError listing every operator that has no compute, or naming the symbol where TVM fails.
    """
    builder = ModuleBuilder(Machine.of(target))
    builder.add(graph, name)
    return builder.module()


class ModuleBuilder:
    """Collects the functions of one module; regions of the same structure share a PrimFunc."""

    def __init__(
        self,
        machine: Machine,
        scheduler: Scheduler = schedule_by_rule,
        on_function: Callable[[str, Any], None] = lambda name, function: None,
        wrap_results: Callable[[Any], Any] = lambda results: results,
        recall: Recall = lambda name, key, make: make(),
    ) -> None:
        """scheduler: chooses among the ways in which a function may be scheduled. on_function: gets each function with
        its name once it is scheduled. wrap_results: what functions of the module give, of the tuple of their results.
        recall: gives the function of a name and a key, made or, where it need not be, what stands for it.
        """
        self._machine, self._scheduler = machine, scheduler
        self._on_function, self._wrap_results, self._recall = on_function, wrap_results, recall
        self._builder = relax.BlockBuilder()
        self._functions: dict[Any, Any] = {}
        self._needs_tiles = False
        self._constants: Constants = {}
        self._stretched: dict[str, StretchedCalls] = {}
        self._put: dict[tuple[Any, ...], Any] = {}
        self.shelf = Shelf()
        """Where the constants of all functions lie."""

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
        if not self.shelf.size:
            self.reserve(sum(value.nbytes for value in graph.parameters.values()))
        options = known, as_they_lie, self.shelf.put
        plan = plan_calls(graph, self._machine, self._add_function, self._constants, *options)
        values: dict[Any, Any] = {
            symbol: relax.Var(f"input{i}", _tensor_type(symbol.shape, symbol.dtype))
            for i, symbol in enumerate(plan.graph.inputs)
        }
        with self._builder.function(name, [values[symbol] for symbol in plan.graph.inputs]):
            with self._builder.dataflow():
                for call in plan.calls:
                    arguments = [values[a] if isinstance(a, (Symbol, Copy)) else a for a in call.arguments]
                    held = None if call.written is None else values[call.written]
                    made = self._builder.emit(_call(call.function, arguments, call.storages, held))
                    for i, result in enumerate(call.results):
                        values[result] = self._builder.emit(relax.TupleGetItem(made, i)) if call.results[1:] else made
                found = [values[r] if isinstance(r, (Symbol, Copy)) else r for r, _ in plan.results]
                emitted = self._builder.emit_output(self._wrap_results(relax.Tuple(found)))
            self._builder.emit_func_output(emitted)
        return [storage for _, storage in plan.results]

    def add_batch(self, graph: Graph, name: str, known: Bounds, near: int) -> None:
        """Adds the function as `add` does; one core runs its batch in stretches where that is likely to be faster.

        near: bytes of the core's cache beyond which data is far.
        """
        if not self.shelf.size:
            self.reserve(sum(value.nbytes for value in graph.parameters.values()))

        def plan(sized: Graph, bounds: Bounds) -> PlannedCalls:
            def add_function(*asked: Any) -> Any:
                return asked

            return plan_calls(sized, self._machine, add_function, self._constants, bounds, put=self._put_once)

        many = self._machine.is_serial and batch_of(graph) > 1
        stretched = in_stretches(graph, known, plan, near) if many else None
        if stretched is None:
            self.add(graph, name, known)
            return
        made = [
            Stretch(
                each.samples,
                [replace(call, function=self._add_function(*call.function)) for call in each.calls],
                each.places,
            )
            for each in stretched.stretches
        ]
        self._stretched[name] = replace(stretched, stretches=made)

    def stretches(self, name: str) -> tuple[tuple[int, int], ...]:
        """Of a function that runs in stretches: for how many samples at once how many functions run, in order."""
        found = self._stretched.get(name)
        return () if found is None else tuple((each.samples, len(each.calls)) for each in found.stretches)

    @property
    def programs(self) -> dict[str, Program]:
        """What those functions do that run in stretches, which the module lacks."""
        return {name: program_of(stretched, self.shelf) for name, stretched in self._stretched.items()}

    def _put_once(self, array: Array) -> Any:
        """TVM's tensor of a copy of an array; plans of several batches have most constants in common."""
        key = array.shape, str(array.dtype), hashlib.sha256(np.ascontiguousarray(array).data).digest()
        if key not in self._put:
            self._put[key] = self.shelf.put(array)
        return self._put[key]

    def reserve(self, size: int) -> None:
        """Makes room for the constants of so many bytes of parameters, of all graphs, before the first is added."""
        self.shelf.reserve(ROOM * size)

    def let_go_of_parameters(self) -> None:
        """Lets go of the parameters of the graphs so far. One that a later graph has too is a constant once more."""
        self._constants.clear()

    def add_bytes(self, content: bytes, name: str) -> None:
        """Adds the function `name` that takes nothing and gives `content` as a uint8 tensor."""
        with self._builder.function(name, []):
            self._builder.emit_func_output(constant_of(np.frombuffer(content, np.uint8)))

    def _add_function(self, key: Any, name: str, make: Callable[[Scheduler], Any]) -> Any:
        """The function that `make` makes, or the one that was made for the same key."""
        if key not in self._functions:
            made = self._recall(name, key, lambda: make(self._scheduler))
            self._needs_tiles = self._needs_tiles or needs_tiles(made)
            self._functions[key] = self._builder.add_func(made, name)
            self._on_function(self._functions[key].name_hint, made)
        return self._functions[key]


def _call(function: Any, arguments: list[Any], storages: Sequence[Storage], held: Any) -> Any:
    """The call of a function of new tensors, or of one whose last result is written into `held`."""
    kinds = [_tensor_type(storage.shape, storage.dtype) for storage in storages]
    if held is None:
        return relax.call_tir(function, relax.Tuple(arguments), kinds if kinds[1:] else kinds[0])
    new = [relax.op.builtin.alloc_tensor(relax.ShapeExpr(storage.shape), storage.dtype, 0) for storage in storages[:-1]]
    places = list(range(len(arguments), len(arguments) + len(kinds)))
    return relax.op.call_tir_inplace(function, relax.Tuple([*arguments, *new, held]), places, kinds)


def _tensor_type(shape: Sequence[int], dtype: str) -> Any:
    return relax.TensorType(list(shape), dtype)
