"""Sums, products and shifts of words."""

from __future__ import annotations

from mrt.backend.compute import Kind, compute
from mrt.backend.computes.elementwise import sum_of
from mrt.backend.computes.integer import pack_shift, right_shift
from mrt.backend.expressions import Expression, Tensor
from mrt.backend.kernels.upper_word import has_whole
from mrt.backend.kernels.upper_word import upper_word as upper_word_of
from mrt.backend.packing import Operand, Packed, Surroundings, laid_operand, packing
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
