"""What a converter of any reader sees: one node of the foreign model with its inputs, and means to make symbols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.shared.quantized import QuantizedConstant
from mrt.frontend.shared.refusals import MAX_MADE, check_size
from mrt.symbol import Array, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.integer import Dequantize
from mrt.symbol.types import INTEGER_DTYPES, normalize_axis

Value = Union[Symbol, Array, "tuple[Value, ...]"]
"""What is known of a model's value: a symbol of the graph, an array where it does not depend on the data, or a tuple
of values, in formats that have them."""


class ModelScope:
    """The values of one model while it is read.

    A value takes its own name as a symbol; names that the reader makes up never take the place of one of these.
    """

    def __init__(self, names: Iterable[str], keep_float64: bool = False) -> None:
        """`names`: all names of the model's values. keep_float64: float64 stays, where every other float is float32."""
        self.builder = GraphBuilder()
        self.keep_float64 = keep_float64
        self._reserved = frozenset(names)
        self._parameters: dict[Hashable, tuple[Array, Symbol]] = {}
        # By identity of the array, which is kept beside so that the identity stays its own.
        self._quantized: dict[int, tuple[Array, QuantizedConstant]] = {}

    def made_up(self, name: str) -> str:
        """`name`, changed if a value of the model has it."""
        while name in self._reserved:
            name += "_"
        return name

    def graph_input(self, name: str, type: TensorType) -> Symbol:
        """A new input of the graph; GraphError where it is too large to be meant."""
        check_size(f"input {name}", type.shape)
        return self.builder.input(name, type)

    def apply(self, operator: Operator, inputs: Sequence[Symbol], name: str, suffix: str = "") -> Symbol:
        """A new symbol, under the name of a value or, with a suffix, one made from it.

        GraphError where its inputs do not fit, or it is too large to be meant.
        """
        result = self.builder.apply(operator, inputs, self.made_up(f"{name}_{suffix}") if suffix else name)
        check_size(f"{result.name} ({operator.op})", result.shape)
        return result

    def parameter(self, value: Array, name: str) -> Symbol:
        """A new parameter, floats as `float_dtype` says, integers as they are; GraphError for any other dtype."""
        # NaN, infinity and overflow stay as they are; whoever uses the graph reports them with their name.
        with np.errstate(all="ignore"):
            return self.builder.parameter(name, self._as_parameter(value, name))

    def float_dtype(self, dtype: str) -> str:
        """What a float of this dtype becomes in the graph."""
        return "float64" if self.keep_float64 and dtype == "float64" else "float32"

    def parameter_once(self, key: Hashable, array: Array, transform: Callable[[Array], Array], name: str) -> Symbol:
        """The parameter `transform(array)`, made once per key. The array is kept, so that a key may be its identity."""
        if key not in self._parameters:
            with np.errstate(all="ignore"):
                stored = self.quantized(array)
                moved = None if stored is None else stored.moved(transform)
                made = self.parameter(transform(array), name) if moved is None else self._kept(moved, name)
            self._parameters[key] = array, made
        return self._parameters[key][1]

    def keep_quantized(self, array: Array, constant: QuantizedConstant | None) -> None:
        """Makes what reads a known array read the quantized constant that it is the value of."""
        if constant is not None:
            self._quantized[id(array)] = array, constant

    def quantized(self, array: Array) -> QuantizedConstant | None:
        """The quantized constant that an array is the value of, None where it is of none."""
        return self._quantized.get(id(array), (array, None))[1]

    def real(self, symbol: Symbol) -> Symbol:
        """A symbol of integers as the float that they are."""
        name = f"{symbol.name}_real"
        one = self.parameter(np.ones((), np.float32), self.made_up(f"{name}_scale"))
        zero = self.parameter(np.zeros((), np.int32), self.made_up(f"{name}_zero_point"))
        return self.apply(Dequantize(), [symbol, one, zero], self.made_up(name))

    def _kept(self, constant: QuantizedConstant, name: str) -> Symbol:
        roles = ("stored", *constant.operator.input_names[1:])
        inputs = [
            self.parameter(value, self.made_up(f"{name}_{role}"))
            for role, value in zip(roles, constant.inputs, strict=True)
        ]
        return self.apply(constant.operator, inputs, name)

    def _as_parameter(self, array: Array, name: str) -> Array:
        if array.dtype.kind == "f":
            return np.asarray(array, dtype=self.float_dtype(array.dtype.name), order="C")
        if array.dtype.name in INTEGER_DTYPES:
            return np.asarray(array, order="C")
        raise GraphError(
            f"constant {name} has dtype {array.dtype}; floats of 16 to 64 bits or signed integers are needed"
        )


