"""What an exporter sees: one symbol of the integer graph, and means to write it as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mrt.export.node import ArrangingNode, SymbolValues
from mrt.export.registry import Exporters
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.operators.integer import Cast

BYTE_OFFSET = 128
"""What an int8 is moved by to be an uint8: the zero point of its uint8 form."""


@dataclass(frozen=True)
class Value:
    """A tensor of the ONNX graph. dtype: NumPy's name."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Factor:
    """A factor of a sum of products: the integers `value - zero_point`, in uint8, or in int32 with zero point 0."""

    value: Value
    zero_point: int = 0

    @property
    def is_byte(self) -> bool:
        return self.value.dtype == "uint8"


class Scope(SymbolValues[Value]):
    """The ONNX graph while it is made: nodes in order, initializers, and the value of every symbol made so far."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.nodes: list[onnx.NodeProto] = []
        self._taken = set(graph.by_name)
        self._claimed: set[str] = set()
        self._next: dict[str, int] = {}
        self._wide: dict[Value, Value] = {}
        self._bytes: dict[Value, Value] = {}
        self._shared: set[Value] = set()
        self._arrays: dict[str, Array] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def unique(self, name: str) -> str:
        """`name` if no symbol and no value has it, else `name` with the first free number; it is then taken."""
        candidate = name
        while candidate in self._taken:
            self._next[name] = self._next.get(name, 0) + 1
            candidate = f"{name}_{self._next[name]}"
        self._taken.add(candidate)
        return candidate

    def claim(self, symbol: Symbol) -> str:
        """The symbol's own name for a value, once; from then on names made from it."""
        if symbol.name in self._claimed:
            return self.unique(symbol.name)
        self._claimed.add(symbol.name)
        return symbol.name

    def of_parameter(self, symbol: Symbol, array: Array) -> Value:
        """An initializer of the symbol's name."""
        return self._constant(array, lambda: self.claim(symbol))

    def constant(self, array: Array, name: str = "constant") -> Value:
        """An initializer; equal arrays are one."""
        return self._constant(array, lambda: self.unique(name))

    def _constant(self, array: Array, name: Callable[[], str]) -> Value:
        key = (array.dtype.name, array.shape, sha256(array.tobytes()).digest())
        if key not in self._constants:
            value = Value(name(), array.dtype.name)
            self._constants[key] = value
            self._arrays[value.name] = array
        return self._constants[key]

    def is_shared(self, value: Value) -> bool:
        """Whether `value` is a form of another value (such as a cast) that all readers share."""
        return value in self._shared

    def array(self, value: Value) -> Array | None:
        """What an initializer holds, None for any other value."""
        return self._arrays.get(value.name)

    def widened(self, symbol: Symbol) -> Value:
        """The symbol's value in int32; for a cast that only narrows, what it casts."""
        while isinstance(symbol.operator, Cast) and symbol.dtype != "bool" and symbol.inputs[0].dtype == "int32":
            symbol = symbol.inputs[0]
        value = self.value(symbol)
        if value.dtype == "int32":
            return value
        if value not in self._wide:
            self._wide[value] = self._cast(value, "int32")
            self._shared.add(self._wide[value])
        return self._wide[value]

    def factor(self, symbol: Symbol) -> Factor:
        """The symbol's value as uint8 with a zero point; the symbol must be of 8 bits or bool."""
        if symbol.dtype == "uint8":
            return Factor(self.value(symbol))
        offset = BYTE_OFFSET if symbol.dtype == "int8" else 0
        value = self.value(symbol)
        if value not in self._bytes:
            self._bytes[value] = self._moved(value, self.widened(symbol), offset)
            self._shared.add(self._bytes[value])
        return Factor(self._bytes[value], offset)

    def _moved(self, value: Value, wide: Value, offset: int) -> Value:
        array = self.array(wide)
        if array is not None:
            return self.constant((array + offset).astype(np.uint8), f"{value.name}/uint8")
        if offset:
            wide = self.emit("Add", [wide, self.constant(int32(offset))], self.unique(f"{value.name}/moved"))
        return self._cast(wide, "uint8", f"{value.name}/uint8")

    def _cast(self, value: Value, dtype: str, name: str = "") -> Value:
        name = name or f"{value.name}/{dtype}"
        array = self.array(value)
        if array is not None:
            return self.constant(array.astype(dtype), name)
        return self.emit("Cast", [value], self.unique(name), dtype, to=element_type(dtype))

    def emit(self, op: str, inputs: Sequence[Value], name: str, dtype: str = "", **attributes: Any) -> Value:
        """A node of the ONNX operator `op` and its value `name`, of the first input's dtype unless one is given."""
        self.nodes.append(helper.make_node(op, [x.name for x in inputs], [name], name=name, **attributes))
        return Value(name, dtype or inputs[0].dtype)

    def initializers(self) -> list[onnx.TensorProto]:
        """The initializers that a node reads."""
        read = {name for node in self.nodes for name in node.input}
        return [numpy_helper.from_array(array, name) for name, array in self._arrays.items() if name in read]


