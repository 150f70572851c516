"""Einstein summation: transposes, reshapes and batch_dot, two operands at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.reductions import over_axes
from mrt.frontend.shared.shaping import broadcast, reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.transform import Take, Transpose

_SPARE = "".join(map(chr, range(0x100, 0x120)))
"""Letters that stand for the axes of an ellipsis, from the last on: no equation has them."""


def summed(node: ModelNode, equation: str, operands: Sequence[Symbol]) -> Symbol:
    """What an equation such as "bij,bjk->bik" makes of the operands, with ellipses, whose axes broadcast.

    Each letter that the result lacks is summed over. Operands are multiplied from left to right, a letter summed over
    as soon as no later operand has it. A letter that an operand has twice means its diagonal. Raises GraphError where
    the equation does not fit the operands.
    """
    terms, result = _parsed(node, equation, operands)
    pairs = [_diagonal(node, *pair, f"operand{place}") for place, pair in enumerate(zip(operands, terms, strict=True))]
    operands, terms = [operand for operand, _ in pairs], [term for _, term in pairs]
    sizes = _sizes(node, equation, terms, operands)
    current, letters = operands[0], terms[0]
    for place in range(len(operands)):
        later = "".join(terms[place + 1 :])
        kept = [letter for letter in letters if letter in later or letter in result]
        gone = tuple(axis for axis, letter in enumerate(letters) if letter not in kept)
        current = over_axes(node, Sum, current, gone, False, f"sum{place}")
        letters = "".join(kept)
        if place + 1 < len(operands):
            rest = "".join(terms[place + 2 :]) + result
            sides = (current, letters), (operands[place + 1], terms[place + 1])
            current, letters = _product(node, *sides, sizes, rest, f"product{place}")
    order = tuple(letters.index(letter) for letter in result if letter in letters)
    if order != tuple(range(len(order))):
        current = node.apply(Transpose(axes=order), [current], "ordered")
    shape = tuple(sizes[letter] for letter in result)
    aligned = tuple(size if letter in letters else 1 for letter, size in zip(result, shape, strict=True))
    return broadcast(node, reshaped(node, current, _own(current, aligned, result, letters)), shape)


def _diagonal(node: ModelNode, data: Symbol, letters: str, suffix: str) -> tuple[Symbol, str]:
    """An operand of which each letter names one axis: the places where axes of the same letter have the same index."""
    for letter in sorted(set(letters)):
        while letters.count(letter) > 1:
            axes = [axis for axis, other in enumerate(letters) if other == letter][:2]
            sizes = {data.shape[axis] for axis in axes}
            if len(sizes) > 1:
                raise GraphError(f"{node.label}: the diagonal of {data.type} along axes {axes} of unequal lengths")
            data = diagonal(node, data, (axes[0], axes[1]), f"{suffix}_{letters.count(letter)}{letter}")
            letters = "".join(other for axis, other in enumerate(letters) if axis not in axes) + letter
    return data, letters


def diagonal(node: ModelNode, data: Symbol, axes: tuple[int, int], suffix: str) -> Symbol:
    """The elements with the same index along two axes of one length, which become one, the last."""
    length = data.shape[axes[0]]
    others = [axis for axis in range(data.type.rank) if axis not in axes]
    moved = node.apply(Transpose(axes=(*others, *axes)), [data], f"{suffix}_moved")
    flat = reshaped(node, moved, (*moved.shape[:-2], length * length), f"{suffix}_flat")
    places = node.parameter((np.arange(length) * (length + 1)).astype(np.int32), f"{suffix}_places")
    return node.apply(Take(axis=len(others)), [flat, places], f"{suffix}_diagonal")


def _own(current: Symbol, aligned: tuple[int, ...], result: str, letters: str) -> tuple[int, ...]:
    """The sizes that the operands have of the result's letters, where an ellipsis still is to be broadcast."""
    sizes = iter(current.shape)
    return tuple(next(sizes) if letter in letters else size for letter, size in zip(result, aligned, strict=True))


