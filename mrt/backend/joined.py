"""All calls of a Relax function as one PrimFunc, on one workspace that is planned when compiling.

Relax calls each kernel through its virtual machine, allocates its result and checks its arguments. For a small network
that is a third of the time. Here a function `NAME` becomes

    NAME_calls(inputs…, constants, workspace, outputs…)    calls all kernels, with pointers into these
    NAME_memory() -> (constants, workspace, outputs…), results    the memory that it takes besides the inputs
    NAME(inputs…) -> results    the same function as before, by one call, on memory of its own

Kernels take pointers, so that no tensor is described anew for each call. They are compiled by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.tirx.op import address_of

from mrt.backend.expressions import constant
from mrt.backend.kernels.written import sequence
from mrt.backend.memory_plan import ALIGNMENT, Lifetime, aligned, plan_memory
from mrt.runtime import CALLS, MEMORY

KERNEL = "mrt.kernel"
"""Marks a function that takes pointers."""
CALLER = "mrt.caller"
"""Marks a function that calls a kernel, whose name is the value."""
FAR = 2**31
SYMBOL_PREFIX = "__tvm_ffi_"
"""Of the symbol of a function in machine code."""


def join_calls(module: tvm.IRModule) -> tvm.IRModule:
    """The Relax functions of a module, those that call kernels doing so by one PrimFunc, which is added; see above.

    Such a function is straight: `call_tir`, `call_tir_inplace`, `alloc_tensor` and tuples. All share their constants.
    Kernels are called by their names and are not in what is given.
    """
    builder, constants = relax.BlockBuilder(), _Constants()
    functions = {
        variable.name_hint: function
        for variable, function in module.functions.items()
        if not isinstance(function, tirx.PrimFunc)
    }
    programs = {
        name: _read(function, constants)
        for name, function in functions.items()
        if function.params or _calls_kernels(function)
    }
    held = relax.const(constants.packed())
    counts = {kernel: len(arguments) for program in programs.values() for kernel, arguments in program.calls}
    callers = {
        kernel: builder.add_func(_caller(kernel, _pointers(n), False), f"call_{kernel}") for kernel, n in counts.items()
    }
    for name, function in functions.items():
        if name in programs:
            _emit(builder, name, programs[name], callers, held)
        else:
            builder.add_func(function, name)
    return builder.finalize()


@dataclass(eq=False)
class _Memory:
    """A tensor that is made. place: of it among the outputs, None for one of the workspace."""

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
    """What lies in the memory of all constants from `offset` on."""

    offset: int


@dataclass(eq=False)
class _Program:
    """A Relax function, read. calls: a kernel's name and its arguments, results included. outputs: tensors made.

    results: what the function gives, as places among the outputs, or constants. is_tuple: whether as a tuple.
    """

    inputs: list[_Input]
    calls: list[tuple[str, list[Any]]] = field(default_factory=list)
    made: list[_Memory] = field(default_factory=list)
    outputs: list[_Memory] = field(default_factory=list)
    copied: list[tuple[_Input, _Memory]] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    is_tuple: bool = True
    workspace: int = 0

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
        """Chooses where in the workspace the tensors lie that are no outputs."""
        inner = [memory for memory in self.made if memory.place is None]
        offsets, self.workspace = plan_memory([Lifetime(each.size, each.first, each.last) for each in inner])
        for memory, offset in zip(inner, offsets, strict=True):
            memory.offset = offset


class _Constants:
    """The tensors that kernels take as constants, one after the other."""

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}
        self._tensors: list[tuple[int, Any]] = []
        self._size = 0

    def place(self, tensor: Any) -> _Packed:
        # The same memory is the same tensor, as long as all are held.
        key = tensor.data_ptr()
        if key not in self._offsets:
            self._offsets[key] = self._size
            self._tensors.append((self._size, tensor))
            self._size += aligned(math.prod(tensor.shape) * np.dtype(str(tensor.dtype)).itemsize)
        return _Packed(self._offsets[key])

    def packed(self) -> Any:
        """All of them as one tensor of bytes."""
        memory = tvm.runtime.empty((max(self._size, 1),), "uint8")
        held = np.from_dlpack(memory)
        held[:] = 0
        for offset, tensor in self._tensors:
            content = np.from_dlpack(tensor).reshape(-1).view(np.uint8)
            held[offset : offset + content.size] = content
        return memory


def _calls_kernels(function: Any) -> bool:
    return any(_operator(binding.value).startswith("relax.call_tir") for binding in _bindings(function))


def _bindings(function: Any) -> list[Any]:
    return [binding for block in function.body.blocks for binding in block.bindings]


def _operator(value: Any) -> str:
    return str(value.op.name) if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) else ""


def _read(function: Any, constants: _Constants) -> _Program:
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
        return constants.place(found.value) if isinstance(found, ir.GenericConst) else found

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


def _emit(builder: Any, name: str, program: _Program, callers: Mapping[str, Any], constants: Any) -> None:
    """Adds the three functions that `name` becomes."""
    calls = builder.add_func(_calling(name + CALLS, program, callers, int(constants.ty.shape[0])), name + CALLS)
    types = [_workspace_type(program), *(memory.type for memory in program.outputs)]
    with builder.function(name + MEMORY, []):
        memory = [builder.emit(relax.op.builtin.alloc_tensor(type.shape, str(type.dtype), 0)) for type in types]
        given = [constants, *memory], [_result(each, memory[1:]) for each in program.results]
        builder.emit_func_output(relax.Tuple([relax.Tuple(each) for each in given]))
    inputs = [relax.Var(f"input{i}", each.type) for i, each in enumerate(program.inputs)]
    with builder.function(name, inputs):
        made = builder.emit(relax.call_tir(calls, relax.Tuple([*inputs, constants]), types))
        outputs = [builder.emit(relax.TupleGetItem(made, i + 1)) for i in range(len(program.outputs))]
        results = [_result(each, outputs) for each in program.results]
        builder.emit_func_output(relax.Tuple(results) if program.is_tuple else results[0])


def _result(found: Any, outputs: Sequence[Any]) -> Any:
    return outputs[found] if isinstance(found, int) else found


def _workspace_type(program: _Program) -> Any:
    return relax.TensorType([max(program.workspace, 1)], "uint8")


def _calling(name: str, program: _Program, callers: Mapping[str, Any], constant_bytes: int) -> Any:
    """The PrimFunc that calls all kernels of a program; a kernel that fails ends it."""
    # The caller's memory begins anywhere.
    inputs = [_buffer(each.type, f"input{i}", _item_bytes(each.type)) for i, each in enumerate(program.inputs)]
    constants = tirx.decl_buffer((constant_bytes,), "uint8", "constants")
    workspace = _buffer(_workspace_type(program), "workspace")
    outputs = [_buffer(memory.type, f"output{i}") for i, memory in enumerate(program.outputs)]

    def pointer(argument: Any) -> Any:
        match argument:
            case _Input():
                return _address(inputs[argument.place])
            case _Packed():
                return _address(constants, argument.offset)
            case _Memory():
                return (
                    _address(workspace, argument.offset)
                    if argument.place is None
                    else _address(outputs[argument.place])
                )

    copies = [(pointer(copy), pointer(source), copy.size) for source, copy in program.copied]
    steps = [_checked(callers[kernel], list(map(pointer, arguments))) for kernel, arguments in program.calls]
    steps += [
        tirx.Evaluate(tirx.call_extern("handle", "memcpy", *copy[:2], constant(copy[2], "int64"))) for copy in copies
    ]
    body = sequence(steps) if steps else tirx.Evaluate(constant(0, "int32"))
    function = tirx.PrimFunc([*inputs, constants, workspace, *outputs], body)
    return function.with_attrs({"global_symbol": name, "tirx.noalias": True})


def _checked(caller: Any, arguments: Sequence[Any]) -> Any:
    failed = ir.Call(caller, arguments, ret_ty="int32") != constant(0, "int32")
    return tirx.IfThenElse(failed, tirx.Evaluate(tirx.op.tvm_throw_last_error()), None)


def _pointers(count: int) -> list[Any]:
    return [tirx.Var(f"pointer{i}", ir.PointerType(ir.PrimType("void"))) for i in range(count)]


def _address(buffer: Any, offset: int = 0) -> Any:
    """Of the byte at `offset` of a buffer of bytes, or of the first element of any."""
    zeros = [constant(0, "int32")] * len(buffer.shape)
    place = [constant(offset, "int64" if offset >= FAR else "int32")] if offset else zeros
    return address_of(tirx.BufferLoad(buffer, place))


def _buffer(type: Any, name: str, alignment: int = ALIGNMENT) -> Any:
    shape = [int(length) for length in type.shape]
    return tirx.decl_buffer(shape, str(type.dtype), name, data_alignment=alignment)


def _bytes(type: Any) -> int:
    return math.prod(int(length) for length in type.shape) * _item_bytes(type)


def _item_bytes(type: Any) -> int:
    return np.dtype(str(type.dtype)).itemsize


def linked(calls: tvm.IRModule) -> tvm.IRModule:
    """The PrimFuncs of `join_calls`, finding kernels by what a linker knows them by, for a library that holds both.

    TVM looks up names in what the caller's module imports, never in the module itself.
    """
    module = tvm.IRModule()
    for variable, function in calls.functions.items():
        marked = function.attrs.get(CALLER)
        module[variable] = function if marked is None else _caller(str(marked), function.params, True)
    return module


def _caller(kernel: str, pointers: Sequence[Any], by_symbol: bool) -> Any:
    """A function of its module only that hands pointers to a kernel; it gives 0 unless that fails.

    All calls of a kernel go through one: TVM writes out how arguments are packed for each, and knows a symbol once.
    """
    name = ir.StringImm(SYMBOL_PREFIX + kernel if by_symbol else kernel)
    context = [tirx.reinterpret("handle", constant(0, "uint64"))] if by_symbol else []
    operator = ir.Op.get("tirx.tvm_call_cpacked" if by_symbol else "tirx.tvm_call_packed")
    call = tirx.Evaluate(ir.Call(operator, [name, *pointers, *context], ret_ty="int32"))
    function = tirx.PrimFunc(pointers, call, ir.PrimType("int32"))
    return function.with_attrs({KERNEL: True, CALLER: kernel, "tirx.noalias": True})


def of_pointers(function: Any) -> Any:
    """The same function, taking pointers instead of buffers."""
    pointers = [
        tirx.Var(f"pointer{i}", ir.PointerType(ir.PrimType(str(buffer.dtype))))
        for i, buffer in enumerate(function.params)
    ]
    views = [tirx.DeclBuffer(buffer, data=pointer) for buffer, pointer in zip(function.params, pointers, strict=True)]
    body = sequence([*views, function.body])
    return tirx.PrimFunc(pointers, body, function.ret_type, function.attrs).with_attr(KERNEL, True)


def placed(function: Any) -> Any:
    """A lowered function of pointers that knows of the CPU; TVM tells others by the tensors that they take."""
    if not function.attrs or KERNEL not in function.attrs:
        return function
    body = function.body
    for fact, value in (("device_type", tvm.cpu().dlpack_device_type()), ("device_id", 0)):
        body = tirx.AttrStmt("default", fact, constant(value, "int32"), body)
    return function.with_body(body)