@dataclass(frozen=True)
class Node(ArrangingNode[Value]):
    """One symbol. Exporters read its types and inputs and write nodes through it; they see nothing else."""

    scope: Scope

    # Inputs

    def input(self, index: int) -> Value:
        """An input in its own dtype, for operators that every dtype has."""
        return self.scope.value(self.symbol.inputs[index])

    def input_as(self, index: int, *dtypes: str) -> Value:
        """An input in its own dtype where that is one of `dtypes`, else in int32."""
        symbol = self.symbol.inputs[index]
        return self.scope.value(symbol) if symbol.dtype in dtypes else self.scope.widened(symbol)

    def wide(self, index: int) -> Value:
        """An input in int32."""
        return self.scope.widened(self.symbol.inputs[index])

    def factors(self, first: int, second: int) -> tuple[Factor, Factor]:
        """Two inputs to be multiplied and added up: both as uint8 where both are of 8 bits, else both as int32."""
        symbols = self.symbol.inputs[first], self.symbol.inputs[second]
        if all(symbol.dtype in ("int8", "uint8", "bool") for symbol in symbols):
            return self.scope.factor(symbols[0]), self.scope.factor(symbols[1])
        return Factor(self.scope.widened(symbols[0])), Factor(self.scope.widened(symbols[1]))

    def array(self, value: Value) -> Array | None:
        """What a value holds, where it is the same for every input of the graph."""
        return self.scope.array(value)

    # Nodes

    def emit(self, op: str, inputs: Sequence[Value | Array], dtype: str = "", **attributes: Any) -> Value:
        """A node of an ONNX operator, and its value, of the first input's dtype unless one is given."""
        values = [x if isinstance(x, Value) else self.scope.constant(x) for x in inputs]
        return self.scope.emit(op, values, self.scope.unique(f"{self.symbol.name}/{op}"), dtype, **attributes)

    def cast(self, value: Value, dtype: str) -> Value:
        """`value` in another dtype, which must hold it."""
        return value if value.dtype == dtype else self.emit("Cast", [value], dtype, to=element_type(dtype))

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        array = self.array(value)
        if array is not None:
            return self.scope.constant(array.reshape(tuple(shape)), f"{value.name}/Reshape")
        return self.emit("Reshape", [value, lengths(shape)])

    def transposed(self, value: Value, axes: Sequence[int]) -> Value:
        array = self.array(value)
        if array is not None:
            return self.scope.constant(array.transpose(axes), f"{value.name}/Transpose")
        return self.emit("Transpose", [value], perm=list(axes))

    def sliced(self, value: Value, slices: Sequence[slice], shape: Sequence[int]) -> Value:
        cuts = []
        for axis, (cut, length) in enumerate(zip(slices, shape, strict=True)):
            start, stop, step = cut.indices(length)
            if (start, stop, step) != (0, length, 1):
                # Where a backward slice goes on to element 0 Python says -1, which ONNX counts from the end.
                cuts.append((axis, start, stop if stop >= 0 else -length - 1, step))
        if not cuts:
            return value
        array = self.array(value)
        if array is not None:
            return self.scope.constant(array[tuple(slices)], f"{value.name}/Slice")
        axes, starts, stops, steps = zip(*cuts, strict=True)
        return self.emit("Slice", [value, lengths(starts), lengths(stops), lengths(axes), lengths(steps)])

    def padded(self, value: Value, before: Sequence[int], after: Sequence[int], fill: int) -> Value:
        if not any((*before, *after)):
            return value
        return self.emit("Pad", [value, lengths((*before, *after)), np.asarray(fill, value.dtype)], mode="constant")


def int32(value: Any) -> Array:
    return np.asarray(value, np.int32)


def lengths(values: Sequence[int]) -> Array:
    """Shapes, axes and the like, which ONNX has in int64."""
    return np.asarray(values, np.int64)


def element_type(dtype: str) -> int:
    """ONNX's number of a NumPy dtype."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


_EXPORTERS: Exporters[Node, Value] = Exporters("ONNX's integer operators", "exporters.onnx")
"""By record. The value may have any dtype that holds it; it is cast to the symbol's."""
exporter = _EXPORTERS.register
"""Registers a function as the exporter of the operators of records."""
find_exporter = _EXPORTERS.find
check_covered = _EXPORTERS.check_covered
REAL_EXPORTERS: Exporters[Node, Value] = Exporters("ONNX's operators on real values")
"""By record, of what takes or gives floats: at the ends of an integer graph, and in the float tail behind it."""
real_exporter = REAL_EXPORTERS.register
