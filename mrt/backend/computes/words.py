"""Sums, products and shifts of words."""

from __future__ import annotations

import numpy as np

from mrt.backend.compute import Kind, compute
from mrt.backend.computes.elementwise import sum_of
from mrt.backend.computes.integer import pack_shift, right_shift
from mrt.backend.expressions import Expression, Tensor
from mrt.backend.kernels.saturated_word import saturated_word
from mrt.backend.kernels.upper_word import WORD, has_whole
from mrt.backend.kernels.upper_word import upper_word as upper_word_of
from mrt.backend.packing import Operand, Packed, Surroundings, laid_operand, packing
from mrt.backend.rounding import half_of
from mrt.backend.stages import elementwise
from mrt.backend.storage import View
from mrt.symbol import Array, Symbol

compute("word_sum", kind=Kind.ELEMENTWISE)(sum_of)
compute("word_shift", kind=Kind.ELEMENTWISE)(right_shift)
packing("word_shift", 1)(pack_shift)


@packing("upper_word", 1)
def pack_factor(symbol: Symbol, factor: Array, surroundings: Surroundings) -> Packed:
    """The form says whether no factor is negative, and whether the machine multiplies vectors of words."""
    natural = all(bounds.min >= 0 for bounds in surroundings.bounds)
    return laid_operand(symbol, 1, factor, surroundings.walk.inner, (natural, has_whole(surroundings.machine)))


@compute("upper_word", kind=Kind.ELEMENTWISE)
def upper_word(symbol: Symbol, data: Tensor, factor: Operand) -> View:
    natural, whole = factor.form
    word = "uint16" if natural else "int16"

    def element(x: Expression, f: Expression) -> Expression:
        return upper_word_of(x.astype(word), f.astype(word), whole).astype(symbol.dtype)

    return elementwise(symbol, data, *factor.views, body=element, natural=natural)


@packing("word_scale", 1)
def pack_scale(symbol: Symbol, factor: Array, surroundings: Surroundings) -> Packed:
    """The form says whether the machine computes vectors of words."""
    whole = has_whole(surroundings.machine)
    return laid_operand(symbol, 1, factor.astype(np.int16), surroundings.walk.inner, whole)


@packing("word_scale", 2)
def pack_rest_of_shift(symbol: Symbol, shift: Array, surroundings: Surroundings) -> Packed:
    """What is left to shift an upper word by, and the halves that are added to it before."""
    left = shift.astype(np.int16) - np.int16(WORD)
    packed = [laid_operand(symbol, 2, x, surroundings.walk.inner) for x in (left, half_of(left).astype(np.int16))]
    arrays, storages = zip(*((each.arrays[0], each.storages[0]) for each in packed), strict=True)
    return Packed("rest", arrays, storages)


@compute("word_scale", kind=Kind.ELEMENTWISE)
def word_scale(symbol: Symbol, data: Tensor, factor: Operand, rest: Operand) -> View:
    """Of (x · f + 2^(s-1)) >> s only the upper word of x · f counts, since 2^16 divides 2^(s-1)."""
    whole, word = factor.form, "uint16"

    def element(x: Expression, f: Expression, s: Expression, half: Expression) -> Expression:
        upper = upper_word_of(saturated_word(x.astype("int32"), whole), f.astype(word), whole)
        return ((upper + half.astype(word)) >> s.astype(word)).astype(symbol.dtype)

    return elementwise(symbol, data, *factor.views, *rest.views, body=element, natural=True)
