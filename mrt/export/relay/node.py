"""What an exporter to Relay sees: one symbol of the integer graph, and means to write it as calls of operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from mrt.export.lowering import Roots
from mrt.export.node import ArrangingNode, SymbolValues
from mrt.export.registry import Exporters
from mrt.export.relay.barriers import needs_barrier
from mrt.export.relay.expressions import Argument, Attribute, Call, Scalar, Value
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.types import INT32_MAX, INT32_MIN

_KEYWORDS = frozenset(
    {"let", "fn", "def", "if", "else", "type", "match", "extern", "free_var", "ref", "ref_read", "ref_write"}
)
_LONGEST_LITERAL = 999_999
"""Relay prints the limits of a clip, which it declares as floats, with six digits."""


class Scope(SymbolValues[Value]):
    """The function while it is made: its arguments and calls in order, and the value of every symbol made so far."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.arguments: list[Argument] = []
        self.calls: list[Call] = []
        self.parameters: dict[str, Array] = {}
        self._taken: set[str] = set()
        self._wide: dict[Value, Value] = {}
        self._copies: dict[Value, Call] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Argument] = {}
        for symbol in graph.inputs:
            self.define(symbol, self._argument(symbol.name, symbol.shape, symbol.dtype))

    def _argument(self, name: str, shape: tuple[int, ...], dtype: str) -> Argument:
        argument = Argument(shape, dtype, self._claim(name))
        self.arguments.append(argument)
        return argument

    def _claim(self, name: str) -> str:
        """`name` as a name that Relay's parser reads and that no other argument has."""
        name = candidate = relay_name(name)
        count = 0
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        self._taken.add(candidate)
        return candidate

    def of_parameter(self, symbol: Symbol, array: Array) -> Value:
        """An argument of the symbol's name."""
        return self.constant(array, symbol.name)

    def array(self, symbol: Symbol) -> Array | None:
        return self._graph.value(symbol)

    def constant(self, array: Array, name: str) -> Argument:
        """An argument that stands in the parameter file; equal arrays are one."""
        key = (array.dtype.name, array.shape, sha256(array.tobytes()).digest())
        if key not in self._constants:
            argument = self._argument(name, array.shape, array.dtype.name)
            self._constants[key] = argument
            self.parameters[argument.name] = array
        return self._constants[key]

    def widened(self, value: Value) -> Value:
        """The value in int32."""
        if value.dtype == "int32":
            return value
        if value not in self._wide:
            self._wide[value] = self.cast(value, "int32")
        return self._wide[value]

    def cast(self, value: Value, dtype: str) -> Value:
        return self.call("cast", [value], value.shape, dtype, {"dtype": dtype})

    def call(
        self,
        operator: str,
        inputs: Sequence[Value],
        shape: Sequence[int],
        dtype: str,
        attributes: Mapping[str, Attribute],
        is_tuple: bool = False,
    ) -> Call:
        """A call. What the optimizer must not join with what makes an input reads a copy of that input."""
        apart = [needs_barrier(operator, inputs, value, self._is_known) for value in inputs]
        read = [self._copied(value) if is_apart else value for value, is_apart in zip(inputs, apart, strict=True)]
        made = Call(tuple(shape), dtype, operator, tuple(read), attributes, is_tuple)
        self.calls.append(made)
        return made

    def _is_known(self, value: Value) -> bool:
        return isinstance(value, Argument) and value.name in self.parameters

    def _copied(self, value: Value) -> Value:
        if value not in self._copies:
            self._copies[value] = Call(value.shape, value.dtype, "copy", (value,))
            self.calls.append(self._copies[value])
        return self._copies[value]


