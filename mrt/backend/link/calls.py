"""Calls of kernels in machine code. Kernels take pointers, so that no tensor is described anew for each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, tirx
from tvm.tirx.op import address_of

from mrt.backend.kernels.generic.prefetch_next_kernel import prefetch_parameters, prefetching_steps, with_prefetches
from mrt.backend.tir.expressions import constant
from mrt.backend.tir.statements import sequence

KERNEL = "mrt.kernel"
"""Marks a function that takes pointers."""
FAR = 2**31
PART = 256
"""Calls that one function makes: LLVM takes longer than linear in the number of branches of a function."""
SYMBOL_PREFIX = "__tvm_ffi_"
"""Of the symbol of a function in machine code."""


@dataclass(frozen=True)
class Pointer:
    """To the byte at `offset` of the parameter at place `parameter`."""

    parameter: int
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Calls:
    """What a function does. parameters: TVM's buffers. kernels: by name, with their arguments, in the order of calls.

    copies: done after the calls, each to a pointer, from a pointer, of a number of bytes. brought: done before them;
    both pointers may be one, and then nothing is copied, which libraries of C see.
    """

    parameters: Sequence[Any]
    kernels: Sequence[tuple[str, Sequence[Pointer]]]
    copies: Sequence[tuple[Pointer, Pointer, int]] = ()
    brought: Sequence[tuple[Pointer, Pointer, int]] = ()


def write_calls(functions: Mapping[str, Calls], symbols: Mapping[str, str] | None) -> tvm.IRModule:
    """A module of functions by name, each of which does as stated and fails where a kernel fails.

    symbols: what kernels are called in object files, for a library that holds both; None where they are found by name
    among what the module imports. TVM never looks up names in the module itself.
    """
    counts = {kernel: len(arguments) for calls in functions.values() for kernel, arguments in calls.kernels}
    called = {kernel: kernel if symbols is None else SYMBOL_PREFIX + symbols[kernel] for kernel in counts}
    by_call = {called[kernel]: ir.GlobalVar(f"call_{called[kernel]}") for kernel in counts}
    callers = {kernel: by_call[called[kernel]] for kernel in counts}
    taken = {called[kernel]: count for kernel, count in counts.items()}
    written = {caller: _caller(call, taken[call], symbols is not None) for call, caller in by_call.items()}
    for name, calls in functions.items():
        parts = {ir.GlobalVar(f"{name}_{i}"): part for i, part in enumerate(_parts(calls, callers))}
        written |= parts
        written[ir.GlobalVar(name)] = _whole(name, calls.parameters, list(parts))
    return tvm.IRModule(written)


def _whole(name: str, parameters: Sequence[Any], parts: Sequence[Any]) -> Any:
    """The function of tensors, which hands pointers to all parts."""
    pointers = [address_of(tirx.BufferLoad(each, [constant(0, "int32")] * len(each.shape))) for each in parameters]
    function = tirx.PrimFunc(parameters, _body([_checked(part, pointers) for part in parts]))
    return function.with_attrs({"global_symbol": name, "tirx.noalias": True})


def _parts(calls: Calls, callers: Mapping[str, Any]) -> list[Any]:
    """Functions of pointers to all parameters that do all of it in order. They have no symbol: only their module calls
    them, so that TVM does so without packing arguments."""
    pointers = _pointers(len(calls.parameters))

    def address(pointer: Pointer) -> Any:
        held, offset = pointers[pointer.parameter], pointer.offset
        return tirx.handle_add_byte_offset(held, constant(offset, "int64" if offset >= FAR else "int32"))

    def copied(function: str, to: Pointer, source: Pointer, size: int) -> Any:
        copy = tirx.call_extern("handle", function, address(to), address(source), constant(size, "int64"))
        return tirx.Evaluate(copy)

    steps = [copied("memmove", *each) for each in calls.brought]
    steps += [_checked(callers[kernel], [*map(address, arguments)]) for kernel, arguments in calls.kernels]
    steps += [copied("memcpy", *each) for each in calls.copies]
    return [_of_pointers(pointers, _body(steps[start : start + PART])) for start in range(0, len(steps), PART)]


def _caller(called: str, count: int, by_symbol: bool) -> Any:
    """A function of its module only that hands `count` pointers to a kernel; it gives 0 unless that fails.

    called: the kernel's symbol or, if not `by_symbol`, its name.

    All calls of a kernel go through one: TVM writes out how arguments are packed for each, and knows a symbol once.
    """
    pointers = _pointers(count)
    context = [tirx.reinterpret("handle", constant(0, "uint64"))] if by_symbol else []
    operator = ir.Op.get("tirx.tvm_call_cpacked" if by_symbol else "tirx.tvm_call_packed")
    call = tirx.Evaluate(ir.Call(operator, [ir.StringImm(called), *pointers, *context], ret_ty="int32"))
    return _of_pointers(pointers, call)


def _of_pointers(pointers: Sequence[Any], body: Any) -> Any:
    function = tirx.PrimFunc(pointers, body, ir.PrimType("int32"))
    return function.with_attrs({KERNEL: True, "tirx.noalias": True})


def _checked(function: Any, arguments: Sequence[Any]) -> Any:
    """The call of a function that gives 0, unless it fails, which ends its caller."""
    failed = ir.Call(function, arguments, ret_ty="int32") != constant(0, "int32")
    return tirx.IfThenElse(failed, tirx.Evaluate(tirx.op.tvm_throw_last_error()), None)


def _body(steps: Sequence[Any]) -> Any:
    return sequence(steps) if steps else tirx.Evaluate(constant(0, "int32"))


def _pointers(count: int) -> list[Any]:
    return [tirx.Var(f"pointer{i}", ir.PointerType(ir.PrimType("void"))) for i in range(count)]


def taking_pointers(function: Any) -> Any:
    """The same function, taking pointers instead of buffers; two more where it prefetches (`prefetch_next_kernel`)."""
    buffers, inner, steps = list(function.params), function.body, prefetching_steps(function)
    if steps:
        added = prefetch_parameters()
        buffers, inner = [*buffers, *added], with_prefetches(inner, steps, added)
    pointers = [
        tirx.Var(f"pointer{i}", ir.PointerType(ir.PrimType(str(buffer.dtype)))) for i, buffer in enumerate(buffers)
    ]
    views = [tirx.DeclBuffer(buffer, data=pointer) for buffer, pointer in zip(buffers, pointers, strict=True)]
    body = sequence([*views, inner])
    return tirx.PrimFunc(pointers, body, function.ret_type, function.attrs).with_attr(KERNEL, True)


def on_cpu(function: Any) -> Any:
    """A lowered function of pointers that knows of the CPU; TVM tells others by the tensors that they take."""
    if not function.attrs or KERNEL not in function.attrs:
        return function
    body = function.body
    for fact, value in (("device_type", tvm.cpu().dlpack_device_type()), ("device_id", 0)):
        body = tirx.AttrStmt("default", fact, constant(value, "int32"), body)
    return function.with_body(body)
