"""Expressions of bytes that a sum is requantized to: what of them is done in 32 bits, in 16 and in 8.

As schedules write them: a call that makes 16 bits of the sum, what is added to these and how they are shifted, a clip
and a cast to 8 bits, and what becomes of the byte, as a look-up in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.ir import prim

from mrt.backend.kernels.x86.avx512.multiply_high import LANES
from mrt.backend.kernels.x86.avx512.requantize_int16 import OPERATOR, PRODUCT
from mrt.backend.schedule.elementwise import WHOLE_VECTORS
from mrt.backend.tir.expressions import SEAL, Expression, constant, dtype_of, llvm_call
from mrt.symbol.bounds import DTYPE_RANGES

BYTES, INT16S = ("uint8", "int8"), ("uint16", "int16")
PACKS = {"uint8": "llvm.x86.avx512.packuswb.512", "int8": "llvm.x86.avx512.packsswb.512"}
"""Of two vectors of int16 one of bytes, each clipped to the dtype."""
COUNT = 2 * LANES
"""Bytes of a vector."""
ON_INT16S = (prim.Add, prim.Sub, prim.Min, prim.Max, prim.RShift)
ON_BYTES = (prim.Min, prim.Max, prim.BitwiseXor)
"""What is done with two vectors as with two numbers; of bytes, the second one is constant."""


@dataclass(frozen=True, eq=False)
class ByteExpression:
    """An expression of one element.

    call: of OPERATOR or PRODUCT, on an element of the sums. wide: what is made of that in 16 bits. narrow: that, cast
    to a byte, clipped to [low, high] before. whole: what is made of the byte. loads: elements that all but the sums
    are, some in another dtype.
    """

    call: Any
    wide: Expression
    narrow: Expression
    whole: Expression
    low: int
    high: int
    loads: tuple[Any, ...]

    @classmethod
    def of(cls, whole: Expression) -> ByteExpression | None:
        """None where something else is computed."""
        if dtype_of(whole) not in BYTES:
            return None
        tables, narrow = [], whole
        while (inner := _byte_within(narrow)) is not None:
            tables += [load for each in _other_arguments(narrow) for load in each.args]
            narrow = inner
        clipped = _clipped(narrow.value) if isinstance(narrow, tirx.Cast) else None
        if clipped is None:
            return None
        wide, low, high = clipped
        calls, loads = _leaves(wide)
        least, most = DTYPE_RANGES[dtype_of(narrow)]
        sums = element_of(calls[0].args[0]).source
        own = [load for each in (*calls[0].args[1:], *loads) if (load := element_of(each)) is not None]
        if low < least or high > most or any(load.source.same_as(sums) for load in (*own, *tables)):
            return None
        return cls(calls[0], wide, narrow, whole, low, high, (*own, *tables))

    def int16s(self, requantized: Callable[[], Expression], held: Callable[[Expression], Expression]) -> Expression:
        """The 16 bits of LANES elements. requantized, held: of the call, and of what is an element of memory."""

        def made(value: Expression) -> Expression:
            if value.same_as(self.call):
                return requantized()
            if isinstance(value, tirx.IntImm):
                return tirx.Broadcast(value, LANES)
            return held(value) if is_held(value) else type(value)(made(value.a), made(value.b))

        return made(self.wide)

    def bytes(self, int16s: Sequence[Expression]) -> Expression:
        """The bytes of two vectors of 16 bits, a few of the first one and a few of the second in turns."""
        kind = "uint8" if self.low >= 0 else "int8"
        found = llvm_call(f"{kind}x{COUNT}", PACKS[kind], *int16s)
        least, most = DTYPE_RANGES[kind]
        if self.low > least:
            found = tirx.max(found, tirx.Broadcast(constant(self.low, kind), COUNT))
        if self.high < most:
            found = tirx.min(found, tirx.Broadcast(constant(self.high, kind), COUNT))
        return self._made_of(tirx.reinterpret(f"{dtype_of(self.narrow)}x{COUNT}", found), self.whole)

    def _made_of(self, found: Expression, value: Expression) -> Expression:
        if value.same_as(self.narrow):
            return found
        inner = self._made_of(found, _byte_within(value))
        if isinstance(value, ON_BYTES):
            return type(value)(inner, tirx.Broadcast(value.b, COUNT))
        vector = f"{dtype_of(value)}x{COUNT}"
        return ir.Call(value.op, [*_other_arguments(value), inner], ret_ty=vector)


def bytes_of(store: Any) -> ByteExpression | None:
    """What a statement stores, if it is such an expression."""
    return ByteExpression.of(store.value) if isinstance(store, tirx.BufferStore) else None


def is_held(value: Expression) -> bool:
    """Whether an expression is an element of a buffer, in another dtype perhaps."""
    return element_of(value) is not None


def element_of(value: Expression) -> Any:
    """The element of a buffer that an expression is; None where it is something else."""
    if isinstance(value, tirx.Cast):
        return element_of(value.value)
    return value if hasattr(value, "source") else None


def _byte_within(value: Expression) -> Expression:
    """The byte of which another one is made by what vectors of bytes can do; None where there is none."""
    if isinstance(value, ON_BYTES) and isinstance(value.b, tirx.IntImm):
        return value.a
    is_call = isinstance(value, ir.Call) and isinstance(value.op, ir.Op)
    if is_call and (value.op.name == SEAL or value.op.get_attr(WHOLE_VECTORS)):
        return value.args[-1] if dtype_of(value.args[-1]) in BYTES else None
    return None


def _other_arguments(value: Expression) -> list[Any]:
    """What the call of a look-up has besides the place: where the table is."""
    return list(value.args[:-1]) if isinstance(value, ir.Call) else []


def _clipped(value: Expression) -> tuple[Expression, int, int] | None:
    """What is clipped in 16 bits, and to what; None where no clip is known, or no sum is requantized."""
    low: list[int] = []
    high: list[int] = []
    while not (calls := _leaves(value)[0]) or _is_clip(value):
        if isinstance(value, tirx.Cast):
            value = value.value
        elif _is_clip(value):
            (low if isinstance(value, tirx.Max) else high).append(int(value.b))
            value = value.a
        else:
            return None
    if dtype_of(value) == "uint16":
        low.append(0)
        if not value.same_as(calls[0]):
            return None  # The call gives less than 2^15, as PACKS need it; what is made of it may give more.
    return (value, max(low), min(high)) if len(calls) == 1 and low and high else None


def _is_clip(value: Expression) -> bool:
    return isinstance(value, (tirx.Min, tirx.Max)) and isinstance(value.b, tirx.IntImm)


def _leaves(value: Expression) -> tuple[list[Any], list[Any]]:
    """The calls that make 16 bits of a sum, and what is in memory, of which an expression of 16 bits is made.

    No calls where it has anything else in it.
    """
    found = list(_parts(value))
    if any(each is None for each in found):
        return [], []
    calls = [each for each in found if isinstance(each, ir.Call)]
    return calls, [each for each in found if is_held(each)]


def _parts(value: Expression) -> Iterator[Any]:
    """Calls, constants and elements of memory; None for anything else."""
    if dtype_of(value) not in INT16S:
        yield None
    elif isinstance(value, ON_INT16S):
        yield from _parts(value.a)
        yield from _parts(value.b)
    elif isinstance(value, ir.Call) and value.op.name in (OPERATOR, PRODUCT):
        yield value if all(map(is_held, value.args)) else None
    else:
        yield value if isinstance(value, tirx.IntImm) or is_held(value) else None
