"""How parameters are laid out for the computes that read them, while compiling."""

from __future__ import annotations

from typing import Any

from mrt.backend.memory.storage import Storage
from mrt.backend.te.operands import Packed, Surroundings
from mrt.backend.te.registry import Kind, compute_entry, kind_of, random_access_inputs
from mrt.symbol import Array, Symbol
from mrt.symbol.types import type_of


def form_computed(symbol: Symbol, index: int, surroundings: Surroundings) -> Packed | None:
    """The form of a computed tensor that is input `index` of `symbol`; None where its compute asks for none."""
    form = compute_entry(symbol).forms.get(index)
    return None if form is None else Packed(form(symbol, surroundings), (), ())


def pack_parameter(symbol: Symbol, index: int, value: Array, surroundings: Surroundings) -> Packed:
    """How the compute of `symbol` gets a parameter that is its input `index`."""
    known = compute_entry(symbol)
    if index in known.forms:
        return Packed.as_is(value, known.forms[index](symbol, surroundings))
    packed = known.packings[index](symbol, value, surroundings) if index in known.packings else None
    return packed or laid_operand(symbol, index, value, surroundings.walk.inner)


def laid_operand(symbol: Symbol, index: int, value: Array, inner: int | None, form: Any = None) -> Packed:
    """The operand of an elementwise operator in the order of the result, whose axis `inner` is innermost.

    The padding holds 1, which divides. Anything else stays as it is.
    """
    missing = symbol.type.rank - value.ndim
    is_operand = kind_of(symbol) is Kind.ELEMENTWISE and index not in random_access_inputs(symbol)
    if inner is None or not is_operand or inner < missing:
        return Packed.as_is(value, form)
    axis = inner - missing
    if value.shape[axis] == 1:
        return Packed.as_is(value, form)
    storage = Storage.with_inner(type_of(value), axis)
    return Packed(form, (storage.lay(value, fill=1),), (storage,))
