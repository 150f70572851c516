"""Integers that a float network computes of integers alone, such as positions of token ids: they stay as they are."""

from __future__ import annotations

import enum
from weakref import WeakKeyDictionary

from mrt.symbol import Symbol
from mrt.symbol.operators.integer import Cast


class _Kind(enum.Enum):
    """What is known of a tensor."""

    OTHER = "other"
    GIVEN = "given"
    """Integers that the network is given, or holds, and what only moves them: they may have a scale."""
    COMPUTED = "computed"


_KINDS: WeakKeyDictionary[Symbol, _Kind] = WeakKeyDictionary()


def is_computed(symbol: Symbol) -> bool:
    """Whether a tensor of a float graph holds integers that operators made of integers alone.

    Not so what moves an input, which has the form that is declared of that; what quantizers of the network give, which
    stands for reals; and what layers give, whose weights have scales.
    """
    pending = [symbol]
    while pending:
        last = pending[-1]
        missing = [source for source in last.inputs if source not in _KINDS]
        if last in _KINDS or not missing:
            pending.pop()
            _KINDS.setdefault(last, _kind(last))
        else:
            pending += missing
    return _KINDS[symbol] is _Kind.COMPUTED


def is_exact(symbol: Symbol) -> bool:
    """Whether a symbol makes integers of integers alone by an operator that does so in the integer graph too; a cast
    makes nothing."""
    return is_computed(symbol) and not isinstance(symbol.operator, Cast)


def _kind(symbol: Symbol) -> _Kind:
    if not symbol.type.is_integer:
        return _Kind.OTHER
    if symbol.is_variable:
        return _Kind.GIVEN
    operator, kinds = symbol.operator, {_KINDS[source] for source in symbol.inputs}
    if _Kind.OTHER in kinds or operator.is_trained_quantizer or operator.weight_channel_axis is not None:
        return _Kind.OTHER
    return _Kind.GIVEN if operator.keeps_scale and kinds == {_Kind.GIVEN} else _Kind.COMPUTED
