"""Powers of which one side is constant, by the operator that fits the exponent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.shaping import broadcast, broadcast_shape, reshaped
from mrt.symbol import Array, Operator, Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.functions import Exp, PowerScalar, Reciprocal, Rsqrt, Sqrt, Square
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.transform import Concat, Take

_POWERS: dict[float, Callable[[], Operator]] = {2.0: Square, 0.5: Sqrt, -0.5: Rsqrt, -1.0: Reciprocal}
"""The powers that have an operator of their own."""

_MOST_EXPONENTS = 64
"""So many different exponents a tensor may have: each is a function of its own."""


def powered(node: ModelNode) -> Symbol:
    """The node's first input to the power of its second.

    Case 1: a constant base, as exp(y log b). Case 2: one constant exponent. Case 3: constant exponents that differ
    between elements: those of each exponent together. UnsupportedOperatorError where both sides are computed, or a
    base of case 1 is not positive.
    """
    if node.is_known(0) and not node.is_known(1):
        return _of_known_base(node, node.known(0, "base"))
    if not node.is_known(1):
        raise node.unsupported(
            "input exponent", "computed from the data", "a constant, or exp(exponent * log(base)) of a positive base,"
        )
    exponent, data = node.known(1, "exponent"), node.symbol(0)
    if exponent.size == 1 and exponent.ndim <= data.type.rank:
        return _power(node, data, float(exponent.reshape(())))
    return _by_exponents(node, data, exponent)


def _power(node: ModelNode, data: Symbol, exponent: float, suffix: str = "") -> Symbol:
    if exponent == 1.0:
        return data
    make = _POWERS.get(exponent)
    return node.apply(PowerScalar(exponent) if make is None else make(), [data], suffix)


def _of_known_base(node: ModelNode, base: Array) -> Symbol:
    exponent = node.symbol(1)
    if not (np.isfinite(base) & (base > 0)).all():
        raise node.unsupported("input base", np.ravel(base)[:3].tolist(), "a computed one, or positive finite numbers")
    rates = np.log(base.astype(np.float64))
    if base.size == 1 and base.ndim <= exponent.type.rank:
        scaled = node.apply(MulScalar(float(rates.reshape(()))), [exponent], "scaled")
    else:
        scaled = node.apply(BroadcastMul(), [exponent, node.parameter(rates, "rates")], "scaled")
    return node.apply(Exp(), [scaled])


def _by_exponents(node: ModelNode, data: Symbol, exponent: Array) -> Symbol:
    """The axes along which the exponents differ as one, of which the elements of each exponent are taken, raised and
    put back in their places.
    """
    shape = broadcast_shape(node, data.shape, exponent.shape)
    aligned = exponent.reshape((1,) * (len(shape) - exponent.ndim) + exponent.shape)
    varied = [axis for axis, size in enumerate(aligned.shape) if size > 1] or [len(shape) - 1]
    first, stop = varied[0], varied[-1] + 1
    values = np.broadcast_to(aligned.reshape(aligned.shape[first:stop]), shape[first:stop]).reshape(-1)
    kinds, places = np.unique(values, return_inverse=True)
    if not 0 < len(kinds) <= _MOST_EXPONENTS:
        raise node.unsupported("input exponent", f"of {len(kinds)} different numbers", f"at most {_MOST_EXPONENTS}")
    whole = broadcast(node, data, shape, "whole")
    merged = reshaped(node, whole, (*shape[:first], len(values), *shape[stop:]), "merged")
    parts = [np.flatnonzero(places == kind) for kind in range(len(kinds))]
    raised = []
    for number, (kind, part) in enumerate(zip(kinds.tolist(), parts, strict=True)):
        indices = node.parameter(part.astype(np.int32), f"places{number}")
        taken = node.apply(Take(axis=first), [merged, indices], f"taken{number}")
        raised.append(_power(node, taken, float(kind), f"power{number}"))
    order = np.argsort(np.concatenate(parts), kind="stable").astype(np.int32)
    joined = node.apply(Concat(dim=first), raised, "joined") if len(raised) > 1 else raised[0]
    ordered = node.apply(Take(axis=first), [joined, node.parameter(order, "order")], "ordered")
    return reshaped(node, ordered, shape)
