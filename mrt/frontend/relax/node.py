"""What a converter sees: one Relax call with its attributes, its inputs, and means to make symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from mrt.errors import GraphError
from mrt.frontend.node import ModelNode, ModelScope, Value
from mrt.frontend.registry import Converters
from mrt.symbol import Array, Symbol, TensorType
from mrt.symbol.types import FLOAT_DTYPES


class Scope(ModelScope):
    """The values of one Relax function while it is read. Shapes and numbers are int64 and float64 arrays."""

    def __init__(self, names: Mapping[Any, str]) -> None:
        """`names`: the variables of the function, each with the unique name of its symbol."""
        super().__init__(names.values())
        self.names = names
        self._values: dict[Any, Value] = {}
        self._constants: dict[Any, Array] = {}
        # By identity of the array, which is kept beside so that the identity stays its own.
        self._titles: dict[int, tuple[Array, str]] = {}

    def input(self, variable: Any, type: TensorType) -> None:
        self._values[variable] = self.builder.input(self.names[variable], type)

    def define(self, variable: Any, value: Value) -> None:
        self._values[variable] = value
        if isinstance(value, np.ndarray):
            self._titles.setdefault(id(value), (value, self.names[variable]))

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

    def parameter_of(self, array: Array, kind: str, transform: Callable[[Array], Array], title: str) -> Symbol:
        """The parameter `transform(array)`, made once per array and `kind` of transformation.

        It is called after the variable that holds the array, or `title` where none does.
        """
        _, name = self._titles.get(id(array), (array, ""))
        if not name or kind:
            name = self.made_up(f"{name}_{kind}" if name else title)
        return self.parameter_once((id(array), kind), array, transform, name)

    def symbol(self, value: Value, title: str) -> Symbol:
        """The symbol of a value; an array becomes a parameter, once."""
        if isinstance(value, Symbol):
            return value
        if isinstance(value, tuple):
            raise GraphError(f"{title}: a tuple is given; a tensor is needed")
        return self.parameter_of(value, "", lambda array: array, title)


def item_of(value: Value, index: int) -> Value:
    """An item of a tuple value."""
    if not isinstance(value, tuple) or index >= len(value):
        raise GraphError(f"item {index} of a value that is no tuple of so many; the module is malformed")
    return value[index]


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
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(size, tirx.IntImm) for size in shape.values):
        return None
    return tuple(int(size) for size in shape.values)


def to_array(tensor: Any) -> Array:
    """A TVM tensor or anything that NumPy reads as an array; bfloat16 as float32, which holds it exactly."""
    array = np.asarray(tensor.numpy() if isinstance(tensor, tvm.runtime.Tensor) else tensor)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def graph_dtype(dtype: str) -> str:
    """A Relax dtype in the graph: every float is float32."""
    return "float32" if dtype in FLOAT_DTYPES | {"bfloat16"} else dtype


@dataclass(frozen=True)
class Node(ModelNode):
    """One Relax call. Converters read it and make symbols through it; they see nothing else of the module."""

    scope: Scope
    call: Any
    inputs: tuple[Value, ...]

    @property
    def operator(self) -> str:
        return str(self.call.op.name)

    # Inputs

    def input(self, index: int) -> Value:
        """An input; GraphError if it is not given."""
        if index >= len(self.inputs):
            raise GraphError(f"{self.label}: input {index} is missing; the module is malformed")
        return self.inputs[index]

    def symbol(self, index: int, role: str = "constant") -> Symbol:
        return self.scope.symbol(self.input(index), f"{self.name}_{role}")

    def symbols(self, index: int, role: str = "constant") -> list[Symbol]:
        """The items of an input that is a tuple of tensors."""
        value = self.input(index)
        if not isinstance(value, tuple) or not value:
            raise GraphError(f"{self.label}: input {index} is no tuple of tensors; one is needed")
        return [self.scope.symbol(item, f"{self.name}_{role}{place}") for place, item in enumerate(value)]

    def parameter_of(self, index: int, role: str, kind: str, transform: Callable[[Array], Array]) -> Symbol:
        return self.scope.parameter_of(self.known(index, role), kind, transform, f"{self.name}_{role}")

    # Attributes

    def integer(self, name: str) -> int:
        return int(getattr(self.call.attrs, name))

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers, None where it is not given."""
        values = getattr(self.call.attrs, name)
        return None if values is None else tuple(int(value) for value in values)

    def sizes(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of integers and always given."""
        return tuple(int(value) for value in getattr(self.call.attrs, name))

    def number(self, name: str) -> float:
        return float(getattr(self.call.attrs, name))

    def flag(self, name: str) -> bool:
        return bool(getattr(self.call.attrs, name))

    def text(self, name: str) -> str:
        return str(getattr(self.call.attrs, name))

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """An attribute that names axes, counted from the front and sorted; all of them where it is not given."""
        given = self.integers(name)
        return tuple(range(rank)) if given is None else tuple(sorted(self.axis(axis, rank) for axis in given))

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

_CONVERTERS: Converters[Converter] = Converters("Relax")
converter = _CONVERTERS.register
"""Registers a function as the converter of Relax operators, named without their leading "relax."."""


def find_converter(operator: str) -> Converter | None:
    """The converter of an operator such as "relax.nn.relu", None if it is not covered."""
    return _CONVERTERS.find(operator.removeprefix("relax."))


def is_known(values: Iterable[Value]) -> bool:
    """Whether none of the values depends on the data."""
    return all(is_known(value) if isinstance(value, tuple) else isinstance(value, np.ndarray) for value in values)
