"""All calls of a Relax function as one PrimFunc, on one workspace that is planned when compiling.

Relax calls each kernel through its virtual machine, allocates its result and checks its arguments. For a small network
that is a third of the time. Here a function `NAME` becomes

    NAME_calls(inputs…, constants, workspace, outputs)    calls all kernels, with pointers into these
    NAME_memory() -> (constants, workspace, outputs), results    the memory that it takes besides the inputs
    NAME(inputs…) -> results    the same function as before, by one call, on memory of its own

Results lie one after the other in the memory of all outputs. Kernels are compiled by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx

from mrt.backend.kernels.generic.prefetch_next_kernel import COUNT_BYTES, LEAD_BYTES
from mrt.backend.link.calls import FAR, Calls, Pointer
from mrt.backend.link.program import (
    FunctionMemory,
    Given,
    Made,
    Packed,
    Part,
    Program,
    bytes_of,
    bytes_type,
    item_bytes,
    placed,
)
from mrt.backend.memory.alignment import ALIGNMENT, Shelf, side_by_side
from mrt.backend.schedule.loops import LINE_BYTES
from mrt.runtime import CALLS, MEMORY


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


def join_calls(
    module: tvm.IRModule,
    by_bytes: Collection[str] = (),
    prefetching: Collection[str] = (),
    shelf: Shelf | None = None,
    added: Mapping[str, Program] | None = None,
) -> Joined:
    """Joins the calls of every function that calls kernels.

    Such a function is straight: `call_tir`, `call_tir_inplace`, `alloc_tensor` and tuples. Kernels are called by their
    names and are not in what is given. by_bytes: functions that take two tensors of bytes, all inputs side by side and
    the constants, which the others hold; so does `NAME_memory` of these. prefetching: kernels that take two more
    pointers (`prefetch_next_kernel`). shelf: where constants lie already, in the order in which they are read best.
    known: programs that are no functions of the module, by name; their constants lie on the shelf.
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
    programs |= added or {}
    # What is called one after the other finds the memory that another function has left, if that is as large.
    largest = max((programs[name].workspace_bytes for name in by_bytes), default=0)
    for name in by_bytes:
        programs[name].workspace_bytes = largest
    prefetches = {name: _prefetches(program, constants, prefetching) for name, program in programs.items()}
    packed = constants.content
    size, held = int(packed.shape[0]), relax.const(packed)
    for name, program in programs.items():
        program.by_bytes = name in by_bytes
        _emit(builder, name, program, bytes_type(size) if name in by_bytes else held)
    for name, function in functions.items():
        if name not in programs:
            builder.add_func(function, name)
    calls = {name + CALLS: _calls(program, size, prefetches[name]) for name, program in programs.items()}
    memory = {name: program.memory for name, program in programs.items()}
    return Joined(builder.finalize(), calls, packed, memory)


def _calls_kernels(function: Any) -> bool:
    return any(_operator(binding.value).startswith("relax.call_tir") for binding in _bindings(function))


def _bindings(function: Any) -> list[Any]:
    return [binding for block in function.body.blocks for binding in block.bindings]


def _operator(value: Any) -> str:
    return str(value.op.name) if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) else ""


def _read(function: Any, constants: Shelf) -> Program:
    inputs = [Given(place, variable.ty) for place, variable in enumerate(function.params)]
    program = Program(inputs)
    values: dict[Any, Any] = dict(zip(function.params, inputs, strict=True))

    def value(expression: Any) -> Any:
        if isinstance(expression, relax.Tuple):
            return [value(each) for each in expression.fields]
        if isinstance(expression, relax.TupleGetItem):
            return value(expression.tuple_value)[expression.index]
        return expression if isinstance(expression, ir.GenericConst) else values[expression]

    def argument(expression: Any) -> Any:
        found = value(expression)
        return placed(found.value, constants) if isinstance(found, ir.GenericConst) else found

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
                results = _call_in_place(program, made, list(map(argument, made.args[1].fields)))
                values[binding.var] = results if isinstance(type, ir.TupleType) else results[0]
            case _:
                values[binding.var] = value(made)
    given = value(function.body.body)
    program.is_tuple = isinstance(given, list)
    for found in given if program.is_tuple else [given]:
        program.give(found)
    program.plan()
    return program


