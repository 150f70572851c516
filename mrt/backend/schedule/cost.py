"""How long a scheduled function takes, roughly: the cycles of its statements, and of the memory that goes through it.

Of most functions of networks this is within a factor of two of what they take, where data is in the second cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tvm import ir, s_tir, tirx
from tvm.target import codegen

from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import operands

OPERATION, LOAD, STORE, PICKED = 0.5, 0.25, 0.5, 0.25
"""Cycles of an operation on a vector, of a load and a store beside it, and of an element that is read by itself."""
BYTES = 16
"""That come from caches beyond the first in a cycle, or go there."""
INSTRUCTIONS = {"llvm.x86.tdpbusd": 16.0, "llvm.x86.tileloadd64": 8.0, "llvm.x86.tilestored64": 16.0}
"""Cycles of those that are not operations on vectors."""
PICKS = "mrt.picks"
"""The attribute of operators whose last argument says which elements of memory they load, one by one."""
AT_ONCE = "mrt.at_once"
"""The attribute of operators that take as long for fewer lanes: how many."""
FREE = frozenset({"tirx.reinterpret", "tirx.address_of"})
"""Calls that no instruction stands for."""
OF_LLVM = frozenset({"tirx.call_llvm_intrin", "tirx.call_llvm_pure_intrin"})
HELD = (tirx.Let, tirx.Broadcast, tirx.Ramp, tirx.Shuffle)
"""Expressions that are no operation of their own."""


class Cost:
    """Counts cycles of the statements of a function, up to `enough` of them."""

    def __init__(self, function: Any, machine: Machine, enough: float) -> None:
        self._vector_bits, self._enough = machine.vector_bits, enough
        self._memory = sum(_bytes(buffer) for buffer in function.params) / BYTES

    def reaches(self, statement: Any) -> bool:
        """Whether `statement` takes as many cycles as are enough."""
        self._cycles = self._memory
        self._add(statement, 1, 1)
        return self._cycles >= self._enough

    def _add(self, statement: Any, times: int, lanes: int) -> None:
        """Adds a statement that is done `times` times, for `lanes` neighbours at once."""
        if self._cycles >= self._enough:
            return
        if isinstance(statement, tirx.SeqStmt):
            for each in statement.seq:
                self._add(each, times, lanes)
        elif isinstance(statement, tirx.For):
            count = int(statement.extent) if isinstance(statement.extent, tirx.IntImm) else 1
            is_vector = statement.kind == tirx.ForKind.VECTORIZED
            self._add(statement.body, times * (1 if is_vector else count), lanes * (count if is_vector else 1))
        elif isinstance(statement, s_tir.SBlockRealize):
            self._add(statement.block.body, times, lanes)
        elif isinstance(statement, tirx.BufferStore):
            self._cycles += times * self._of_store(statement, lanes)
        elif isinstance(statement, (tirx.Evaluate, tirx.Bind)):
            self._cycles += times * self._of_value(statement.value, lanes)
        elif isinstance(statement, tirx.IfThenElse):
            self._add(statement.then_case, times, lanes)
        elif isinstance(statement, (tirx.AttrStmt, tirx.DeclBuffer)):
            self._add(statement.body, times, lanes)

    def _of_store(self, store: Any, lanes: int) -> float:
        value = store.value
        if not _reads(value, store.buffer):
            return self._of_value(value, lanes) + STORE * self._vectors(value, lanes)
        # A sum stays in a register, and what is added comes from memory while it is multiplied.
        return self._of_value(value, lanes, 0)

    def _of_value(self, value: Any, lanes: int, load: float = LOAD) -> float:
        """Of an expression. load: cycles of one that loads a vector."""
        if isinstance(value, ir.TensorLoad):
            if any(_reads(index) for index in value.indices):
                return PICKED * _lanes(value) * lanes
            return load * self._vectors(value, lanes)
        name = _called(value) if isinstance(value, ir.Call) else ""
        if name in INSTRUCTIONS:
            return INSTRUCTIONS[name]
        if isinstance(value, ir.Call) and value.op.get_attr(PICKS):
            return PICKED * _lanes(value) * lanes + self._of_value(value.args[1], lanes, load)
        parts = operands(value)
        inner = sum(self._of_value(each, lanes, load) for each in parts)
        is_free = not parts or name in FREE or isinstance(value, HELD) or _is_multiply_add(value)
        return inner if is_free else inner + OPERATION * self._vectors(value, lanes)

    def _vectors(self, value: Any, lanes: int) -> float:
        """How many vectors hold the value of so many neighbours; one that is not full counts as one."""
        if not isinstance(value.ty, ir.PrimType):
            return 1.0  # of what is called for its effect
        return max(1.0, _lanes(value) * lanes * int(value.ty.dtype.bits) / self._vector_bits)


def _lanes(value: Any) -> int:
    return int(value.ty.dtype.lanes)


def _bytes(buffer: Any) -> int:
    return math.prod(int(length) for length in buffer.shape) * int(buffer.dtype.itemsize)


def _reads(value: Any, buffer: Any = None) -> bool:
    """Whether an expression reads memory, that of `buffer` if one is given."""
    if isinstance(value, ir.TensorLoad):
        return buffer is None or bool(value.source.same_as(buffer))
    return any(_reads(each, buffer) for each in operands(value))


def operations(block: Any, lanes: int) -> int:
    """How many operations make what a block stores for so many neighbours along its last axis, which are a vector.

    Elements of a tensor in which they are no neighbours are loaded one by one.
    """
    last, found = block.iter_vars[-1].var, 0
    for value in expressions_of(block):
        if isinstance(value, ir.TensorLoad):
            found += lanes if _is_picked(value, last) else 0
        else:
            found += bool(operands(value)) and not isinstance(value, HELD)
    return found


def _is_picked(load: Any, last: Any) -> bool:
    """Whether an axis behind the one that `last` goes over has several places, too."""
    places = [place for place, index in enumerate(load.indices) if index.same_as(last)]
    return any(not isinstance(index, tirx.IntImm) for place in places for index in load.indices[place + 1 :])


def looks_up(block: Any) -> bool:
    """Whether what a block stores is loaded one by one, from places that are computed."""
    return any(attributes_of_calls(PICKS, block))


def lanes_at_once(block: Any) -> int:
    """The most lanes that an operator of a block has at once, of those with AT_ONCE; or 0."""
    return max(map(int, attributes_of_calls(AT_ONCE, block)), default=0)


def attributes_of_calls(attribute: str, block: Any) -> list[Any]:
    """That attribute of the operators of TVM that a block calls, of those that have it."""
    calls = (value for value in expressions_of(block) if isinstance(value, ir.Call) and isinstance(value.op, ir.Op))
    return [found for call in calls if (found := call.op.get_attr(attribute)) is not None]


def expressions_of(block: Any) -> Iterator[Any]:
    """All expressions that what a block stores is made of; of a load none of its index."""
    if isinstance(block.body, tirx.BufferStore):
        yield from parts_of(block.body.value)


def parts_of(expression: Any) -> Iterator[Any]:
    """An expression, and all that it is made of; of a load none of its index."""
    waiting = [expression]
    while waiting:
        value = waiting.pop()
        yield value
        waiting += operands(value)


def _is_multiply_add(value: Any) -> bool:
    """Whether an expression is one instruction with the product that it adds."""
    is_sum = isinstance(value, tirx.Add) and any(isinstance(each, tirx.Mul) for each in (value.a, value.b))
    return is_sum and str(value.ty.dtype).startswith("float")


def _called(call: Any) -> str:
    """The name of what a call calls, LLVM's of an intrinsic."""
    name = str(call.op.name)
    return str(codegen.llvm_get_intrinsic_name(int(call.args[0]))) if name in OF_LLVM else name
