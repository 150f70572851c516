"""Sums, products and shifts in int16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mrt.backend.computes.elementwise import sum_of
from mrt.backend.computes.integer import pack_shift, right_shift
from mrt.backend.kernels.x86.avx2.requantize_int16 import (
    factors_of_shifts,
    requantize_by_products,
    shifts_by_products,
)
from mrt.backend.kernels.x86.avx512.multiply_high import INT16_BITS, has_int16_vectors
from mrt.backend.kernels.x86.avx512.multiply_high import multiply_high as high_half
from mrt.backend.kernels.x86.avx512.requantize_int16 import multiply_high_int16, requantize_int16
from mrt.backend.memory.storage import View
from mrt.backend.operators.int16 import AddInt16, MultiplyHighInt16, RequantizeInt16, RightShiftInt16
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.packing import laid_operand
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.rounding import half_of
from mrt.backend.te.stages import elementwise
from mrt.backend.tir.expressions import Expression, Tensor
from mrt.symbol import Array, Symbol

compute(AddInt16, kind=Kind.ELEMENTWISE)(sum_of)
compute(RightShiftInt16, kind=Kind.ELEMENTWISE, packings={1: pack_shift})(right_shift)


def pack_factor(symbol: Symbol, factor: Array, surroundings: Surroundings) -> Packed:
    """The form says whether no factor is negative, and whether the machine multiplies vectors of words."""
    inner, whole = surroundings.walk.inner, has_int16_vectors(surroundings.machine)
    if symbol.inputs[0].dtype == "int32":
        return _in_both_words(symbol, factor, inner, (False, whole))
    non_negative = all(bounds.min >= 0 for bounds in surroundings.bounds)
    return laid_operand(symbol, 1, factor, inner, (non_negative, whole))


@compute(MultiplyHighInt16, kind=Kind.ELEMENTWISE, packings={1: pack_factor})
def multiply_high(symbol: Symbol, data: Tensor, factor: Operand) -> View:
    non_negative, whole = factor.form
    word = "uint16" if non_negative else "int16"

    def element(x: Expression, *factors: Expression) -> Expression:
        if len(factors) > 1:
            return multiply_high_int16(x, factors, whole)
        return high_half(x.astype(word), factors[0].astype(word), whole).astype(symbol.dtype)

    return elementwise(symbol, data, *factor.views, body=element, non_negative=non_negative)


def _in_both_words(symbol: Symbol, factor: Array, inner: int | None, form: Any) -> Packed:
    """A factor as the two words of an int32 are multiplied by it: f, and 2^16 f."""
    return _joined(form, [laid_operand(symbol, 1, factor.astype(np.int32) << bits, inner) for bits in (0, INT16_BITS)])


def pack_scale(symbol: Symbol[RequantizeInt16], factor: Array, surroundings: Surroundings) -> Packed:
    """The factor as the words of x are multiplied by it, of which the form says whether whole vectors of them are."""
    inner, whole = surroundings.walk.inner, has_int16_vectors(surroundings.machine)
    if symbol.operator.clips_data:
        return laid_operand(symbol, 1, factor.astype(np.int16), inner, whole)
    return _in_both_words(symbol, factor, inner, whole)


def pack_rest_of_shift(symbol: Symbol, shift: Array, surroundings: Surroundings) -> Packed:
    """What is left to shift an upper word by, and the halves that are added to it before. The form says whether it is
    multiplied instead, by the powers that take the places of the shifts."""
    left = shift.astype(np.int16) - np.int16(INT16_BITS)
    by_products = shifts_by_products(surroundings.machine)
    arrays = (factors_of_shifts(left) if by_products else left), half_of(left).astype(np.int16)
    packed = [laid_operand(symbol, 2, x, surroundings.walk.inner) for x in arrays]
    return _joined(by_products, packed)


def _joined(form: Any, packed: Sequence[Packed]) -> Packed:
    """Arrays that are packed one by one, as one operand."""
    arrays, storages = zip(*((each.arrays[0], each.storages[0]) for each in packed), strict=True)
    return Packed(form, arrays, storages)


@compute(RequantizeInt16, kind=Kind.ELEMENTWISE, packings={1: pack_scale, 2: pack_rest_of_shift})
def requantize(symbol: Symbol[RequantizeInt16], data: Tensor, factor: Operand, rest: Operand) -> View:
    """Of (x · f + 2^(s-1)) >> s only the upper word of x · f counts, since 2^16 divides 2^(s-1)."""
    multiplied = "uint16" if symbol.operator.clips_data else "int32"

    def element(x: Expression, left: Expression, half: Expression, *factors: Expression) -> Expression:
        x, half, left = x.astype("int32"), half.astype("uint16"), left.astype("uint16")
        given = [each.astype(multiplied) for each in factors]
        if rest.form and symbol.operator.clips_data:
            made = requantize_by_products(x, half, left, *given)
        else:
            made = requantize_int16(x, given, half, left, factor.form)
        return made.astype(symbol.dtype)

    return elementwise(symbol, data, *rest.views, *factor.views, body=element, non_negative=True)