def _parsed(node: ModelNode, equation: str, operands: Sequence[Symbol]) -> tuple[list[str], str]:
    """The letters of each operand's axes and of the result's; those of an ellipsis are made up."""
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands) or not operands:
        counts = f"has {len(terms)} terms, {len(operands)} operands are given"
        raise GraphError(f"{node.label}: equation {equation} {counts}")
    hidden = [operand.type.rank - len(term.replace("...", "")) for term, operand in zip(terms, operands, strict=True)]
    for term, operand, more in zip(terms, operands, hidden, strict=True):
        letters = term.replace("...", "", 1)
        if not all(letter.isascii() and letter.isalpha() for letter in letters):
            raise GraphError(f"{node.label}: equation {equation} holds {term}; letters and one ellipsis are needed")
        if more < 0 or (more and "..." not in term) or more > len(_SPARE):
            raise GraphError(f"{node.label}: term {term} of equation {equation} does not fit {operand.type}")
    widest = max(hidden)
    terms = [term.replace("...", _SPARE[widest - more : widest]) for term, more in zip(terms, hidden, strict=True)]
    if arrow:
        result = right.replace("...", _SPARE[:widest], 1)
    else:
        once = sorted({letter for letter in left if letter.isalpha() and left.count(letter) == 1})
        result = _SPARE[:widest] + "".join(once)
    unknown = sorted(set(result) - set("".join(terms)))
    if unknown or len(set(result)) < len(result):
        raise GraphError(f"{node.label}: the result of equation {equation} has letters twice, or that no term has")
    return terms, result


def _sizes(node: ModelNode, equation: str, terms: Sequence[str], operands: Sequence[Symbol]) -> dict[str, int]:
    """How long the axis of each letter is."""
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, size in zip(term, operand.shape, strict=True):
            if 1 not in (size, sizes.get(letter, 1)) and sizes[letter] != size:
                both = f"{sizes[letter]} and {size}"
                raise GraphError(f"{node.label}: equation {equation} gives an axis both sizes {both}")
            sizes[letter] = max(size, sizes.get(letter, 1))
    return sizes


def _product(
    node: ModelNode, lhs: tuple[Symbol, str], rhs: tuple[Symbol, str], sizes: dict[str, int], needed: str, suffix: str
) -> tuple[Symbol, str]:
    """The product of two operands with their letters, summed over the letters of both that are not `needed`."""
    (a, of_a), (b, of_b) = lhs, rhs
    alone = [letter for letter in of_b if letter not in of_a and letter not in needed]
    b = over_axes(node, Sum, b, tuple(of_b.index(letter) for letter in alone), False, f"{suffix}_rest")
    of_b = "".join(letter for letter in of_b if letter not in alone)
    both = [letter for letter in of_a if letter in of_b and letter in needed]
    inner = [letter for letter in of_a if letter in of_b and letter not in needed]
    rows = [letter for letter in of_a if letter not in of_b]
    columns = [letter for letter in of_b if letter not in of_a]
    count = [math.prod(sizes[letter] for letter in group) for group in (both, rows, inner, columns)]
    left = _arranged(node, a, of_a, [both, rows, inner], sizes, (count[0], count[1], count[2]), f"{suffix}_lhs")
    right = _arranged(node, b, of_b, [both, inner, columns], sizes, (count[0], count[2], count[3]), f"{suffix}_rhs")
    letters = "".join([*both, *rows, *columns])
    dot = node.apply(BatchDot(), [left, right], f"{suffix}_dot")
    return reshaped(node, dot, [sizes[letter] for letter in letters], suffix), letters


def _arranged(
    node: ModelNode,
    data: Symbol,
    letters: str,
    groups: Sequence[Sequence[str]],
    sizes: dict[str, int],
    shape: tuple[int, ...],
    suffix: str,
) -> Symbol:
    """`data` with its axes in the order of the groups, those of each group made one."""
    order = [letters.index(letter) for group in groups for letter in group]
    if order != sorted(order):
        data = node.apply(Transpose(axes=tuple(order)), [data], f"{suffix}_ordered")
    whole = [sizes[letter] for group in groups for letter in group]
    return reshaped(node, broadcast(node, data, whole, f"{suffix}_whole"), shape, suffix)
