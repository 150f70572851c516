"""Blocks that reduce: sums of products of tensors, as any einsum is, and the largest and smallest along axes."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from mrt.frontend.relax.node import Node
from mrt.frontend.relax.tir.blocks import Block, UnreadError
from mrt.frontend.shared.einsum import summed
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.reductions import over_axes
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.reduce import Max
from mrt.symbol.operators.selection import Min

Matmul = Callable[[Sequence[Value]], Value]
"""Makes what relax.matmul gives of two tensors."""


def reduced(node: Node, block: Block, values: Mapping[Any, Value], matmul: Matmul) -> Any:
    """What a block that reduces computes, of the shape of its buffer; UnreadError where it is none that is read.

    Every axis of what it loads is one of its variables. Case 1: the largest or smallest of one tensor. Case 2: rows
    times a matrix. Case 3: any other sum of products.
    """
    if len(block.variables) + len(block.reduced) > len(string.ascii_letters):
        raise UnreadError("it has too many loops")
    operands = [_operand(node, load, block, values) for load in _factors(block)]
    terms = [letters for _, letters in operands]
    result = "".join(letter for letter in _letters(block.variables, 0) if any(letter in term for term in terms))
    tensors = [tensor for tensor, _ in operands]
    found: Any
    if block.combiner != "Add":
        found = _extreme(node, block, tensors, terms, result)
    elif _is_matmul(terms, result):
        found = matmul(tensors)
    elif all(isinstance(tensor, np.ndarray) for tensor in tensors):
        found = np.einsum(f"{','.join(terms)}->{result}", *tensors)
    else:
        symbols = [node.scope.symbol(tensor, f"{node.name}_operand") for tensor in tensors]
        found = summed(node, f"{','.join(terms)}->{result}", symbols)
    return _of_shape(node, found, block.extents)


def _letters(variables: Sequence[Any], first: int) -> str:
    return string.ascii_letters[first : first + len(variables)]


def _factors(block: Block) -> list[Any]:
    """The loads that are multiplied."""
    pending, found = [block.value], []
    while pending:
        expression = pending.pop()
        kind = type(expression).__name__
        if kind == "Mul" and block.combiner == "Add":
            pending += (expression.b, expression.a)
        elif kind == "TensorLoad":
            found.append(expression)
        else:
            raise UnreadError(f"block {block.buffer.name} reduces a {kind}; loads and products of them are read")
    return found


def _operand(node: Node, load: Any, block: Block, values: Mapping[Any, Value]) -> tuple[Any, str]:
    """A tensor that is loaded, without axes that have one element, and the letters of its axes."""
    value = values.get(load.source)
    if value is None or isinstance(value, tuple):
        raise UnreadError(f"it loads {load.source.name}, which is no tensor that is computed before")
    variables = [*block.variables, *block.reduced]
    extents = [*block.extents, *block.reduced_extents]
    letters = ""
    for index, size in zip(load.indices, value.shape, strict=True):
        if size == 1 and isinstance(index, tirx.IntImm) and int(index) == 0:
            continue
        place = next((place for place, variable in enumerate(variables) if variable.same_as(index)), None)
        if place is None or extents[place] != size or string.ascii_letters[place] in letters:
            raise UnreadError(f"block {block.buffer.name} reduces over windows or parts of {load.source.name}")
        letters += string.ascii_letters[place]
    return _of_shape(node, value, tuple(extents[string.ascii_letters.index(letter)] for letter in letters)), letters


def _of_shape(node: Node, value: Any, shape: tuple[int, ...]) -> Any:
    if tuple(value.shape) == shape:
        return value
    if math.prod(value.shape) != math.prod(shape):
        raise UnreadError("it repeats what it reduces")
    return value.reshape(shape) if isinstance(value, np.ndarray) else reshaped(node, value, shape, "shaped")


def _is_matmul(terms: Sequence[str], result: str) -> bool:
    """Whether rows of the first are multiplied by a matrix, or matrices by matrices of the same leading axes."""
    if len(terms) != 2:
        return False
    first, second = terms
    if len(first) < 2 or len(second) < 2 or first[-1] != second[-2]:
        return False
    leading = second[:-2]
    return leading in ("", first[:-2]) and result == first[:-1] + second[-1] and first[-1] not in result


def _extreme(node: Node, block: Block, tensors: Sequence[Any], terms: Sequence[str], result: str) -> Symbol | Array:
    """The one tensor that is loaded, over the axes that the result lacks."""
    (tensor,), (letters,) = tensors, terms
    axes = tuple(axis for axis, letter in enumerate(letters) if letter not in result)
    order = [letter for letter in letters if letter in result]
    if "".join(order) != result:
        raise UnreadError(f"block {block.buffer.name} reduces and turns its axes")
    if isinstance(tensor, np.ndarray):
        return np.asarray((np.max if block.combiner == "Max" else np.min)(tensor, axis=axes))
    return over_axes(node, Max if block.combiner == "Max" else Min, tensor, axes, False)