def relay_name(name: str) -> str:
    """A name of letters, digits and underscores that begins with a letter and with no word of Relay's grammar."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    is_word = plain in _KEYWORDS or plain.startswith(("meta", "inff"))
    return f"v{plain}" if is_word or not plain[:1].isalpha() else plain


@dataclass(frozen=True)
class Node(ArrangingNode[Value], Roots[Value]):
    """One symbol. Exporters read its types and inputs and write calls through it; they see nothing else."""

    scope: Scope

    # Inputs

    def input(self, index: int) -> Value:
        """An input in a dtype that holds it: its own, or int32."""
        return self.scope.value(self.symbol.inputs[index])

    def wide(self, index: int) -> Value:
        """An input in int32."""
        return self.scope.widened(self.input(index))

    def array(self, index: int) -> Array | None:
        """An input where it is a parameter."""
        return self.scope.array(self.symbol.inputs[index])

    # Calls

    def call(
        self,
        operator: str,
        inputs: Sequence[Value | int | Array],
        shape: Sequence[int] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
        dtype: str = "",
    ) -> Value:
        """A call; its shape is what the inputs broadcast to and its dtype the first one's unless others are given."""
        values = [x if isinstance(x, Value) else self.constant(x) for x in inputs]
        if shape is None:
            shape = np.broadcast_shapes(*(value.shape for value in values))
        return self.scope.call(operator, values, shape, dtype or values[0].dtype, attributes or {})

    def constant(self, value: int | Array) -> Value:
        """An int32; one number stands in the text, but for the lowest, whose digits alone are no int32."""
        array = np.asarray(value, np.int32)
        if array.ndim or int(array) == INT32_MIN:
            return self.scope.constant(array, f"{self.symbol.name}_constant")
        return Scalar((), "int32", int(array))

    def per_shift(self, shift: Array, function: Callable[[Array], Array]) -> Array | int:
        """function(shift): one number where it is the same everywhere and the shift does not broadcast the data."""
        values = function(shift.astype(np.int64))
        is_one_number = np.unique(values).size == 1 and self.shape == self.input_shape(0)
        return int(values.flat[0]) if is_one_number else values

    def cast(self, value: Value, dtype: str) -> Value:
        """`value` in another dtype, which must hold it."""
        return value if value.dtype == dtype else self.scope.cast(value, dtype)

    def clipped(self, value: Value, lo: int, hi: int) -> Value:
        """`value` in [lo, hi]."""
        if max(abs(lo), abs(hi)) <= _LONGEST_LITERAL:
            return self.call("clip", [value], None, {"a_min": float(lo), "a_max": float(hi)})
        value = self.call("maximum", [value, lo]) if lo > INT32_MIN else value
        return self.call("minimum", [value, hi]) if hi < INT32_MAX else value

    def concatenated(self, parts: Sequence[Value], axis: int) -> Value:
        """Values of one dtype, joined along an axis."""
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.scope.call(
            "concatenate", parts, shape, parts[0].dtype, {"axis": axis} if axis else {}, is_tuple=True
        )

    # Arrangement

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        if value.shape == tuple(shape):
            return value
        return self.call("reshape", [value], shape, {"newshape": list(shape)})

    def transposed(self, value: Value, axes: Sequence[int]) -> Value:
        return self.call("transpose", [value], [value.shape[axis] for axis in axes], {"axes": list(axes)})

    def sliced(self, value: Value, slices: Sequence[slice], shape: Sequence[int]) -> Value:
        cuts = [cut.indices(length) for cut, length in zip(slices, shape, strict=True)]
        if cuts == [(0, length, 1) for length in shape]:
            return value
        begin, stop, strides = (list(numbers) for numbers in zip(*cuts, strict=True))
        # Where a backward slice goes on to element 0 Python says -1, which Relay counts from the end.
        end = [last if last >= 0 else -length - 1 for last, length in zip(stop, shape, strict=True)]
        sizes = [len(range(*cut)) for cut in cuts]
        attributes = {"begin": begin, "end": end, "strides": strides, "axes": None}
        return self.call("strided_slice", [value], sizes, attributes)

    def padded(self, value: Value, before: Sequence[int], after: Sequence[int], fill: int) -> Value:
        return self.bordered(value, before, after, fill) if any((*before, *after)) else value

    def bordered(
        self, value: Value, before: Sequence[int], after: Sequence[int], fill: int, mode: str = "constant"
    ) -> Value:
        """`padded` in another mode of nn.pad, of which each reads `fill`."""
        widths = [list(pair) for pair in zip(before, after, strict=True)]
        shape = [n + sum(pair) for n, pair in zip(value.shape, widths, strict=True)]
        attributes: dict[str, Attribute] = {"pad_width": widths}
        if mode != "constant":
            attributes["pad_mode"] = mode
        return self.call("nn.pad", [value, fill], shape, attributes)

    # Roots

    def plus(self, value: Value, other: Value | int) -> Value:
        return self.call("add", [value, other])

    def minus(self, value: Value, other: Value) -> Value:
        return self.call("subtract", [value, other])

    def times(self, value: Value, factor: Value | int) -> Value:
        return self.call("multiply", [value, factor])

    def quotient(self, value: Value, divisor: Value) -> Value:
        return self.call("floor_divide", [value, divisor])

    def chosen(self, large: Value, small: Value, chosen: Value, otherwise: Value) -> Value:
        """`chosen` by a factor of 1 or 0: large - small + 1, clipped to [0, 1]."""
        factor = self.clipped(self.plus(self.minus(large, small), 1), 0, 1)
        return self.plus(otherwise, self.times(factor, self.minus(chosen, otherwise)))


_EXPORTERS: Exporters[Node, Value] = Exporters("Relay's integer operators", "exporters.relay")
"""By record. The values are in the symbol's dtype or in int32."""
exporter = _EXPORTERS.register
"""Registers a function as the exporter of the operators of records."""
find_exporter = _EXPORTERS.find
check_covered = _EXPORTERS.check_covered
