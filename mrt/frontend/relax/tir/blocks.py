"""The blocks of a PrimFunc: each computes every element of one buffer from buffers computed before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from mrt.errors import GraphError


class UnreadError(Exception):
    """A PrimFunc is of a kind that is not read; the text says what stands in the way."""


@dataclass(frozen=True)
class Block:
    """buffer[v] = value for every v, once; or the sum, the largest or the smallest value for every v over all w.

    variables: those of v, an extent for each. combiner: "", or which of the three, "Add", "Max" or "Min"; reduced:
    then the variables of w, an extent for each.
    """

    buffer: Any
    variables: tuple[Any, ...]
    extents: tuple[int, ...]
    value: Any
    combiner: str = ""
    reduced: tuple[Any, ...] = ()
    reduced_extents: tuple[int, ...] = ()


def blocks_of(function: Any, sizes: Mapping[Any, int]) -> Iterator[Block]:
    """The blocks in the order in which they run; UnreadError where one reduces, or does anything but fill a buffer.

    sizes: the values of the symbolic sizes of the function's buffers.
    """
    root = function.body
    if not _is(root, "SBlockRealize") or root.block.iter_vars or not _is_true(root.predicate):
        raise UnreadError("its body is no block of loops")
    for nest in _statements(root.block.body):
        yield _block(nest, sizes)


def _statements(body: Any) -> list[Any]:
    return [each for part in body.seq for each in _statements(part)] if _is(body, "SeqStmt") else [body]


def _block(nest: Any, sizes: Mapping[Any, int]) -> Block:
    loops: list[tuple[Any, int]] = []
    while _is(nest, "For"):
        if int(nest.kind) != tirx.ForKind.SERIAL or _size(nest.min, sizes) != 0:
            raise UnreadError("its loops are scheduled")
        loops.append((nest.loop_var, _size(nest.extent, sizes)))
        nest = nest.body
    if not _is(nest, "SBlockRealize") or not _is_true(nest.predicate):
        raise UnreadError("its loops hold no plain block")
    return _stored(nest, loops, sizes)


def _stored(realize: Any, loops: Sequence[tuple[Any, int]], sizes: Mapping[Any, int]) -> Block:
    """The block within its loops, the outermost first."""
    block = realize.block
    values = [
        (value, _size(axis.dom.extent, sizes)) for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
    ]
    if len(values) != len(loops) or any(
        not var.same_as(loop) or extent != whole for (var, extent), (loop, whole) in zip(values, loops, strict=True)
    ):
        raise UnreadError(f"block {block.name_hint} does not run over its loops one by one")
    store = block.body
    if not _is(store, "BufferStore"):
        raise UnreadError(f"block {block.name_hint} is a {type(store).__name__}; a store is needed")
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    if not set(kinds) <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
        raise UnreadError(f"block {block.name_hint} runs over its loops in an order of its own")
    axes = [(axis.var, extent) for axis, (_, extent) in zip(block.iter_vars, loops, strict=True)]
    variables, extents = _of_kind(axes, kinds, tirx.IterVar.DataPar)
    if tuple(_size(size, sizes) for size in store.buffer.shape) != extents or any(
        not index.same_as(variable) and not (extent == 1 and isinstance(index, tirx.IntImm) and int(index) == 0)
        for index, variable, extent in zip(store.indices, variables, extents, strict=True)
    ):
        raise UnreadError(f"block {block.name_hint} does not fill its buffer in order")
    if block.init is None and tirx.IterVar.CommReduce not in kinds:
        return Block(store.buffer, variables, extents, store.value)
    combiner, value = _combined(block, store)
    return Block(store.buffer, variables, extents, value, combiner, *_of_kind(axes, kinds, tirx.IterVar.CommReduce))


def _of_kind(
    axes: Sequence[tuple[Any, int]], kinds: Sequence[int], kind: int
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    chosen = [axis for axis, found in zip(axes, kinds, strict=True) if found == kind]
    return tuple(variable for variable, _ in chosen), tuple(extent for _, extent in chosen)


_LOWEST = -3.4e38
_FIRST = {"Add": lambda first: first == 0, "Max": lambda first: first < _LOWEST, "Min": lambda first: first > -_LOWEST}
"""With what a reduction of floats begins."""


def _combined(block: Any, store: Any) -> tuple[str, Any]:
    """How a block reduces, and what."""
    combiner, first = type(store.value).__name__, getattr(block.init, "value", None)
    if combiner not in _FIRST or not isinstance(first, tirx.FloatImm) or not _FIRST[combiner](float(first)):
        raise UnreadError(f"block {block.name_hint} is a reduction that is no sum, largest or smallest of floats")
    load = store.value.a
    is_itself = _is(load, "TensorLoad") and load.source.same_as(store.buffer)
    if not is_itself or not all(a.same_as(b) for a, b in zip(load.indices, store.indices, strict=True)):
        raise UnreadError(f"block {block.name_hint} reduces another buffer than it fills")
    return combiner, store.value.b


def symbolic_sizes(function: Any, shapes: Mapping[int, tuple[int, ...]]) -> dict[Any, int]:
    """The values of the symbolic sizes of the buffers of parameters, whose shapes are given by their places."""
    sizes: dict[Any, int] = {}
    for place, shape in shapes.items():
        stated = function.params[place].shape
        if len(stated) != len(shape):
            raise GraphError(f"a buffer of rank {len(stated)} is given a tensor of shape {shape}")
        for size, found in zip(stated, shape, strict=True):
            if isinstance(size, tirx.IntImm):
                if int(size) != found:
                    raise GraphError(f"a buffer of shape {list(stated)} is given a tensor of shape {shape}")
            else:
                sizes.setdefault(size, found)
    return sizes


def _size(expression: Any, sizes: Mapping[Any, int]) -> int:
    if isinstance(expression, int):
        return expression
    if isinstance(expression, tirx.IntImm):
        return int(expression)
    return int(numbers(expression, {variable: np.asarray(size) for variable, size in sizes.items()}))


def _is(node: Any, kind: str) -> bool:
    return type(node).__name__ == kind


def _is_true(predicate: Any) -> bool:
    return isinstance(predicate, tirx.IntImm) and bool(int(predicate))


_BINARY = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Min": np.minimum,
    "Max": np.maximum,
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}


def numbers(expression: Any, values: Mapping[Any, np.ndarray]) -> Any:
    """The integers or truth values of an expression that loads nothing; UnreadError for what it cannot hold.

    values: arrays of the variables, which broadcast.
    """
    kind = type(expression).__name__
    if isinstance(expression, tirx.IntImm):
        return np.asarray(int(expression))
    if kind == "Var":
        if expression not in values:
            raise UnreadError(f"variable {expression.name} is not known")
        return values[expression]
    if kind in _BINARY:
        return _BINARY[kind](numbers(expression.a, values), numbers(expression.b, values))
    if kind == "Not":
        return np.logical_not(numbers(expression.a, values))
    if kind == "Cast" and "int" in str(expression.ty):
        return numbers(expression.value, values)
    if kind == "Select":
        parts = (expression.condition, expression.true_value, expression.false_value)
        return np.where(*(numbers(part, values) for part in parts))
    if kind == "Call" and expression.op.name.rpartition(".")[2] == "if_then_else":
        return np.where(*(numbers(part, values) for part in expression.args))
    raise UnreadError(f"an index is made by {kind}")


def loads(expression: Any) -> bool:
    """Whether an expression reads a buffer."""
    if type(expression).__name__ == "TensorLoad":
        return True
    return any(loads(part) for part in parts_of(expression))


def parts_of(expression: Any) -> tuple[Any, ...]:
    """The operands of an expression."""
    if type(expression).__name__ == "Call":
        return tuple(expression.args)
    names = ("a", "b", "condition", "true_value", "false_value", "value")
    found = (getattr(expression, name, None) for name in names)
    return () if isinstance(expression, (tirx.IntImm, tirx.FloatImm)) else tuple(x for x in found if x is not None)
