"""Integer square roots and divisions: exact integer steps, no floats."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx

from mrt.backend.compute import Kind, compute, record
from mrt.backend.expressions import Expression, Tensor, constant
from mrt.backend.stages import elementwise, inlined, stage
from mrt.symbol import Symbol
from mrt.symbol.operators.integer_math import IntegerSqrt

PAIRS = 16
"""Pairs of bits in the data."""


@compute("integer_sqrt")
def integer_sqrt(symbol: Symbol, data: Tensor) -> Tensor:
    """One bit of the root a step, as roots are taken by hand: bring down two bits, subtract 4 root + 1 if it fits.

    The steps are a reduction that folds (root, remainder) from the highest pair of bits to the lowest; schedules keep
    the order of a reduction's terms.
    """
    fraction_bits, dtype = record(symbol, IntegerSqrt).fraction_bits, symbol.dtype
    steps = te.reduce_axis((0, PAIRS + fraction_bits), "step")

    def number(value: int) -> Expression:
        return constant(value, dtype)

    def longer(state: Sequence[Expression], following: Sequence[Expression]) -> tuple[Expression, Expression]:
        root, remainder = state
        held, trial = remainder * number(4) + following[1], root * number(4) + number(1)
        fits = held >= trial
        return (
            root * number(2) + tirx.Select(fits, number(1), number(0)),
            held - tirx.Select(fits, trial, number(0)),
        )

    fold = te.comm_reducer(longer, lambda *dtypes: tuple(constant(0, each) for each in dtypes), name="square_root")

    def element(*at: Expression) -> Expression:
        # Beyond the last pair the place is masked to stay a valid shift; what it brings is not used.
        place = (number(2 * (PAIRS - 1)) - steps * number(2)) & number(31)
        pair = (data(*at).astype(dtype) >> place) & number(3)
        pair = tirx.Select(steps < PAIRS, pair, number(0))
        return fold((number(0), pair), axis=steps)

    root, _ = stage(symbol.shape, element, "roots")
    return inlined(symbol.shape, symbol.dtype, lambda *at: root(*at))


@compute("floor_divide", kind=Kind.ELEMENTWISE)
def floor_divide(symbol: Symbol, lhs: Tensor, rhs: Tensor) -> Tensor:
    dtype = symbol.dtype
    return elementwise(symbol, lhs, rhs, body=lambda x, y: tirx.floordiv(x.astype(dtype), y.astype(dtype)))
