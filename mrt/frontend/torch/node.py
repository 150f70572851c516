"""What a converter sees: one node of an exported program with its arguments, and means to emit Relax calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tvm import relax

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.shared.refusals import MAX_MADE, check_size
from mrt.frontend.shared.registry import Converters
from mrt.symbol import Array

Expression = Any
"""A Relax expression; a converter gives one, a tuple of them, or None for a node that computes nothing."""


@dataclass(frozen=True)
class Node:
    """One call of an operator of PyTorch. Its tensors are float32 or integers, whatever floats the program has."""

    name: str
    fx: Any
    importer: Any
    """TVM's importer, which holds the expressions made so far and the builder of the function."""
    is_known: Callable[[Any], bool]
    """Whether a node of the program does not depend on its inputs."""
    indices: Mapping[Any, Array] = field(default_factory=dict)
    """The values of the nodes that are constants of integers."""

    @property
    def operator(self) -> str:
        """The operator and its overload, such as "add.Tensor"."""
        return str(self.fx.target.__name__)

    @property
    def label(self) -> str:
        """What errors call the node: as exported, and what it was taken apart into."""
        origin = origin_of(self.fx)
        exported, own = str(origin.target).removeprefix("aten."), f"{self.fx.name} ({self.operator})"
        if origin is self.fx or exported == self.operator:
            return f"{origin.name} ({self.operator})"
        return f"{origin.name} ({exported}), taken apart into {own}"

    # Arguments

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Every argument of the operator's schema by name, defaults included."""
        schema = self.fx.target._schema.arguments
        found = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
        found.update(zip((argument.name for argument in schema), self.fx.args, strict=False))
        found.update(self.fx.kwargs)
        return found

    def has(self, name: str) -> bool:
        """Whether an optional argument is given."""
        return self.arguments.get(name) is not None

    def tensor(self, name: str) -> Expression:
        """An argument that is a tensor."""
        return self.importer.env[self.arguments[name]]

    def tensors(self, name: str) -> list[Expression]:
        """An argument that is a list of tensors."""
        return [self.importer.env[item] for item in self.arguments[name]]

    def operand(self, name: str, dtype: str) -> Expression:
        """An argument that is a tensor or a number, as a tensor of a dtype."""
        value = self.arguments[name]
        if isinstance(value, torch.fx.Node):
            return self.cast(self.importer.env[value], dtype)
        return constant(value, dtype)

    def integer(self, name: str) -> int:
        return int(self.arguments[name])

    def number(self, name: str) -> float:
        return float(self.arguments[name])

    def flag(self, name: str) -> bool:
        return bool(self.arguments[name])

    def integers(self, name: str) -> tuple[int, ...]:
        """An argument that is a list of integers, or one that stands for a list of one; empty where it is not given."""
        value = self.arguments[name]
        if value is None:
            return ()
        return (int(value),) if isinstance(value, int) else tuple(int(item) for item in value)

    def sizes(self, name: str, count: int) -> tuple[int, ...]:
        """A list of integers for each spatial axis, of which one stands for all."""
        values = self.integers(name)
        return values * count if len(values) == 1 else values

    def axes(self, name: str, rank: int) -> list[int]:
        """A list of axes counted from the front and sorted; all of them where none is named."""
        return sorted({axis % rank for axis in self.integers(name)}) if rank and self.integers(name) else [*range(rank)]

    def depends(self, name: str) -> bool:
        """Whether a tensor depends on the inputs of the program."""
        return not self.is_known(self.arguments[name])

    def promoted(self, *names: str) -> str:
        """The dtype to which PyTorch brings tensors and numbers that meet."""
        values = [self.arguments[name] for name in names]
        found = [value.meta["val"] if isinstance(value, torch.fx.Node) else value for value in values]
        return relax_dtype(torch.result_type(*found))

    # The result

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first output."""
        return tuple(int(size) for size in self._first_value.shape)

    @property
    def dtype(self) -> str:
        """The dtype of the first output."""
        return relax_dtype(self._first_value.dtype)

    @property
    def _first_value(self) -> Any:
        value = self.fx.meta["val"]
        return value[0] if isinstance(value, (tuple, list)) else value

    def emit(self, expression: Expression, suffix: str = "step") -> Expression:
        """The expression as a variable of the function, whose type is known, called as the node with a suffix."""
        return self.importer.block_builder.emit(expression, f"{self.name}_{suffix}" if suffix else self.name)

    def cast(self, expression: Expression, dtype: str) -> Expression:
        """The expression in a dtype; a truth value says whether something is not 0."""
        own = dtype_of(expression)
        if own == dtype:
            return expression
        if dtype == "bool":
            return self.emit(relax.op.not_equal(expression, constant(0, own)))
        return self.emit(relax.op.astype(expression, dtype))

    def made(self, *shape: int) -> tuple[int, ...]:
        """The shape of a constant that the node makes; GraphError where no network is so large."""
        check_size(self.label, shape, MAX_MADE)
        return shape

    def unsupported(self, what: str, found: object, needed: str) -> UnsupportedOperatorError:
        """The error for a covered operator used in a way that is not covered; the caller raises it."""
        return UnsupportedOperatorError(f"{self.label}: {what} is {found}; {needed} is needed")


def constant(value: Any, dtype: str = "float32") -> Expression:
    """A number or array as a Relax constant."""
    return relax.const(np.asarray(value).astype(dtype), dtype)


def shape_of(expression: Expression) -> tuple[int, ...]:
    return tuple(int(size) for size in expression.ty.shape)


def dtype_of(expression: Expression) -> str:
    return str(expression.ty.dtype)


def relax_dtype(dtype: Any) -> str:
    """A dtype of PyTorch in Relax, every float, and every part of a complex number, as float32."""
    return "float32" if dtype.is_floating_point or dtype.is_complex else str(dtype).removeprefix("torch.")


def called(target: Any) -> str:
    """What a program calls an operator, such as aten.relu.default; of Python's own on sizes, its name and that."""
    text = str(target)
    plain = re.fullmatch(r"<built-in function (\w+)>", text)
    return text if plain is None else f"{plain[1]} of sizes"


def origin_of(node: Any) -> Any:
    """The exported node that a node was made of when operators were taken apart; itself where none is told."""
    sources: Sequence[Any] = node.meta.get("from_node") or ()
    return sources[-1] if sources and "." in str(sources[-1].target) else node


Converter = Callable[[Node], Any]

_CONVERTERS: Converters[Converter] = Converters("PyTorch", "torch")
converter = _CONVERTERS.register
"""Registers a function as the converter of operators of PyTorch's library aten, named with their overload."""
find_converter = _CONVERTERS.find


def importers_own(*operators: str) -> None:
    """Has operators converted as TVM's importer does, where that is right whatever the arguments are."""
    converter(*operators)(_imported)


def _imported(node: Node) -> Any:
    return node.importer.create_convert_map()[node.operator](node.fx)


def covered_operators() -> frozenset[str]:
    """The operators that have a converter, with their overloads."""
    return _CONVERTERS.operators
