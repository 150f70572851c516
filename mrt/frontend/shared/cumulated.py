"""What an operator makes of the elements up to each along an axis: cumulated products and maxima."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.slicing import sliced
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.transform import Concat, SliceAxis


def cumulated(node: ModelNode, data: Symbol, axis: int, make: Callable[[], Operator], suffix: str = "") -> Symbol:
    """Y[i] = X[0] ∘ … ∘ X[i] along an axis counted from the front, ∘ being associative.

    By doubling: after the step s every element has those of 2 s places, so that the depth is the logarithm of the
    length.
    """
    length = data.shape[axis]
    step = 1
    while step < length:
        ahead = node.apply(SliceAxis(axis=axis, begin=0, end=length - step), [data], f"{suffix}ahead{step}")
        later = node.apply(SliceAxis(axis=axis, begin=step, end=None), [data], f"{suffix}later{step}")
        first = node.apply(SliceAxis(axis=axis, begin=0, end=step), [data], f"{suffix}first{step}")
        joined = node.apply(make(), [ahead, later], f"{suffix}joined{step}")
        step *= 2
        name = suffix if step >= length else f"{suffix}step{step}"
        data = node.apply(Concat(dim=axis), [first, joined], name)
    return data


def cumulated_product(node: ModelNode, axis: int, exclusive: bool, reverse: bool) -> Symbol:
    """The products of the elements of the node's data up to each along an axis.

    exclusive: without the element itself. reverse: from the end.
    """
    data, backwards = node.symbol(0), {axis: slice(None, None, -1)}
    if reverse and data.shape[axis] > 1:
        data = sliced(node, data, backwards, "turned")
    if exclusive:
        shape = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
        ones = [node.parameter(np.ones(node.made(shape), data.dtype), "ones")]
        if data.shape[axis] > 1:
            ones.append(node.apply(SliceAxis(axis=axis, begin=0, end=data.shape[axis] - 1), [data], "before"))
        data = node.apply(Concat(dim=axis), ones, "shifted") if len(ones) > 1 else ones[0]
    turns_back = reverse and data.shape[axis] > 1
    data = cumulated(node, data, axis, ElemwiseMul, "turned_product" if turns_back else "")
    return sliced(node, data, backwards) if turns_back else data