class ValueScope(ModelScope):
    """The values of a model whose nodes hold them. A known array becomes a parameter once its symbol is needed."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names)
        # By identity of the array, which is kept beside so that the identity stays its own.
        self._titles: dict[int, tuple[Array, str]] = {}

    def entitle(self, array: Array, name: str) -> None:
        """Calls an array as the first variable that holds it."""
        self._titles.setdefault(id(array), (array, name))

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


@dataclass(frozen=True)
class ModelNode(ABC):
    """One node of a model. Each reader adds how the attributes of its format are read."""

    name: str
    """The name of the node's first result."""
    scope: ModelScope

    @property
    @abstractmethod
    def operator(self) -> str:
        """The operator as the format calls it."""

    @property
    def label(self) -> str:
        """What errors call the node."""
        return f"{self.name} ({self.operator})"

    # Inputs

    @abstractmethod
    def input(self, index: int) -> Value:
        """An input; GraphError if it is not given."""

    @abstractmethod
    def symbol(self, index: int, role: str = "constant") -> Symbol:
        """An input as a symbol; a known array becomes a parameter, called by its `role` if it has no name."""

    @abstractmethod
    def parameter_of(self, index: int, role: str, kind: str, transform: Callable[[Array], Array]) -> Symbol:
        """A parameter made from a known input; nodes that transform one in the same way, `kind`, share it."""

    def array(self, index: int) -> Array | None:
        """An input where it is known, None where it depends on the data."""
        value = self.input(index)
        return value if isinstance(value, np.ndarray) else None

    def is_known(self, index: int) -> bool:
        return self.array(index) is not None

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input tensor."""
        value = self.input(index)
        if isinstance(value, tuple):
            raise GraphError(f"{self.label}: input {index} is a tuple; a tensor is needed")
        return tuple(int(size) for size in value.shape)

    def known(self, index: int, role: str) -> Array:
        """An input that must not depend on the data; a tuple of known values as one array.

        Raises UnsupportedOperatorError, calling the input by its `role`, where it does depend on the data.
        """
        value = self.input(index)
        if isinstance(value, tuple) and all(isinstance(item, np.ndarray) for item in value):
            return np.asarray(value)
        if not isinstance(value, np.ndarray):
            raise self.unsupported(f"input {role}", "computed from the data", "a constant")
        return value

    def known_integers(self, index: int, role: str) -> tuple[int, ...]:
        """A known input as integers."""
        return tuple(int(item) for item in self.known(index, role).reshape(-1))

    def known_number(self, index: int, role: str) -> float:
        """A known input of one element."""
        value = self.known(index, role)
        if value.size != 1:
            raise GraphError(f"{self.label}: input {role} has shape {value.shape}; one number is needed")
        return float(value.reshape(()))

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; GraphError, naming the node, where there is no such axis."""
        try:
            return normalize_axis(axis, rank)
        except GraphError as error:
            raise GraphError(f"{self.label}: {error}") from None

    # Making symbols

    def apply(self, operator: Operator, inputs: Sequence[Symbol], suffix: str = "") -> Symbol:
        """A new symbol, under the name of the node's result or, with a suffix, one made from it."""
        return self.scope.apply(operator, inputs, self.name, suffix)

    def made(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that the node asks for, where a constant of it may be made; GraphError where it is too large."""
        if min(shape, default=1) < 1:
            raise GraphError(f"{self.label}: gives a tensor of shape {tuple(shape)}; positive lengths are needed")
        check_size(self.label, shape, MAX_MADE)
        return tuple(shape)

    def parameter(self, value: Array, suffix: str) -> Symbol:
        """A new parameter that belongs to this node."""
        return self.scope.parameter(value, self.scope.made_up(f"{self.name}_{suffix}"))

    # Refusals

    def unsupported(self, what: str, found: object, needed: str) -> UnsupportedOperatorError:
        """The error for a covered operator used in a way that is not covered; the caller raises it."""
        return UnsupportedOperatorError(f"{self.label}: {what} is {found}; {needed} is needed")


@dataclass(frozen=True)
class ValueNode(ModelNode):
    """One node that holds the values of its inputs."""

    scope: ValueScope
    inputs: tuple[Value, ...]

    def input(self, index: int) -> Value:
        """An input; GraphError if it is not given."""
        if index >= len(self.inputs):
            raise GraphError(f"{self.label}: input {index} is missing; the model is malformed")
        return self.inputs[index]

    def symbol(self, index: int, role: str = "constant") -> Symbol:
        return self.scope.symbol(self.input(index), f"{self.name}_{role}")

    def symbols(self, index: int, role: str = "constant") -> list[Symbol]:
        """The items of an input that is a tuple of tensors."""
        return [self.scope.symbol(item, f"{self.name}_{role}{place}") for place, item in enumerate(self.items(index))]

    def items(self, index: int) -> tuple[Value, ...]:
        """An input that is a tuple of one or more."""
        value = self.input(index)
        if not isinstance(value, tuple) or not value:
            raise GraphError(f"{self.label}: input {index} is no tuple of tensors; one is needed")
        return value

    def parameter_of(self, index: int, role: str, kind: str, transform: Callable[[Array], Array]) -> Symbol:
        return self.scope.parameter_of(self.known(index, role), kind, transform, f"{self.name}_{role}")
