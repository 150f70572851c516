"""Choosing among values: the larger or smaller of two, where, the place of an extreme; and marking a place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.arithmetic import Arithmetic, of_one_dtype
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.scalar import PlusScalar
from mrt.symbol.operators.selection import (
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    MaximumScalar,
    MinimumScalar,
    Where,
)
from mrt.symbol.operators.transform import Take

MAXIMUM = Arithmetic(ElemwiseMaximum, BroadcastMaximum, MaximumScalar, MaximumScalar)
MINIMUM = Arithmetic(ElemwiseMinimum, BroadcastMinimum, MinimumScalar, MinimumScalar)


def chosen(node: ModelNode) -> Symbol:
    """The node's second input where the first holds, else the third.

    A condition of fewer axes gets leading ones, since one of rank 1 would choose rows.
    """
    x, y = of_one_dtype(node, [node.symbol(1, "x"), node.symbol(2, "y")])
    rank = max(x.type.rank, y.type.rank)
    given = node.shape(0)
    if len(given) >= rank:
        return node.apply(Where(), [node.symbol(0, "condition"), x, y])
    shape = (1,) * (rank - len(given)) + given
    if node.is_known(0):
        condition = node.parameter_of(0, "condition", f"rank{rank}", lambda value: value.reshape(shape))
    else:
        condition = reshaped(node, node.symbol(0), shape, "condition")
    return node.apply(Where(), [condition, x, y])


def placed(node: ModelNode, kind: Callable[..., Operator], axis: int | None, keepdims: bool) -> Symbol:
    """The first place of the extreme of the node's data along `axis`, or in all of it; a float where the data is.

    kind: ArgMax or ArgMin.
    """
    data = node.symbol(0)
    if not data.type.rank:
        raise GraphError(f"{node.label}: data is {data.type}; rank 1 or more is needed")
    place = None if axis is None else node.axis(axis, data.type.rank)
    # MXNet has no tensors of rank 0: what has no axis left is a vector of one.
    is_scalar = not keepdims and (axis is None or data.type.rank == 1)
    found = node.apply(kind(axis=place, keepdims=keepdims), [data], "place" if is_scalar else "")
    return reshaped(node, found, ()) if is_scalar else found


def hot_rows(
    node: ModelNode,
    indices: Symbol,
    depth: int,
    off: float,
    on: float,
    suffix: str = "",
    wraps: bool = False,
    dtype: str = "float32",
) -> Symbol:
    """Along a new last axis of length `depth`, `on` at each index and `off` elsewhere; only `off` for an index outside.

    wraps: indices from -depth to -1 count from the end. Rows of a table: those before its first and after its last, to
    which other indices are moved, have no `on`. dtype: of the rows.
    """
    first = depth if wraps else 0
    table = np.full(node.made((first + depth + 2, depth)), off, dtype)
    places = np.arange(first + depth)
    table[places + 1, places % depth] = on
    later = node.apply(PlusScalar(first + 1.0), [indices], "places")
    return node.apply(Take(axis=0, mode="clip"), [node.parameter(table, "table"), later], suffix)
