"""Integer square roots, divisions and logic on bits: exact integer steps, no floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.generic.division import divided_by, floor_division, reciprocals
from mrt.backend.memory.storage import View
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.packing import laid_operand
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import broadcast, elementwise, inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, bind, constant
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.bitwise import BitwiseAnd
from mrt.symbol.operators.integer_math import FloorDivide, FloorMod, IntegerSqrt

SHARED = 2
"""A divisor of so many numbers or more is inverted first."""
RECIPROCAL = "reciprocal"
"""The form of constant divisors."""
PAIRS = 16
"""Pairs of bits in the data."""


@compute(IntegerSqrt, kind=Kind.STEPS)
def integer_sqrt(symbol: Symbol[IntegerSqrt], data: Tensor) -> Tensor:
    """One bit of the root a step, as roots are taken by hand: bring down two bits, subtract 4 root + 1 if it fits.

    The steps are a reduction that folds (root, remainder) from the highest pair of bits to the lowest; schedules keep
    the order of a reduction's terms.
    """
    fraction_bits, dtype = symbol.operator.fraction_bits, symbol.dtype
    steps = te.reduce_axis((0, PAIRS + fraction_bits), "step")

    def number(value: int) -> Expression:
        return constant(value, dtype)

    def longer(state: Sequence[Expression], following: Sequence[Expression]) -> tuple[Expression, Expression]:
        root, remainder = state
        held, trial = remainder * number(4) + following[1], root * number(4) + number(1)
        # A sign serves as condition: those that are written so have TVM reason about every place read below them.
        rest = held - trial
        lacks = rest >> number(31)
        return root * number(2) + number(1) + lacks, rest + (trial & lacks)

    fold = te.comm_reducer(longer, lambda *dtypes: tuple(constant(0, each) for each in dtypes), name="square_root")

    def element(*at: Expression) -> Expression:
        # Beyond the last pair the place is masked to stay a valid shift; what it brings is not used.
        place = (number(2 * (PAIRS - 1)) - steps * number(2)) & number(31)
        pair = (data(*at).astype(dtype) >> place) & number(3)
        pair = pair & (steps - number(PAIRS) >> number(31))
        return fold((number(0), pair), axis=steps)

    root, _ = stage(symbol.shape, element, "roots")
    return inlined(symbol.shape, symbol.dtype, lambda *at: root(*at))


def pack_divisor(symbol: Symbol, divisor: Array, surroundings: Surroundings) -> Packed | None:
    """The reciprocals and shifts of constant divisors; None where one is below 1."""
    if symbol.dtype != "int32" or int(divisor.min(initial=1)) < 1:
        return None
    by, shift = (laid_operand(symbol, 1, part, surroundings.walk.inner) for part in reciprocals(divisor))
    return Packed(RECIPROCAL, by.arrays + shift.arrays, by.storages + shift.storages)


def divide_each(symbol: Symbol, lhs: View, rhs: View) -> View:
    """Number by number: the truncated quotient, less 1 where the remainder is negative; divisors are positive."""
    sign = constant(int(symbol.dtype.removeprefix("int")) - 1, symbol.dtype)
    return _divided(symbol, lhs, rhs, lambda x, y: tirx.truncdiv(x, y) + (tirx.truncmod(x, y) >> sign))


@compute(
    FloorDivide,
    kind=Kind.ELEMENTWISE,
    unpadded=(1,),
    on_scalars=divide_each,
    packings={1: pack_divisor},
)
def floor_divide(symbol: Symbol, lhs: View, rhs: View | Operand) -> View:
    """A divisor that many numbers share is inverted first, since processors do not divide vectors of integers.

    The padding of divisors, which may be 0, is neither inverted nor divided by.
    """
    dtype, shape = symbol.dtype, symbol.inputs[1].shape
    if isinstance(rhs, Operand):

        def by_constant(x: Expression, m: Expression, shift: Expression) -> Expression:
            return bind(x.astype(dtype), lambda v: divided_by(v, tirx.reinterpret("uint32", m), shift.astype("uint32")))

        return elementwise(symbol, lhs, *rhs.views, body=by_constant)
    if dtype == "int32" and symbol.type.size >= SHARED * symbol.inputs[1].type.size:
        divided = floor_division(lambda *at: rhs(*at).astype(dtype), shape)
        missing = symbol.type.rank - len(shape)

        def element(*at: Expression) -> Expression:
            places = [constant(0, "int32") if n == 1 else i for i, n in zip(at[missing:], shape, strict=True)]
            return bind(broadcast(lhs, at, symbol.shape).astype(dtype), lambda x: divided(x, *places))

        return inlined(symbol.shape, dtype, element)
    return divide_each(symbol, lhs, rhs)


@compute(FloorMod, kind=Kind.ELEMENTWISE, unpadded=(1,))
def floor_mod(symbol: Symbol, lhs: View, rhs: View) -> View:
    """The remainder of the truncated quotient, plus the divisor where it is negative; divisors are positive.

    Where their sum cannot overflow, the remainder of that sum is used instead: LLVM 22 was seen to lose the comparison
    with 0, in code of a layer with AVX512-VNNI.
    """

    def by_sum(x: Expression, y: Expression) -> Expression:
        return tirx.truncmod(tirx.truncmod(x, y) + y, y)

    def by_sign(x: Expression, y: Expression) -> Expression:
        nothing = constant(0, symbol.dtype)
        return bind(tirx.truncmod(x, y), lambda left: left + tirx.Select(left < nothing, y, nothing))

    has_room = np.dtype(rhs.dtype).itemsize < np.dtype(symbol.dtype).itemsize
    return _divided(symbol, lhs, rhs, by_sum if has_room else by_sign)


def _divided(symbol: Symbol, lhs: View, rhs: View, body: Callable[[Expression, Expression], Expression]) -> View:
    """`body` of two numbers, each computed once."""

    def element(x: Expression, y: Expression) -> Expression:
        return bind(x.astype(symbol.dtype), lambda v: bind(y.astype(symbol.dtype), lambda by: body(v, by)))

    return elementwise(symbol, lhs, rhs, body=element)


@compute(BitwiseAnd, kind=Kind.ELEMENTWISE)
def bitwise_and(symbol: Symbol, lhs: View, rhs: View) -> View:
    dtype = symbol.dtype
    return elementwise(symbol, lhs, rhs, body=lambda x, y: x.astype(dtype) & y.astype(dtype))
