"""What a PrimFunc computes as operators of the graph, whatever it is called: those that the importers of TVM make of
pad, clip, tile and their like, and those that its passes make of elementwise operators and of operators that move
elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import tirx

from mrt.errors import GraphError
from mrt.frontend.relax.node import Node, find_converter
from mrt.frontend.relax.tir.blocks import Block, UnreadError, blocks_of, loads, numbers, symbolic_sizes
from mrt.frontend.relax.tir.rearranging import rearranged
from mrt.frontend.relax.tir.reducing import reduced
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.refusals import MAX_MADE, check_size
from mrt.frontend.shared.shaping import broadcast
from mrt.frontend.tvm.folding import fold, is_foldable
from mrt.frontend.tvm.node import graph_dtype, is_known
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Concat

_OPERATORS = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "FloorDiv": "floor_divide",
    "FloorMod": "floor_mod",
    "Mod": "mod",
    "Max": "maximum",
    "Min": "minimum",
    "EQ": "equal",
    "NE": "not_equal",
    "LT": "less",
    "LE": "less_equal",
    "GT": "greater",
    "GE": "greater_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Not": "logical_not",
    "Select": "where",
    "Cast": "astype",
}
"""What Relax calls the operators of TIR."""

_FUNCTIONS = {"fabs": "abs", "nearbyint": "round", "pow": "power", "if_then_else": "where"}
"""What Relax calls the functions of TIR whose names differ."""

Ranges = tuple[tuple[int, int], ...]
"""The part of a buffer that is computed: begin and end along each axis."""


@dataclass(frozen=True)
class _Operation(Node):
    """An operation of a PrimFunc as the call of the Relax operator that means the same."""

    relax_kind: str = ""
    dtype: str = "float32"
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def operator(self) -> str:
        return f"relax.{self.relax_kind}"

    @property
    def result_dtype(self) -> str:
        return self.dtype

    def text(self, name: str) -> str:
        return self.attributes[name]


def computed(node: Node, function: Any, inputs: Sequence[Value], sizes: Sequence[int]) -> Value:
    """The value of `call_tir` of a PrimFunc: a tuple where it gives several.

    node: the call. inputs: the tensors that it is given; sizes: the numbers that stand behind all tensors. Raises
    UnreadError where the PrimFunc does anything that is not read, such as a reduction.
    """
    parameters = list(function.params)
    shapes = {place: tuple(value.shape) for place, value in enumerate(inputs) if not isinstance(value, tuple)}
    if len(shapes) != len(inputs) or len(parameters) < len(inputs) + len(sizes):
        raise UnreadError("it takes tuples")
    known = symbolic_sizes(function, shapes)
    scalars = parameters[len(parameters) - len(sizes) :] if sizes else []
    known.update(zip(scalars, sizes, strict=True))
    outputs = parameters[len(inputs) : len(parameters) - len(sizes)]
    values: dict[Any, Value] = dict(zip(parameters, inputs, strict=False))
    for block in blocks_of(function, known):
        values[block.buffer] = _Reader(node, block, values, known, block.buffer in outputs).read()
    if not outputs or any(output not in values for output in outputs):
        raise UnreadError("an output is not computed")
    return values[outputs[0]] if len(outputs) == 1 else tuple(values[output] for output in outputs)


class _Reader:
    """Reads one block. An expression has a value for a part of the buffer, to whose shape the value broadcasts."""

    def __init__(
        self, node: Node, block: Block, values: Mapping[Any, Value], sizes: Mapping[Any, int], is_last: bool
    ) -> None:
        """is_last: whether the block gives an output of the PrimFunc, which is called as the call."""
        self._node, self._block, self._values, self._sizes, self._is_last = node, block, values, sizes, is_last

    def read(self) -> Any:
        whole = tuple((0, extent) for extent in self._block.extents)
        if self._block.combiner:
            return reduced(
                self._node, self._block, self._values, lambda inputs: self._made("matmul", inputs, "float32")
            )
        value = self._value(self._block.value, whole)
        value = self._broadcast(value, whole)
        dtype = graph_dtype(str(self._block.buffer.dtype))
        if isinstance(value, np.ndarray) and value.dtype != dtype and dtype != "float32":
            value = value.astype(dtype)
        return value

    def _value(self, expression: Any, ranges: Ranges) -> Any:
        kind = type(expression).__name__
        if isinstance(expression, tirx.FloatImm):
            return np.asarray(float(expression), graph_dtype(str(expression.ty)))
        if kind == "TensorLoad":
            return self._load(expression, ranges)
        if not loads(expression) and "float" not in str(expression.ty):
            return np.asarray(self._numbers(expression, ranges))
        name = expression.op.name.rpartition(".")[2] if kind == "Call" else kind
        if name in ("if_then_else", "Select"):
            return self._choice(expression, ranges)
        relax_kind = _OPERATORS.get(name) or _FUNCTIONS.get(name, name)
        operands = _operands(expression)
        return self._apply(relax_kind, [self._value(operand, ranges) for operand in operands], expression)

    def _load(self, load: Any, ranges: Ranges) -> Any:
        if load.source not in self._values:
            raise UnreadError(f"it loads {load.source.name}, which is not computed before")
        data = self._values[load.source]
        indices = [np.asarray(self._numbers(index, ranges)) for index in load.indices]
        indices = [index.reshape((1,) * (len(ranges) - index.ndim) + index.shape) for index in indices]
        places = [end - begin for begin, end in ranges]
        if isinstance(data, Symbol):
            return rearranged(self._node, data, indices, places) if indices else data
        if isinstance(data, tuple):
            raise UnreadError("it loads of a tuple")
        if not indices:
            return data
        if any(index.min() < 0 or index.max() >= size for index, size in zip(indices, data.shape, strict=True)):
            raise UnreadError("it loads elements outside of a buffer")
        found = data[tuple(indices)]
        # A constant of one element takes the axes of what it meets.
        return found.reshape(()) if found.size == 1 else found

    def _numbers(self, expression: Any, ranges: Ranges) -> Any:
        """The integers of an expression without loads, of the rank of the places or less."""
        variables: dict[Any, Array] = {variable: np.asarray(size) for variable, size in self._sizes.items()}
        check_size(self._node.label, [end - begin for begin, end in ranges], MAX_MADE * 128)
        for axis, (variable, (begin, end)) in enumerate(zip(self._block.variables, ranges, strict=True)):
            shape = [1] * len(ranges)
            shape[axis] = end - begin
            variables[variable] = np.arange(begin, end).reshape(shape)
        return numbers(expression, variables)

    # Choices

    def _choice(self, expression: Any, ranges: Ranges) -> Any:
        """Case 1: the condition depends on the place alone, and holds in a box: there is the one, around it a constant,
        or behind or before it along one axis the other. Case 2: all else chooses element by element."""
        condition, chosen, otherwise = _operands(expression)
        if loads(condition):
            values = [self._value(part, ranges) for part in (condition, chosen, otherwise)]
            return self._apply("where", values, expression)
        holds = np.asarray(self._numbers(condition, ranges))
        if holds.all():
            return self._value(chosen, ranges)
        if not holds.any():
            return self._value(otherwise, ranges)
        box = _box(np.broadcast_to(holds, [end - begin for begin, end in ranges]), ranges)
        if box is None:
            values = [holds, self._value(chosen, ranges), self._value(otherwise, ranges)]
            return self._apply("where", values, expression)
        border = None if loads(otherwise) else np.asarray(self._value(otherwise, ranges))
        if border is not None and border.size == 1:
            return self._bordered(expression, float(border.reshape(())), box, ranges)
        return self._joined(expression, box, ranges)

    def _bordered(self, choice: Any, border: float, box: Ranges, ranges: Ranges) -> Any:
        value = self._broadcast(self._value(_operands(choice)[1], box), box)
        widths = [(b - begin, end - e) for (b, e), (begin, end) in zip(box, ranges, strict=True)]
        if isinstance(value, np.ndarray):
            return np.pad(value, widths, constant_values=border)
        if not np.isfinite(border):
            raise self._node.unsupported("the border's value", border, "a finite number")
        flat = tuple(width for pair in widths for width in pair)
        pad = Pad(pad_width=flat, mode="constant", constant_value=border)
        return self._node.apply(pad, [value], self._suffix(choice, "padded"))

    def _joined(self, choice: Any, box: Ranges, ranges: Ranges) -> Any:
        """Two parts along one axis, the one where the condition holds, the other before or behind it."""
        _, chosen, otherwise = _operands(choice)
        axes = [axis for axis, (part, whole) in enumerate(zip(box, ranges, strict=True)) if part != whole]
        begins, ends = (box[axes[0]][side] == ranges[axes[0]][side] for side in (0, 1))
        if len(axes) != 1 or not (begins or ends):
            raise UnreadError("it chooses between tensors in several places")
        axis = axes[0]
        edge = (box[axis][1], ranges[axis][1]) if begins else (ranges[axis][0], box[axis][0])
        rest = (*ranges[:axis], edge, *ranges[axis + 1 :])
        parts = [self._broadcast(self._value(chosen, box), box), self._broadcast(self._value(otherwise, rest), rest)]
        parts = parts if begins else parts[::-1]
        if is_known(parts):
            return np.concatenate(parts, axis)
        symbols = [self._node.scope.symbol(part, f"{self._node.name}_part") for part in parts]
        return self._node.apply(Concat(dim=axis), symbols, self._suffix(choice, "joined"))

    # Operators

    def _apply(self, kind: str, inputs: Sequence[Value], expression: Any) -> Any:
        return self._made(kind, inputs, graph_dtype(str(expression.ty)), self._suffix(expression, kind))

    def _made(self, kind: str, inputs: Sequence[Value], dtype: str, suffix: str = "") -> Any:
        """What the Relax operator of this kind gives."""
        convert = find_converter(f"relax.{kind}")
        if convert is None and not (is_foldable(kind) and is_known(inputs)):
            raise UnreadError(f"it computes {kind} of what depends on the data, which is not covered")
        node = self._node
        name = node.scope.made_up(f"{node.name}_{suffix}") if suffix else node.name
        operation = _Operation(name, node.scope, tuple(inputs), node.call, kind, dtype, {"dtype": dtype})
        return fold(operation, convert) if convert is None or is_known(inputs) else convert(operation)

    def _suffix(self, expression: Any, kind: str) -> str:
        """What names an operation of the block; nothing for the last one."""
        return "" if expression.same_as(self._block.value) and self._is_last else kind

    def _broadcast(self, value: Any, ranges: Ranges) -> Any:
        shape = tuple(end - begin for begin, end in ranges)
        if isinstance(value, np.ndarray):
            check_size(self._node.label, shape, MAX_MADE)
            return np.broadcast_to(value, shape)
        if value.shape == shape:
            return value
        if len(value.shape) > len(shape):
            raise GraphError(f"{self._node.label}: computes {value.type} where shape {shape} is needed")
        return broadcast(self._node, value, shape, "whole")


def _operands(expression: Any) -> tuple[Any, ...]:
    kind = type(expression).__name__
    if kind == "Call":
        return tuple(expression.args)
    if kind == "Select":
        return expression.condition, expression.true_value, expression.false_value
    if kind == "Cast":
        return (expression.value,)
    return (expression.a,) if kind == "Not" else (expression.a, expression.b)


def _box(holds: Array, ranges: Ranges) -> Ranges | None:
    """Where a condition holds, if that is a box; None if it is not."""
    box: list[tuple[int, int]] = []
    for axis, (begin, _) in enumerate(ranges):
        rest = tuple(other for other in range(len(ranges)) if other != axis)
        (places,) = np.nonzero(holds.any(axis=rest))
        box.append((begin + int(places[0]), begin + int(places[-1]) + 1))
    inside = tuple(slice(b - begin, e - begin) for (b, e), (begin, _) in zip(box, ranges, strict=True))
    return tuple(box) if holds[inside].all() and int(holds.sum()) == holds[inside].size else None
