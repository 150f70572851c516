"""Loops and arithmetic of a PrimFunc as the body of a C function.

It writes what the lowering leaves, and nothing else. TVM's own generator of C is not used: it reads an operand of min
or max into a variable, and takes that variable for the same operand again even after a store to it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.ir import prim

from mrt.backend.tir.expressions import dtype_of
from mrt.export.c_text import C_TYPES, number
from mrt.symbol.bounds import DTYPE_RANGES

MAX_LOCAL = 16
"""Elements up to which a buffer is a variable of the function; larger ones are given by the caller."""


class UnprintableError(ValueError):
    """A PrimFunc holds what C code is not written for; the text says what."""


@dataclass(frozen=True)
class Scratch:
    """A buffer that the caller of a function provides: its name there, dtype, and number of elements."""

    name: str
    dtype: str
    size: int


# How tightly the outermost operation of an expression binds, from not at all.
OTHER, CONJUNCTION, COMPARISON, SUM, PRODUCT, UNARY, ATOM = range(7)


@dataclass(frozen=True)
class _Text:
    """A C expression, and how tightly it binds."""

    text: str
    binding: int = ATOM

    def within(self, least: int) -> str:
        """The expression, in parentheses where it binds less tightly than `least`."""
        return self.text if self.binding >= least else f"({self.text})"


_BINARY: Mapping[Any, tuple[str, int, int, int]] = {
    prim.Add: ("+", SUM, SUM, PRODUCT),
    prim.Sub: ("-", SUM, SUM, PRODUCT),
    prim.Mul: ("*", PRODUCT, PRODUCT, UNARY),
    prim.Div: ("/", PRODUCT, PRODUCT, UNARY),
    prim.Mod: ("%", PRODUCT, PRODUCT, UNARY),
    prim.RShift: (">>", OTHER, UNARY, UNARY),
    prim.BitwiseAnd: ("&", OTHER, UNARY, UNARY),
    prim.BitwiseOr: ("|", OTHER, UNARY, UNARY),
    prim.BitwiseXor: ("^", OTHER, UNARY, UNARY),
    prim.EQ: ("==", COMPARISON, SUM, SUM),
    prim.NE: ("!=", COMPARISON, SUM, SUM),
    prim.LT: ("<", COMPARISON, SUM, SUM),
    prim.LE: ("<=", COMPARISON, SUM, SUM),
    prim.GT: (">", COMPARISON, SUM, SUM),
    prim.GE: (">=", COMPARISON, SUM, SUM),
}
"""Operations that C has too: the operator, how it binds, and how its operands must."""
_LOGICAL: Mapping[Any, tuple[str, int, int]] = {
    prim.And: ("&&", CONJUNCTION, CONJUNCTION),
    prim.Or: ("||", OTHER, COMPARISON),
}
"""Operations whose second operand is evaluated only if the first does not decide; how the first must bind."""
_EXTREMES: Mapping[Any, str] = {prim.Min: "<", prim.Max: ">"}


class Printer:
    """Writes statements, one after the other, into `lines`.

    read: the parameters whose elements were read. scratch: the buffers that the function must be given besides.
    """

    def __init__(self, parameters: Mapping[Any, str]) -> None:
        """parameters: what C calls each parameter of the PrimFunc."""
        self.lines: list[str] = []
        self.read: set[str] = set()
        self.scratch: list[Scratch] = []
        self._parameters = dict(parameters)
        self._buffers: dict[Any, str] = {}
        self._values: dict[Any, _Text] = {}
        self._scalars: set[Any] = set()
        self._made: Counter[str] = Counter()
        self._depth = 1

    def write(self, statement: Any) -> None:
        """Writes one statement; UnprintableError where it is none of those that the lowering leaves."""
        match statement:
            case tirx.SeqStmt():
                for each in statement.seq:
                    self.write(each)
            case tirx.DeclBuffer():
                self._buffers[statement.buffer] = self._parameters[statement.data.args[0]]
            case tirx.AllocBuffer():
                self._allocate(statement.buffer)
            case tirx.Bind():
                self._values[statement.var] = self._declared(self._expression(statement.value), statement.var)
            case tirx.For():
                first, count = int(statement.min), int(statement.extent)
                i = self._new("i")
                self._values[statement.loop_var] = _Text(i)
                self._write_block(f"for (int32_t {i} = {first}; {i} < {first + count}; ++{i})", statement.body)
            case tirx.IfThenElse() if statement.else_case is None:
                self._write_block(f"if ({self._expression(statement.condition).text})", statement.then_case)
            case tirx.BufferStore():
                self._store(self._element(statement.buffer, statement.indices).text, statement.value)
            case _:
                raise UnprintableError(type(statement).__name__)

    def _write_block(self, head: str, body: Any) -> None:
        self._line(f"{head} {{")
        self._depth += 1
        self.write(body)
        self._depth -= 1
        self._line("}")

    def _line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    def _allocate(self, buffer: Any) -> None:
        """A variable where the buffer is small, else one more scratch buffer."""
        dtype, size = str(buffer.dtype), math.prod(int(n) for n in buffer.shape)
        if size > MAX_LOCAL:
            self._buffers[buffer] = self._new("scratch")
            self.scratch.append(Scratch(self._buffers[buffer], dtype, size))
            return
        name = self._buffers[buffer] = self._new("held")
        if size == 1:
            self._scalars.add(buffer)
        self._line(f"{_c_type(dtype)} {name};" if size == 1 else f"{_c_type(dtype)} {name}[{size}];")

    def _store(self, place: str, value: Any) -> None:
        found = self._expression(value)
        held = f"{place} + "
        if isinstance(value, prim.Add) and isinstance(value.a, ir.TensorLoad) and found.text.startswith(held):
            self._line(f"{place} += {found.text.removeprefix(held)};")
        else:
            self._line(f"{place} = {found.text};")

    # Expressions

    def _expression(self, node: Any) -> _Text:
        """An expression; parts that are computed once are written as variables before it."""
        kind = type(node)
        if kind in _BINARY:
            symbol, binding, left, right = _BINARY[kind]
            a, b = self._expression(node.a).within(left), self._expression(node.b).within(right)
            return _Text(f"{a} {symbol} {b}", binding)
        if kind in _LOGICAL:
            symbol, binding, left = _LOGICAL[kind]
            a = self._expression(node.a).within(left)
            return _Text(f"{a} {symbol} {self._in_one(node.b).within(COMPARISON)}", binding)
        if kind in _EXTREMES:
            return self._extreme(node)
        match node:
            case prim.IntImm():
                value = int(node.value)
                return _Text(number(value), UNARY if value < 0 else ATOM)
            case ir.Var():
                return self._values[node]
            case ir.TensorLoad():
                return self._element(node.source, node.indices, is_read=True)
            case prim.Cast():
                return self._cast(node)
            case prim.Not():
                return _Text(f"!{self._expression(node.a).within(UNARY)}", UNARY)
            case prim.LShift():
                return self._shifted_left(node)
            case prim.Let():
                self._values[node.var] = self._once(node.value)
                return self._expression(node.body)
            case prim.Select():
                parts = [self._expression(part) for part in (node.condition, node.true_value, node.false_value)]
                return _ternary(*parts)
            case ir.Call() if node.op.name == "tirx.reinterpret" and dtype_of(node.args[0]) == dtype_of(node):
                return self._expression(node.args[0])
            case ir.Call() if node.op.name == "prim.if_then_else":
                return self._if_then_else(*node.args)
        raise UnprintableError(node.op.name if isinstance(node, ir.Call) else kind.__name__)

    def _shifted_left(self, node: Any) -> _Text:
        """Without a sign: C leaves the left shift of a negative number undefined."""
        shifted = f"(uint32_t){self._expression(node.a).within(UNARY)}"
        by = self._expression(node.b).within(UNARY)
        return _Text(f"({_c_type(dtype_of(node))})({shifted} << {by})", UNARY)

    def _extreme(self, node: Any) -> _Text:
        """A minimum or a maximum. Where a number at an end of the dtype decides, nothing is compared: compilers warn of
        comparisons that are always true."""
        limits, sign = DTYPE_RANGES.get(dtype_of(node)), _EXTREMES[type(node)]
        for bound, other in ((node.a, node.b), (node.b, node.a)):
            if limits is not None and isinstance(bound, prim.IntImm) and int(bound.value) in limits:
                wins = (int(bound.value) == limits[0]) == (sign == "<")
                return self._expression(bound if wins else other)
        a, b = self._once(node.a).text, self._once(node.b).text
        return _Text(f"{a} {sign} {b} ? {a} : {b}", OTHER)

    def _cast(self, node: Any) -> _Text:
        value, dtype = self._expression(node.value), dtype_of(node)
        if dtype == "bool":
            return _Text(f"{value.within(SUM)} != 0", COMPARISON)
        return _Text(f"({_c_type(dtype)}){value.within(UNARY)}", UNARY)

    def _if_then_else(self, condition: Any, chosen: Any, otherwise: Any) -> _Text:
        """Only the branch that is chosen is evaluated: the other may read outside of its buffer."""
        test = self._expression(condition)
        kept, branches, values = self.lines, [], []
        self._depth += 1
        for branch in (chosen, otherwise):
            self.lines = []
            values.append(self._expression(branch))
            branches.append(self.lines)
        self._depth -= 1
        self.lines = kept
        if not any(branches):
            return _ternary(test, *values)
        result = self._new("x")
        self._line(f"{_c_type(dtype_of(chosen), is_value=True)} {result};")
        for head, lines, value in zip((f"if ({test.text}) {{", "} else {"), branches, values, strict=True):
            self._line(head)
            self.lines += [*lines, "  " * (self._depth + 1) + f"{result} = {value.text};"]
        self._line("}")
        return _Text(result)

    def _in_one(self, node: Any) -> _Text:
        """An expression written without variables, since it may not be evaluated at all."""
        before = len(self.lines)
        found = self._expression(node)
        if len(self.lines) > before:
            raise UnprintableError("a condition that is computed in steps")
        return found

    def _once(self, node: Any) -> _Text:
        """A name or number for the value of an expression, so that it is computed once and read several times."""
        found = self._expression(node)
        if isinstance(node, prim.IntImm) or found in self._values.values():
            return found
        return self._declared(found, node)

    def _declared(self, value: _Text, node: Any) -> _Text:
        """A variable that holds `value`, the text of `node`."""
        made = _Text(self._new("x"))
        self._line(f"const {_c_type(dtype_of(node), is_value=True)} {made.text} = {value.text};")
        return made

    def _element(self, buffer: Any, indices: Sequence[Any], is_read: bool = False) -> _Text:
        name = self._buffers[buffer]
        if is_read:
            self.read.add(name)
        if buffer in self._scalars:
            return _Text(name)
        (index,) = indices
        return _Text(f"{name}[{self._expression(index).text}]")

    def _new(self, kind: str) -> str:
        """A name that the function does not have yet: loops are i0, i1, …, values x0, …, variables held0, …."""
        self._made[kind] += 1
        return f"{kind}{self._made[kind] - 1}"


def _ternary(condition: _Text, chosen: _Text, otherwise: _Text) -> _Text:
    return _Text(f"{condition.within(COMPARISON)} ? {chosen.within(SUM)} : {otherwise.within(SUM)}", OTHER)


def _c_type(dtype: str, is_value: bool = False) -> str:
    """The C type of an element; a value that is no element is int32_t where it is bool."""
    if dtype not in C_TYPES:
        raise UnprintableError(f"arithmetic in {dtype}")
    return "int32_t" if is_value and dtype == "bool" else C_TYPES[dtype]