def _call_in_place(program: Program, made: Any, arguments: list[Any]) -> list[Any]:
    """Adds a call that writes over some of its arguments, and gives these; an input is brought elsewhere first."""
    places = [int(place) for place in made.attrs.inplace_indices]
    for place in places:
        if isinstance(arguments[place], Given):
            arguments[place] = program.bring(arguments[place])
    program.call(made.args[0].name_hint, arguments)
    return [arguments[place] for place in places]


def _emit(builder: Any, name: str, program: Program, constants: Any) -> None:
    """Adds the functions of the virtual machine that `name` becomes. constants: held by these, or the type of what is
    given to them."""
    workspace, outputs = bytes_type(program.workspace_bytes), bytes_type(program.output_bytes)
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


def _prefetches(program: Program, constants: Shelf, prefetching: Collection[str]) -> list[tuple[Packed, ...]]:
    """What each call takes besides: if its kernel fetches, what later ones read, and how many lines of a cache that is.

    It begins where the call before has ended, LEAD_BYTES after the beginning of the call's own weights or at their end.
    Nothing is fetched where the second cache keeps all constants.
    """
    if not any(kernel in prefetching for kernel, _ in program.calls):
        return [() for _ in program.calls]
    begins, lines, end = [], [], 0
    for _, arguments in reversed(program.calls):
        held = max((each for each in arguments if isinstance(each, Packed)), key=lambda each: each.size, default=None)
        begin = end if held is None else held.offset + min(held.size, LEAD_BYTES)
        lines.append(min(max(end - begin, 0), FAR - 1) // LINE_BYTES if constants.size > LEAD_BYTES else 0)
        begins.append(begin)
        end = begin
    counts = constants.place(constants.put(np.array(lines, np.int32)))
    made = [
        (Packed(begin, LINE_BYTES * count), Packed(counts + COUNT_BYTES * i, COUNT_BYTES))
        for i, (begin, count) in enumerate(zip(begins, lines, strict=True))
    ]
    return [each if kernel in prefetching else () for each, (kernel, _) in zip(made[::-1], program.calls, strict=True)]


def _calls(program: Program, constant_bytes: int, prefetches: Sequence[tuple[Packed, ...]]) -> Calls:
    # The caller's memory begins anywhere.
    parameters = [_buffer(type, taken, item_bytes(type)) for taken, type in program.taken]
    places, _ = side_by_side(bytes_of(each.type) for each in program.inputs)
    constants = len(parameters)
    workspace, outputs = constants + 1, constants + 2
    sizes = {"constants": constant_bytes, "workspace": program.workspace_bytes, "outputs": program.output_bytes}
    parameters += [_buffer(bytes_type(size), name) for name, size in sizes.items()]

    def pointer(argument: Any) -> Pointer:
        match argument:
            case Given():
                return Pointer(0, places[argument.place]) if program.by_bytes else Pointer(argument.place)
            case Part():
                whole = pointer(argument.held)
                return Pointer(whole.parameter, whole.offset + argument.offset)
            case Packed():
                return Pointer(constants, argument.offset)
            case Made():
                return Pointer(workspace if argument.place is None else outputs, argument.offset)
        raise TypeError(f"{argument} is no memory")

    kernels = [
        (kernel, [*map(pointer, arguments), *map(pointer, added)])
        for (kernel, arguments), added in zip(program.calls, prefetches, strict=True)
    ]
    copies, brought = (
        [(pointer(copy), pointer(source), copy.size) for source, copy in each]
        for each in (program.copied, program.brought)
    )
    return Calls(parameters, kernels, copies, brought)


def _buffer(type: Any, name: str, alignment: int = ALIGNMENT) -> Any:
    shape = [int(length) for length in type.shape]
    return tirx.decl_buffer(shape, str(type.dtype), name, data_alignment=alignment)
