"""Reductions that are made of others: products and norms."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.mxnet.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.functions import Abs, Sqrt, Square
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.transform import Concat, Reshape, SliceAxis


@converter("prod")
def product(node: Node) -> Symbol:
    """The two halves of an axis are multiplied until one element is left of it."""
    data = node.only_symbol()
    sum_of_the_same = node.record("sum")
    if not isinstance(sum_of_the_same, Sum):
        raise GraphError(f"{node.label}: is no reduction")
    shape = sum_of_the_same.infer(data.type).shape
    for axis in sum_of_the_same.axes(data.type.rank):
        step = 0
        while data.shape[axis] > 1:
            data = _halved(node, data, axis, f"axis{axis}_{step}")
            step += 1
    return data if data.shape == shape else node.apply(Reshape(shape=_keeping_first(data.shape, shape)), [data])


def _halved(node: Node, data: Symbol, axis: int, suffix: str) -> Symbol:
    length = data.shape[axis]
    half = length // 2

    def part(begin: int, end: int | None, name: str) -> Symbol:
        return node.apply(SliceAxis(axis=axis, begin=begin, end=end), [data], f"{suffix}_{name}")

    result = node.apply(ElemwiseMul(), [part(0, half, "first"), part(half, 2 * half, "second")], suffix)
    if length == 2 * half:
        return result
    return node.apply(Concat(dim=axis), [result, part(2 * half, None, "rest")], f"{suffix}_with_rest")


def _keeping_first(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """`after` as Reshape's codes, the first axis copied where it stays."""
    return (0, *after[1:]) if before[:1] == after[:1] else after


@converter("norm")
def norm(node: Node) -> Symbol:
    """ord 1: the sum of magnitudes; ord 2: the root of the sum of squares."""
    data, order = node.only_symbol(), node.integer("ord", 2)
    if order not in (1, 2):
        raise node.unsupported("attribute ord", order, "1 or 2")
    total = node.record("sum", ord=None, out_dtype=None)
    if order == 1:
        return node.apply(total, [node.apply(Abs(), [data], "magnitudes")])
    return node.apply(Sqrt(), [node.apply(total, [node.apply(Square(), [data], "squares")], "sum")])
