"""One node of a graph: an operator applied to symbols, with its inferred type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.types import TensorType


@operator("null")
class Variable(Operator):
    """A graph's input or parameter; MXNet's `null`. Its value comes from outside the graph."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    def infer(self) -> TensorType:
        return TensorType(self.shape, self.dtype)

    def evaluate(self) -> Array:
        raise GraphError("a variable has no value of its own")

    def bounds(self) -> Interval:
        raise GraphError("a variable has no bounds of its own")


Record = TypeVar("Record", bound=Operator, default=Operator, covariant=True)


@dataclass(frozen=True, eq=False)
class Symbol(Generic[Record]):
    """An operator, a name that is unique in its graph, inputs, and the type of the one output.

    `Symbol[Convolution]` is a symbol whose operator is of that record; plain `Symbol` says nothing of it.

    Symbols are compared by identity. `origin` is the name of the prepared float symbol that this one was made from,
    so that tables and reports survive rewriting; it is the symbol's own name where it was made from none.
    """

    operator: Record
    name: str
    inputs: tuple[Symbol, ...]
    type: TensorType
    origin: str

    @property
    def op(self) -> str:
        return self.operator.op

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def is_variable(self) -> bool:
        return type(self.operator) is Variable

    @property
    def channel_axis(self) -> int | None:
        """The axis of the output, not negative, that counts output channels; None where there is no weight."""
        axis = self.operator.channel_axis()
        return None if axis is None else axis % self.type.rank

    def __repr__(self) -> str:
        return f"<{self.name} ({self.op}) {self.type}>"


def apply(operator: Operator, inputs: Sequence[Symbol], name: str, origin: str | None = None) -> Symbol:
    """A symbol of `operator` on `inputs`, its type inferred; GraphError names the symbol if they do not fit."""
    try:
        inferred = operator.infer(*(symbol.type for symbol in inputs))
    except GraphError as error:
        raise GraphError(f"{name} ({operator.op}): {error}") from None
    except TypeError:
        kinds = ", ".join(f"{symbol.name}: {symbol.type}" for symbol in inputs)
        raise GraphError(
            f"{name} ({operator.op}): {len(inputs)} inputs are given ({kinds}), "
            f"it takes {', '.join(operator.input_names)}"
        ) from None
    return Symbol(operator, name, tuple(inputs), inferred, origin or name)


def on_inputs(symbol: Symbol, inputs: tuple[Symbol, ...], name: str) -> Symbol:
    """The operator of a symbol on other inputs, by a name; its type is inferred only where one of theirs is another."""
    if all(new.type == old.type for new, old in zip(inputs, symbol.inputs, strict=True)):
        return Symbol(symbol.operator, name, inputs, symbol.type, symbol.origin)
    return apply(symbol.operator, inputs, name, symbol.origin)


def variable(name: str, type: TensorType, origin: str | None = None) -> Symbol:
    """A variable symbol, for an input or a parameter."""
    return Symbol(Variable(type.shape, type.dtype), name, (), type, origin or name)
