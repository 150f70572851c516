"""Reductions over axes, those made of several operators, and what becomes of a tensor that has no axis left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastSub
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.functions import Abs, Exp, Log, Sqrt, Square
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.selection import Min
from mrt.symbol.operators.transform import Concat, SliceAxis


@dataclass(frozen=True)
class Reduced:
    """A reduction (Sum, Mean, Max or Min) of a function of the elements, and a function of what it gives."""

    kind: Callable[..., Operator]
    before: Callable[[], Operator] | None = None
    after: Callable[[], Operator] | None = None


REDUCTIONS: dict[str, Reduced] = {
    "sum": Reduced(Sum),
    "mean": Reduced(Mean),
    "max": Reduced(Max),
    "min": Reduced(Min),
    "l1": Reduced(Sum, before=Abs),
    "l2": Reduced(Sum, before=Square, after=Sqrt),
    "sum_square": Reduced(Sum, before=Square),
    "log_sum": Reduced(Sum, after=Log),
}
"""Reductions by the names that ONNX gives them."""


def reduction(node: ModelNode, kind: Callable[..., Operator], axes: Sequence[int], keepdims: bool) -> Symbol:
    """The node's data over axes counted from the front and sorted, by Sum, Mean, Max or Min; as it is over none."""
    return reduced(node, Reduced(kind), axes, keepdims)


def reduced(node: ModelNode, form: Reduced, axes: Sequence[int], keepdims: bool) -> Symbol:
    """The node's data reduced over axes counted from the front and sorted; over none, the functions alone."""
    data = node.symbol(0)
    if form.before is not None:
        data = node.apply(form.before(), [data], "elements")
    suffix = "" if form.after is None else "reduced"
    data = over_axes(node, form.kind, data, axes, keepdims, suffix)
    return data if form.after is None else node.apply(form.after(), [data])


def over_axes(
    node: ModelNode, kind: Callable[..., Operator], data: Symbol, axes: Sequence[int], keepdims: bool, suffix: str = ""
) -> Symbol:
    """`data` over axes by Sum, Mean, Max or Min; as it is over none.

    MXNet has no tensors of rank 0: what has no axis left is its vector of one, reshaped.
    """
    if not axes:
        return data
    is_scalar = len(axes) == data.type.rank and not keepdims
    result = node.apply(kind(axis=tuple(axes), keepdims=keepdims), [data], "vector" if is_scalar else suffix)
    return reshaped(node, result, (), suffix) if is_scalar else result


def log_sum_exp(node: ModelNode, axes: Sequence[int], keepdims: bool) -> Symbol:
    """log Σ exp(x) of the node's data, as m + log Σ exp(x - m) with m the largest, so that no power overflows."""
    data = node.symbol(0)
    if not axes:
        return data
    highest = over_axes(node, Max, data, axes, True, "highest")
    below = node.apply(BroadcastSub(), [data, highest], "below")
    total = over_axes(node, Sum, node.apply(Exp(), [below], "powers"), axes, True, "total")
    result = node.apply(BroadcastAdd(), [node.apply(Log(), [total], "logarithm"), highest], "" if keepdims else "kept")
    return result if keepdims else _without(node, result, axes)


def product(node: ModelNode, axes: Sequence[int], keepdims: bool) -> Symbol:
    """The product of the node's data over axes: the two halves of an axis are multiplied until one element is left."""
    data = node.symbol(0)
    for axis in axes:
        step = 0
        while data.shape[axis] > 1:
            data = _halved(node, data, axis, f"axis{axis}_{step}")
            step += 1
    return data if keepdims else _without(node, data, axes)


def _without(node: ModelNode, data: Symbol, axes: Sequence[int]) -> Symbol:
    """`data` without axes that have one element left."""
    return reshaped(node, data, [size for axis, size in enumerate(data.shape) if axis not in axes])


def _halved(node: ModelNode, data: Symbol, axis: int, suffix: str) -> Symbol:
    length = data.shape[axis]
    half = length // 2

    def part(begin: int, end: int | None, name: str) -> Symbol:
        return node.apply(SliceAxis(axis=axis, begin=begin, end=end), [data], f"{suffix}_{name}")

    result = node.apply(ElemwiseMul(), [part(0, half, "first"), part(half, 2 * half, "second")], suffix)
    if length == 2 * half:
        return result
    return node.apply(Concat(dim=axis), [result, part(2 * half, None, "rest")], f"{suffix}_with_rest")
