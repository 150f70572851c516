"""All calls of a Relax function as one PrimFunc, on one workspace that is planned when compiling.

Relax calls each kernel through its virtual machine, allocates its result and checks its arguments. For a small network
that is a third of the time. Here a function `NAME` becomes

    NAME_calls(inputs…, constants, workspace, outputs)    calls all kernels, with pointers into these
    NAME_memory() -> (constants, workspace, outputs), results    the memory that it takes besides the inputs
    NAME(inputs…) -> results    the same function as before, by one call, on memory of its own

Results lie one after the other in the memory of all outputs. Kernels are compiled by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx

from mrt.backend.kernels.generic.prefetch import LINE_BYTES
from mrt.backend.kernels.generic.prefetch_next_kernel import COUNT_BYTES, LEAD_BYTES
from mrt.backend.link.calls import FAR, Calls, Pointer
from mrt.backend.link.workspace import Lifetime, plan_memory
from mrt.backend.memory.alignment import ALIGNMENT, Shelf, aligned, side_by_side
from mrt.runtime import CALLS, MEMORY
from mrt.symbol import Array


@dataclass(frozen=True, eq=False)
class Joined:
    """What the Relax functions of a module become.

    functions: of the virtual machine. calls: by name, what the functions do that call the kernels.
    constants: what all share, a tensor. memory: by name, what each function takes besides.
    """

    functions: tvm.IRModule
    calls: dict[str, Calls]
    constants: Any
    memory: dict[str, FunctionMemory]


@dataclass(frozen=True)
class FunctionMemory:
    """What a function takes besides its inputs and the constants: bytes of its workspace, and of all outputs.

    results: of each output, the byte of that memory at which it begins, or the array that it always is.
    """

    workspace_bytes: int
    output_bytes: int
    results: tuple[int | Array, ...]


def join_calls(
    module: tvm.IRModule,
    by_bytes: Collection[str] = (),
    prefetching: Collection[str] = (),
    shelf: Shelf | None = None,
) -> Joined:
    """Joins the calls of every function that calls kernels.

    Such a function is straight: `call_tir`, `call_tir_inplace`, `alloc_tensor` and tuples. Kernels are called by their
    names and are not in what is given. by_bytes: functions that take two tensors of bytes, all inputs side by side and
    the constants, which the others hold; so does `NAME_memory` of these. prefetching: kernels that take two more
    pointers (`prefetch_next_kernel`). shelf: where constants lie already, in the order in which they are read best.
    """
    builder, constants = relax.BlockBuilder(), shelf or Shelf()
    functions = {
        variable.name_hint: function
        for variable, function in module.functions.items()
        if not isinstance(function, tirx.PrimFunc)
    }
    programs = {
        name: _read(function, constants)
        for name, function in functions.items()
        if name in by_bytes or function.params or _calls_kernels(function)
    }
    # What is called one after the other finds the memory that another function has left, if that is as large.
    largest = max((programs[name].workspace_bytes for name in by_bytes), default=0)
    for name in by_bytes:
        programs[name].workspace_bytes = largest
    prefetches = {name: _prefetches(program, constants, prefetching) for name, program in programs.items()}
    packed = constants.content
    size, held = int(packed.shape[0]), relax.const(packed)
    for name, function in functions.items():
        if name in programs:
            programs[name].by_bytes = name in by_bytes
            _emit(builder, name, programs[name], _bytes_type(size) if name in by_bytes else held)
        else:
            builder.add_func(function, name)
    calls = {name + CALLS: _calls(program, size, prefetches[name]) for name, program in programs.items()}
    memory = {name: program.memory for name, program in programs.items()}
    return Joined(builder.finalize(), calls, packed, memory)


@dataclass(eq=False)
class _Memory:
    """A tensor that is made. place: of it among the outputs, None for one of the workspace. offset: in the memory of
    either."""

    type: Any
    first: int
    last: int
    place: int | None = None
    offset: int = 0

    @property
    def size(self) -> int:
        return _bytes(self.type)


@dataclass(frozen=True, eq=False)
class _Input:
    """The input at a place."""

    place: int
    type: Any


@dataclass(frozen=True)
class _Packed:
    """The `size` bytes in the memory of all constants from `offset` on."""

    offset: int
    size: int


@dataclass(eq=False)
class _Program:
    """A Relax function, read. calls: a kernel's name and its arguments, results included. outputs: tensors made.

    results: what the function gives, as places among the outputs, or constants. is_tuple: whether as a tuple.
    by_bytes: whether all inputs come as one tensor, which is much faster to compile where they are many.
    """

    inputs: list[_Input]
    calls: list[tuple[str, list[Any]]] = field(default_factory=list)
    made: list[_Memory] = field(default_factory=list)
    outputs: list[_Memory] = field(default_factory=list)
    copied: list[tuple[_Input, _Memory]] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    is_tuple: bool = True
    by_bytes: bool = False
    workspace_bytes: int = 0
    output_bytes: int = 0

    @property
    def memory(self) -> FunctionMemory:
        results = [self.outputs[each].offset if isinstance(each, int) else each.value.numpy() for each in self.results]
        return FunctionMemory(self.workspace_bytes, self.output_bytes, tuple(results))

    @property
    def taken(self) -> list[tuple[str, Any]]:
        """The names and types of what the function takes for its inputs."""
        if not self.by_bytes:
            return [(f"input{place}", each.type) for place, each in enumerate(self.inputs)]
        return [("inputs", _bytes_type(side_by_side(_bytes(each.type) for each in self.inputs)[1]))]

    def make(self, type: Any) -> _Memory:
        self.made.append(_Memory(type, len(self.calls), len(self.calls)))
        return self.made[-1]

    def call(self, kernel: str, arguments: list[Any]) -> None:
        for argument in arguments:
            if isinstance(argument, _Memory):
                argument.last = len(self.calls)
        self.calls.append((kernel, arguments))

    def give(self, found: Any) -> None:
        """Adds a result, which gets memory of its own."""
        if isinstance(found, _Input):
            found = self._copy_of(found)
        if isinstance(found, _Memory):
            if found.place is None:
                found.place = len(self.outputs)
                self.outputs.append(found)
            found = found.place
        self.results.append(found)

    def _copy_of(self, found: _Input) -> _Memory:
        for source, copy in self.copied:
            if source is found:
                return copy
        copy = self.make(found.type)
        self.copied.append((found, copy))
        return copy

    def plan(self) -> None:
        """Chooses where tensors lie: those that are no outputs in the workspace, outputs one after the other."""
        inner = [memory for memory in self.made if memory.place is None]
        offsets, self.workspace_bytes = plan_memory([Lifetime(each.size, each.first, each.last) for each in inner])
        for memory, offset in zip(inner, offsets, strict=True):
            memory.offset = offset
        for memory in self.outputs:
            memory.offset = self.output_bytes
            self.output_bytes += aligned(memory.size)


def _placed(tensor: Any, constants: Shelf) -> _Packed:
    return _Packed(constants.place(tensor), math.prod(tensor.shape) * np.dtype(str(tensor.dtype)).itemsize)


def _calls_kernels(function: Any) -> bool:
    return any(_operator(binding.value).startswith("relax.call_tir") for binding in _bindings(function))


def _bindings(function: Any) -> list[Any]:
    return [binding for block in function.body.blocks for binding in block.bindings]


def _operator(value: Any) -> str:
    return str(value.op.name) if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) else ""


def _read(function: Any, constants: Shelf) -> _Program:
    inputs = [_Input(place, variable.ty) for place, variable in enumerate(function.params)]
    program = _Program(inputs)
    values: dict[Any, Any] = dict(zip(function.params, inputs, strict=True))

    def value(expression: Any) -> Any:
        if isinstance(expression, relax.Tuple):
            return [value(each) for each in expression.fields]
        if isinstance(expression, relax.TupleGetItem):
            return value(expression.tuple_value)[expression.index]
        return expression if isinstance(expression, ir.GenericConst) else values[expression]

    def argument(expression: Any) -> Any:
        found = value(expression)
        return _placed(found.value, constants) if isinstance(found, ir.GenericConst) else found

    for binding in _bindings(function):
        made, type = binding.value, binding.var.ty
        match _operator(made):
            case "relax.builtin.alloc_tensor":
                values[binding.var] = program.make(type)
            case "relax.call_tir":
                several = isinstance(type, ir.TupleType)
                results = [program.make(each) for each in (type.fields if several else [type])]
                program.call(made.args[0].name_hint, [*map(argument, made.args[1].fields), *results])
                values[binding.var] = results if several else results[0]
            case "relax.call_tir_inplace":
                arguments = list(map(argument, made.args[1].fields))
                program.call(made.args[0].name_hint, arguments)
                results = [arguments[int(place)] for place in made.attrs.inplace_indices]
                values[binding.var] = results if isinstance(type, ir.TupleType) else results[0]
            case _:
                values[binding.var] = value(made)
    given = value(function.body.body)
    program.is_tuple = isinstance(given, list)
    for found in given if program.is_tuple else [given]:
        program.give(found)
    program.plan()
    return program


def _emit(builder: Any, name: str, program: _Program, constants: Any) -> None:
    """Adds the functions of the virtual machine that `name` becomes. constants: held by these, or the type of what is
    given to them."""
    workspace, outputs = _bytes_type(program.workspace_bytes), _bytes_type(program.output_bytes)
    given = [relax.Var("constants", constants)] if program.by_bytes else []
    with builder.function(name + MEMORY, given):
        held = [*(given or [constants]), _tensor(builder, _storage(builder, workspace), workspace)]
        storage = _storage(builder, outputs)
        held.append(_tensor(builder, storage, outputs))
        made = [_tensor(builder, storage, memory.type, memory.offset) for memory in program.outputs]
        results = [made[each] if isinstance(each, int) else each for each in program.results]
        memory = builder.emit_func_output(relax.Tuple([relax.Tuple(held), relax.Tuple(results)]))
    inputs = [relax.Var(taken, type) for taken, type in program.taken]
    given = [relax.Var("constants", constants)] if program.by_bytes else []
    with builder.function(name, [*inputs, *given], pure=False):
        found = builder.emit(relax.Call(memory, given))
        parts = [builder.emit(relax.TupleGetItem(relax.TupleGetItem(found, 0), i)) for i in range(len(held))]
        calls = relax.ExternFunc(name + CALLS)
        builder.emit(relax.Call(calls, [*inputs, *parts], ty_args=[ir.TupleType([])]))
        outputs = builder.emit(relax.TupleGetItem(found, 1))
        builder.emit_func_output(outputs if program.is_tuple else builder.emit(relax.TupleGetItem(outputs, 0)))


def _storage(builder: Any, type: Any) -> Any:
    return builder.emit(relax.op.memory.alloc_storage(type.shape, 0, "global", "uint8"))


def _tensor(builder: Any, storage: Any, type: Any, offset: int = 0) -> Any:
    return builder.emit(relax.op.memory.alloc_tensor(storage, offset, type.shape, str(type.dtype)))


def _prefetches(program: _Program, constants: Shelf, prefetching: Collection[str]) -> list[tuple[_Packed, ...]]:
    """What each call takes besides: if its kernel fetches, what later ones read, and how many lines of a cache that is.

    It begins where the call before has ended, LEAD_BYTES after the beginning of the call's own weights or at their end.
    Nothing is fetched where the second cache keeps all constants.
    """
    if not any(kernel in prefetching for kernel, _ in program.calls):
        return [() for _ in program.calls]
    begins, lines, end = [], [], 0
    for _, arguments in reversed(program.calls):
        held = max((each for each in arguments if isinstance(each, _Packed)), key=lambda each: each.size, default=None)
        begin = end if held is None else held.offset + min(held.size, LEAD_BYTES)
        lines.append(min(max(end - begin, 0), FAR - 1) // LINE_BYTES if constants.size > LEAD_BYTES else 0)
        begins.append(begin)
        end = begin
    counts = constants.place(constants.put(np.array(lines, np.int32)))
    made = [
        (_Packed(begin, LINE_BYTES * count), _Packed(counts + COUNT_BYTES * i, COUNT_BYTES))
        for i, (begin, count) in enumerate(zip(begins, lines, strict=True))
    ]
    return [each if kernel in prefetching else () for each, (kernel, _) in zip(made[::-1], program.calls, strict=True)]


def _calls(program: _Program, constant_bytes: int, prefetches: Sequence[tuple[_Packed, ...]]) -> Calls:
    # The caller's memory begins anywhere.
    parameters = [_buffer(type, taken, _item_bytes(type)) for taken, type in program.taken]
    places, _ = side_by_side(_bytes(each.type) for each in program.inputs)
    constants = len(parameters)
    workspace, outputs = constants + 1, constants + 2
    sizes = {"constants": constant_bytes, "workspace": program.workspace_bytes, "outputs": program.output_bytes}
    parameters += [_buffer(_bytes_type(size), name) for name, size in sizes.items()]

    def pointer(argument: Any) -> Pointer:
        match argument:
            case _Input():
                return Pointer(0, places[argument.place]) if program.by_bytes else Pointer(argument.place)
            case _Packed():
                return Pointer(constants, argument.offset)
            case _Memory():
                return Pointer(workspace if argument.place is None else outputs, argument.offset)
        raise TypeError(f"{argument} is no memory")

    kernels = [
        (kernel, [*map(pointer, arguments), *map(pointer, added)])
        for (kernel, arguments), added in zip(program.calls, prefetches, strict=True)
    ]
    copies = [(pointer(copy), pointer(source), copy.size) for source, copy in program.copied]
    return Calls(parameters, kernels, copies)


def _buffer(type: Any, name: str, alignment: int = ALIGNMENT) -> Any:
    shape = [int(length) for length in type.shape]
    return tirx.decl_buffer(shape, str(type.dtype), name, data_alignment=alignment)


def _bytes_type(size: int) -> Any:
    return relax.TensorType([max(size, 1)], "uint8")


def _bytes(type: Any) -> int:
    return math.prod(int(length) for length in type.shape) * _item_bytes(type)


def _item_bytes(type: Any) -> int:
    return np.dtype(str(type.dtype)).itemsize
