"""What the names and expressions of a Relay text stand for while it is read."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from mrt.errors import GraphError
from mrt.frontend.relay.syntax import Body, Call, Condition, Expression, Function, Local, Projection, Tuple
from mrt.frontend.shared.node import Value
from mrt.frontend.tvm.node import item_of
from mrt.symbol import Array, Symbol


@dataclass(frozen=True, eq=False)
class Environment:
    """What names stand for in a function's body; `parent` is that of the function around."""

    parent: Environment | None = None
    values: dict[str, Known] = field(default_factory=dict)

    def find(self, name: str) -> Known | None:
        scope: Environment | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None


@dataclass(frozen=True, eq=False)
class Closure:
    """A function with what its free names stand for; name: where it is one of the module's."""

    function: Function
    environment: Environment
    name: str = ""


@dataclass(frozen=True, eq=False)
class StandIn:
    """Stands for what an operator would give that is refused, until the refusal, or that is not needed."""


@dataclass(frozen=True, eq=False)
class Traced(StandIn):
    """Stands for a value that is not computed: an argument by its name, or an item of what an operator gives."""

    key: tuple[str | int, ...]


Known = Union[Symbol, Array, "tuple[Known, ...]", Closure, StandIn]
Steps = Generator[Any, Any, Any]
"""A computation that yields the computations that it needs; see `_Reader._run`."""


def projected(value: Known, index: int) -> Known:
    """An item of a tuple; GraphError where there is none."""
    if isinstance(value, Traced):
        return Traced((*value.key, index))
    return value if isinstance(value, StandIn) else item_of(value, index)  # type: ignore[arg-type]


def look_up(local: Local, environment: Environment) -> Known:
    """What a name stands for. Names may hold dots: only what is not a name itself is split into name and projection."""
    for name, path in _splits(local.name):
        value = environment.find(name)
        if value is not None:
            for index in path:
                value = projected(value, index)
            return value
    raise GraphError(f"line {local.line}: %{local.name} is not defined")


def _splits(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A name as a whole, and with one, two, … numbers after dots taken as projections."""
    path: tuple[int, ...] = ()
    while True:
        yield name, path
        head, dot, tail = name.rpartition(".")
        if not dot or not tail.isdecimal() or len(tail) > 9 or len(path) > 100:
            return
        name, path = head, (int(tail), *path)


def names_in(expression: Expression) -> set[str]:
    """The names that an expression may refer to."""
    names: set[str] = set()
    stack: list[Expression | Body] = [expression]
    while stack:
        item = stack.pop()
        if isinstance(item, Local):
            names.update(name for name, _ in _splits(item.name))
        elif isinstance(item, Call):
            stack += (item.callee, *item.arguments)
        elif isinstance(item, Tuple):
            stack += item.items
        elif isinstance(item, Projection):
            stack.append(item.value)
        elif isinstance(item, Condition):
            stack += item.parts
        elif isinstance(item, Function):
            stack.append(item.body)
        elif isinstance(item, Body):
            stack += (item.result, *(binding.value for binding in item.bindings))
    return names


def flat(value: Any) -> Iterator[Any]:
    """The items of nested tuples, in order."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            stack += reversed(item)
        else:
            yield item


def as_value(value: Known, label: str) -> Value:
    """A tensor or tuple of tensors; GraphError where it is a function."""
    if any(isinstance(item, Closure) for item in flat(value)):
        raise GraphError(f"{label}: a function is given; a tensor or a tuple of tensors is needed")
    return value  # type: ignore[return-value]


def as_tensor(value: Any) -> Value:
    """An output of the module; GraphError where it is a function."""
    if isinstance(value, (Closure, StandIn)):
        raise GraphError("the result holds a function; tensors are needed")
    return value  # type: ignore[no-any-return]
