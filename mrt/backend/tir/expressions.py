"""Scalar expressions of TVM: constants, bindings, and indices into arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from tvm import ir, sym, tirx
from tvm.ir import prim
from tvm.target import codegen

from mrt.symbol.bounds import DTYPE_RANGES

# TVM takes loops of vectors apart for operators that are not marked so; LLVM has this one for vectors.
ir.register_op_attr("tirx.nearbyint", "TVectorizable", True)

Tensor = Any
"""A `te.Tensor`, or a `View` of one; TVM has no types that mypy could check."""
Expression = Any
"""A `tirx.PrimExpr`."""


def bind(value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """`body(value)` with `value` computed once, so that chains of fused operators do not grow exponentially.

    A maximum or minimum that simplifies to a constant is replaced by it: TVM refuses a variable that is constant.
    """
    if isinstance(value, (tirx.Max, tirx.Min)) and isinstance(known := sym.Analyzer().simplify(value), tirx.IntImm):
        return body(known)
    held = tirx.Var("held", dtype_of(value))
    return tirx.Let(held, value, body(held))


def bind_each(values: Sequence[Expression], body: Callable[..., Expression]) -> Expression:
    """`bind` of several values."""
    if not values:
        return body()
    first, *others = values
    return bind(first, lambda held: bind_each(others, lambda *rest: body(held, *rest)))


def once(value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """`body(value)`, which may write the value several times: it is computed once if it binds variables itself, which
    TVM lets nobody bind twice. Any other is left to LLVM, and its loops to be taken apart."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, tirx.Let):
            return bind(value, body)
        waiting += operands(found)
    return body(value)


OPERANDS = ("a", "b", "value", "body", "condition", "true_value", "false_value")
"""What TVM names the parts of an expression that are computed."""
CONSTANTS = (tirx.IntImm, tirx.FloatImm, ir.StringImm)


def operands(value: Any) -> list[Any]:
    """The expressions that one is made of."""
    if isinstance(value, ir.Call):
        return list(value.args)
    if isinstance(value, (tirx.Var, *CONSTANTS)):
        return []
    return [getattr(value, name) for name in OPERANDS if hasattr(value, name)]


WITHIN = -DTYPE_RANGES["int32"][0]
"""int32 holds all integers of less magnitude."""
_REACHES: Mapping[Any, Callable[[int, int], int]] = {
    prim.Add: int.__add__,
    prim.Sub: int.__add__,
    prim.Max: int.__add__,
    prim.Min: int.__add__,
    prim.Mul: int.__mul__,
}


def combined(body: Callable[..., Expression], operands: Sequence[Expression]) -> Expression:
    """`body` of the operands, kept from rearrangements that might overflow.

    TVM's simplifier treats int32 as unbounded integers, while overflow is undefined in LLVM and C. The certificate
    bounds x + c and (x + c) + y, but not x + y, which TVM computes first to add c at last; max(x, c) - c may become
    max(x - c, 0). So, unless every rearrangement of the terms stays within int32, each operand is made a term that TVM
    does not look into. This costs no instruction: LLVM and C get the operand itself.
    """
    made = body(*operands)
    if dtype_of(made) not in ("int32", "bool") or _reach(made) < WITHIN:
        return made
    return body(*map(as_term, operands))


def as_term(value: Expression) -> Expression:
    """The same number as one term, which TVM's simplifier does not combine with those around it."""
    return opaque(value) if isinstance(value, _TAKEN_APART) else value


def cast(value: Expression, dtype: str) -> Expression:
    """`value` in a dtype that holds it.

    TVM also casts the limits in `value`, and refuses one that the dtype does not hold, though no value reaches it. It
    finds no limits behind a bitwise or.
    """
    fits = dtype not in DTYPE_RANGES or _limits_fit(value, *DTYPE_RANGES[dtype])
    return (value if fits else value | constant(0, dtype_of(value))).astype(dtype)


def _limits_fit(value: Expression, lo: int, hi: int) -> bool:
    if isinstance(value, prim.IntImm):
        return lo <= int(value) <= hi
    if isinstance(value, ir.Call) and value.op.name == SEAL:
        return _limits_fit(value.args[0], lo, hi)
    return type(value) not in _REACHES or all(_limits_fit(x, lo, hi) for x in (value.a, value.b))


SEAL = "tirx.reinterpret"
"""TVM's operator that gives the same bits in another dtype, or in the same one; `StmtSimplify` keeps it."""

CHOICE = "prim.if_then_else"
"""TVM's operator that gives one of two values by a condition, and computes no other."""


def opaque(value: Expression) -> Expression:
    """The same int32, of which TVM's simplifier knows nothing else; values of other dtypes as they are."""
    return value if dtype_of(value) != "int32" else unsimplified(value)


def unsimplified(value: Expression) -> Expression:
    """The same number, of which TVM's simplifier knows nothing else."""
    return ir.Call(SEAL, [value], ret_ty=dtype_of(value))


_TAKEN_APART = (*_REACHES, prim.IntImm, prim.FloorDiv, prim.FloorMod, prim.Select, prim.Let)
"""Expressions whose operands TVM's simplifier combines with those of the expression around them."""


def _reach(value: Expression) -> int:
    """A bound on the magnitude of `value` and of all that rearranging its terms may compute.

    Each constant counts as 1 at least, so that a factor of 0 hides nothing.
    """
    if isinstance(value, prim.IntImm):
        return max(abs(int(value)), 1)
    if isinstance(value, prim.Cast):
        return max(map(abs, DTYPE_RANGES.get(dtype_of(value.value), (WITHIN,))))
    if type(value) in _REACHES:
        return _REACHES[type(value)](_reach(value.a), _reach(value.b))
    return WITHIN


