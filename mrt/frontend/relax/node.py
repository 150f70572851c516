"""What a converter sees: one Relax call with its attributes, its inputs, and means to make symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from mrt.errors import GraphError
from mrt.frontend.shared.node import Value, ValueScope
from mrt.frontend.shared.registry import Converters
from mrt.frontend.tvm.node import TVMNode, graph_dtype, item_of
from mrt.symbol import Array, TensorType


class Scope(ValueScope):
    """The values of one Relax function while it is read. Shapes and numbers are int64 and float64 arrays."""

    def __init__(self, names: Mapping[Any, str]) -> None:
        """`names`: the variables of the function, each with the unique name of its symbol."""
        super().__init__(names.values())
        self.names = names
        self._values: dict[Any, Value] = {}
        self._constants: dict[Any, Array] = {}

    def input(self, variable: Any, type: TensorType) -> None:
        self._values[variable] = self.graph_input(self.names[variable], type)

    def define(self, variable: Any, value: Value) -> None:
        self._values[variable] = value
        if isinstance(value, np.ndarray):
            self.entitle(value, self.names[variable])

    def read(self, expression: Any) -> Value:
        """The value of a variable, constant, shape, number, or tuple of them; GraphError for any other expression."""
        if isinstance(expression, tvm.ir.Var):
            if expression not in self._values:
                raise GraphError(f"{expression.name} is read before it is computed; the module is malformed")
            return self._values[expression]
        if isinstance(expression, tvm.ir.Tuple):
            return tuple(self.read(field) for field in expression.fields)
        if isinstance(expression, tvm.ir.TupleGetItem):
            return item_of(self.read(expression.tuple_value), int(expression.index))
        if expression not in self._constants:
            self._constants[expression] = constant_of(expression)
        return self._constants[expression]


def constant_of(expression: Any) -> Array:
    """The array of a constant, shape or number; GraphError for any other expression."""
    if isinstance(expression, tvm.ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
        return to_array(expression.value)
    if isinstance(expression, relax.ShapeExpr):
        sizes = static_sizes(expression)
        if sizes is None:
            raise GraphError(f"the shape {list(expression.values)} is dynamic; only the batch of an input may be")
        return np.asarray(sizes, dtype=np.int64)
    if isinstance(expression, tirx.IntImm):
        return np.asarray(int(expression), dtype=np.int64)
    if isinstance(expression, tirx.FloatImm):
        return np.asarray(float(expression), dtype=np.float64)
    raise GraphError(f"{type(expression).__name__} is no constant, shape or number; a module in normal form is needed")


def static_sizes(shape: Any) -> tuple[int, ...] | None:
    """The sizes of a ShapeExpr, None where one is dynamic or the shape is not known at all."""
    if not isinstance(shape, relax.ShapeExpr):
        return None
    sizes = [static_size(size) for size in shape.values]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def static_size(size: Any) -> int | None:
    """A size that is a number or, as TVM's importers leave some, a float number cast to one; None for any other."""
    if isinstance(size, tirx.IntImm):
        return int(size)
    inner = getattr(size, "value", None) if type(size).__name__ == "Cast" else None
    return int(float(inner)) if isinstance(inner, tirx.FloatImm) and float(inner).is_integer() else None


def to_array(tensor: Any) -> Array:
    """A TVM tensor or anything that NumPy reads as an array; bfloat16 as float32, which holds it exactly."""
    array = np.asarray(tensor.numpy() if isinstance(tensor, tvm.runtime.Tensor) else tensor)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


@dataclass(frozen=True)
class Node(TVMNode):
    """One Relax call. Converters read it and make symbols through it; they see nothing else of the module."""

    call: Any

    @property
    def operator(self) -> str:
        return str(self.call.op.name)

    @property
    def kind(self) -> str:
        return self.operator.removeprefix("relax.")

    # Attributes

    def integer(self, name: str) -> int:
        return int(getattr(self.call.attrs, name))

    def integers(self, name: str) -> tuple[int, ...] | None:
        values = getattr(self.call.attrs, name)
        return None if values is None else tuple(int(value) for value in values)

    def number(self, name: str) -> float:
        return float(getattr(self.call.attrs, name))

    def flag(self, name: str) -> bool:
        return bool(getattr(self.call.attrs, name))

    def text(self, name: str) -> str:
        return str(getattr(self.call.attrs, name))

    def is_none(self, name: str) -> bool:
        return getattr(self.call.attrs, name) is None

    # The result as TVM infers it

    @property
    def result_dtype(self) -> str:
        return graph_dtype(str(self.call.ty.dtype))

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of the one output; GraphError where it is dynamic."""
        sizes = static_sizes(self.call.ty.shape)
        if sizes is None:
            raise GraphError(f"{self.label}: the shape of its output is dynamic; only the batch of an input may be")
        return sizes


Converter = Callable[[Node], Value]
"""Gives the value of a call: a tuple where the call gives one."""

_CONVERTERS: Converters[Converter] = Converters("Relax", "relax")
converter = _CONVERTERS.register
"""Registers a function as the converter of Relax operators, named without their leading "relax."."""


def find_converter(operator: str) -> Converter | None:
    """The converter of an operator such as "relax.nn.relu", None if it is not covered."""
    return _CONVERTERS.find(operator.removeprefix("relax."))
