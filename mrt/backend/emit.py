"""From a graph to a Relax module: one PrimFunc per region, called from the function `main`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from mrt.backend.compute import find_compute, has_compute, pack_parameter
from mrt.backend.machine import Machine, Target, one_line
from mrt.backend.merge_slices import MergeSlices
from mrt.backend.regions import Region, find_regions, walked_as_one
from mrt.backend.schedules import schedule
from mrt.errors import CompilationError
from mrt.symbol import Array, Graph, Operator, Symbol, TensorType


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
class Parameter:
    """A parameter as its reader gets it: a Relax constant, and its shape in the layout that the reader wants."""

    constant: Any
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Call:
    """The call of a region's PrimFunc that gives the value of `output`."""

    function: Any
    arguments: list[Symbol | Parameter]
    output: Symbol


class Emitter:
    """Collects the functions of one module; regions of the same structure share a PrimFunc."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._builder = relax.BlockBuilder()
        self._functions: dict[Any, Any] = {}

    def module(self) -> tvm.IRModule:
        return self._builder.finalize()

    def add(self, graph: Graph, name: str) -> None:
        """Adds the function `name` that computes `graph`."""
        graph = MergeSlices()(graph)
        lacking = sorted({symbol.op for symbol in graph.operators if not has_compute(symbol.op)})
        if lacking:
            raise CompilationError(f"no compute for TVM is registered for: {', '.join(lacking)}")
        # All that can fail comes first: TVM's builder complains if it is left in the middle of a function.
        constants: dict[Any, Any] = {}
        calls = [self._call(graph, region, constants) for region in find_regions(graph)]
        values: dict[Symbol, Any] = {
            symbol: relax.Var(f"input{i}", _tensor_type(symbol.type)) for i, symbol in enumerate(graph.inputs)
        }
        with self._builder.function(name, [values[symbol] for symbol in graph.inputs]):
            with self._builder.dataflow():
                for call in calls:
                    arguments = [
                        values[value] if isinstance(value, Symbol) else value.constant for value in call.arguments
                    ]
                    result = relax.call_tir(call.function, relax.Tuple(arguments), _tensor_type(call.output.type))
                    values[call.output] = self._builder.emit(result)
                for symbol in graph.outputs:
                    if symbol not in values:
                        values[symbol] = _constant(graph.value(symbol))
                results = self._builder.emit_output(relax.Tuple([values[symbol] for symbol in graph.outputs]))
            self._builder.emit_func_output(results)

    def add_bytes(self, content: bytes, name: str) -> None:
        """Adds the function `name` that takes nothing and gives `content` as a uint8 tensor."""
        with self._builder.function(name, []):
            self._builder.emit_func_output(_constant(np.frombuffer(content, np.uint8)))

    def _call(self, graph: Graph, region: Region, constants: dict[Any, Parameter]) -> Call:
        """The call of a region's function. constants: those made so far, by symbol and layout."""
        arguments: list[Symbol | Parameter] = []
        for source in region.inputs:
            value = graph.value(source)
            if value is None:
                arguments.append(source)
                continue
            packed, layout = _packed(region, source, value)
            if (source, layout) not in constants:
                constants[source, layout] = Parameter(_constant(packed), tuple(packed.shape))
            arguments.append(constants[source, layout])
        return Call(self._function(graph, region, [argument.shape for argument in arguments]), arguments, region.output)

    def _function(self, graph: Graph, region: Region, shapes: list[tuple[int, ...]]) -> Any:
        key = region.key(graph)
        if key not in self._functions:
            output = region.output
            try:
                function = lower_region(region, shapes, self._machine)
            except (RuntimeError, ValueError, TypeError) as error:
                raise CompilationError(f"{output.name} ({output.op}): TVM fails: {one_line(error)}") from error
            self._functions[key] = self._builder.add_func(function, f"region_{region.symbols[0].op.strip('_').lower()}")
        return self._functions[key]


def lower_region(region: Region, shapes: list[tuple[int, ...]], machine: Machine) -> Any:
    """The scheduled PrimFunc of a region, taking its inputs (of `shapes`: packed parameters differ) and its output."""
    placeholders = [
        te.placeholder(shape, source.dtype, f"input{i}")
        for i, (source, shape) in enumerate(zip(region.inputs, shapes, strict=True))
    ]
    values = dict(zip(region.inputs, placeholders, strict=True))
    for symbol in region.symbols:
        values[symbol] = find_compute(symbol)(symbol, *(values[source] for source in symbol.inputs))
    function = te.create_prim_func([*placeholders, values[region.output]])
    return schedule(function, walked_as_one(region), machine).without_attr("global_symbol")


def _packed(region: Region, source: Symbol, value: Array) -> tuple[Array, Operator | None]:
    """A parameter in the layout that its reader's compute wants, and the operator that decided it.

    As it is where several symbols of the region read it.
    """
    readers = [(s, i) for s in region.symbols for i, read in enumerate(s.inputs) if read is source]
    if len(readers) != 1:
        return value, None
    packed = pack_parameter(*readers[0], value)
    return packed, None if packed is value else readers[0][0].operator


def _constant(value: Array | None) -> Any:
    return relax.const(tvm.runtime.tensor(np.array(value, order="C")))


def _tensor_type(kind: TensorType) -> Any:
    return relax.TensorType(list(kind.shape), kind.dtype)