def dtype_of(value: Expression) -> str:
    """The dtype of a scalar expression."""
    return str(value.ty)


def ordered(dtype: str) -> str:
    """The dtype in which maxima and minima of `dtype` are taken: TVM has none of bool."""
    return "uint8" if dtype == "bool" else dtype


PURE = 1
"""tvm::tirx::CallEffectKind::kPure."""
SMALL = 1 << 10
_NUMBERS: dict[tuple[int, str], Expression] = {}
"""The constants of small integers by value and dtype."""


def constant(value: float | int | bool, dtype: str) -> Expression:
    """The number; of a small integer always the same object, since a kernel has thousands."""
    if type(value) is not int or not 0 <= value < SMALL:
        return tirx.const(value, dtype)
    found = _NUMBERS.get((value, dtype))
    # Whoever is the first: what a kernel is written as must not depend on threads.
    return _NUMBERS.setdefault((value, dtype), tirx.const(value, dtype)) if found is None else found


def llvm_call(dtype: str, name: str, *arguments: Expression) -> Expression:
    """The call of an intrinsic of LLVM that has no effect. TVM's own function looks into each argument for long."""
    number = constant(codegen.llvm_lookup_intrinsic_id(name), "int32")
    return ir.Call(ir.Op.get("tirx.call_llvm_pure_intrin"), [number, *arguments], ret_ty=dtype)


def of_lanes(dtype: str, lanes: int) -> str:
    """The dtype of a vector of so many lanes; of one lane that of its element."""
    return f"{dtype}x{lanes}" if lanes > 1 else dtype


def shuffled(vectors: Sequence[Expression], places: Iterable[int]) -> Expression:
    """The elements at some places of vectors that follow each other."""
    return tirx.Shuffle(vectors, [constant(place, "int32") for place in places])


def substitute(
    expressions: Sequence[Expression], variables: Sequence[Any], values: Sequence[Expression]
) -> list[Expression]:
    """The expressions with each variable replaced by its value."""
    # A slice of TVM's arrays is read much faster than they are walked.
    made: list[Expression] = tirx.IndexMap(variables, expressions, None).map_indices(values)[:]
    return made


def replaced(value: Expression, part: Expression, other: Expression) -> Expression:
    """The expression with another one in place of a part of it, which is looked for everywhere but within indices."""
    if value.same_as(part):
        return other
    if isinstance(value, ir.Call):
        return ir.Call(value.op, [replaced(each, part, other) for each in value.args], ret_ty=value.ty)
    if isinstance(value, prim.Cast):
        return prim.Cast(dtype_of(value), replaced(value.value, part, other))
    if isinstance(value, prim.Let):
        return prim.Let(value.var, replaced(value.value, part, other), replaced(value.body, part, other))
    if isinstance(value, prim.Select):
        parts = (value.condition, value.true_value, value.false_value)
        return prim.Select(*(replaced(each, part, other) for each in parts))
    if hasattr(value, "a") and hasattr(value, "b"):
        return type(value)(replaced(value.a, part, other), replaced(value.b, part, other))
    return value


def whole_part(x: Expression, divisor: int) -> Expression:
    """floor(x / divisor) of an index x >= 0, which may be a sum.

    TVM 0.27 simplifies (i mod n + a) // d wrongly to (i + a) mod n // d where d divides n, which differs
    for the last i. Fused loops give such an i mod n. Truncated division, which is equal here, it leaves alone.
    """
    return tirx.truncdiv(x, divisor)


def remainder(x: Expression, divisor: int) -> Expression:
    """x mod divisor of such an index; TVM simplifies floor modulo wrongly, too, beside an index i // n."""
    return tirx.truncmod(x, divisor)


def ravel(at: Sequence[Expression], shape: Sequence[int]) -> Expression:
    """The flat place of an index in an array of `shape`; it undoes `unravel`."""
    flat: Expression = constant(0, "int32")
    for i, n in zip(at, shape, strict=True):
        flat = flat * n + i
    return sym.Analyzer().simplify(flat)


def regrouped(at: Sequence[Expression], shape: Sequence[int], source: Sequence[int]) -> list[Expression]:
    """The index in an array of `source` of what has the index `at` in one of `shape`, of the same elements in order.

    Neighbouring axes that count as many elements in both depend on each other alone, so that no flat place is divided
    where axes are only split, or only joined.
    """
    if 0 in shape:
        return [constant(0, "int32") for _ in source]
    made: list[Expression] = []
    first = start = 0
    while first < len(shape) or start < len(source):
        last, stop = min(first + 1, len(shape)), min(start + 1, len(source))
        while (here := prod(shape[first:last])) != (there := prod(source[start:stop])):
            last, stop = (last + 1, stop) if here < there else (last, stop + 1)
        flat = ravel(at[first:last], shape[first:last])
        found = iter(unravel(flat, [length for length in source[start:stop] if length > 1]))
        made += [constant(0, "int32") if length == 1 else next(found) for length in source[start:stop]]
        first, start = last, stop
    return made


def unravel(flat: Expression, shape: Sequence[int]) -> list[Expression]:
    """The index in an array of `shape` of a flat place."""
    at: list[Expression] = []
    for axis in reversed(range(len(shape))):
        at.insert(0, flat if axis == 0 else tirx.floormod(flat, shape[axis]))
        flat = tirx.floordiv(flat, shape[axis])
    return at
