"""The types that a Relay text states, checked against the values that it is given and that are computed."""

from __future__ import annotations

import numpy as np

from mrt.errors import DataError, GraphError
from mrt.frontend.relay.syntax import TensorSyntax, TupleSyntax, TypeSyntax
from mrt.frontend.relay.values import Closure, Known
from mrt.frontend.tvm.node import graph_dtype
from mrt.symbol import Array, Symbol, TensorType
from mrt.symbol.types import DTYPES

_LONGEST_AXIS = 2**28


def tensor_syntax(name: str, type: TypeSyntax | None) -> TensorSyntax:
    """The type of an argument; GraphError where it is none of a tensor."""
    if not isinstance(type, TensorSyntax):
        found = "has no type" if type is None else "is no tensor"
        raise GraphError(f"argument {name} {found}; a tensor of static sizes is needed (a batch may be dynamic)")
    return type


def graph_type(name: str, shape: tuple[int, ...], dtype: str) -> TensorType:
    """The type of an input in a graph; GraphError where a graph has none such."""
    if graph_dtype(dtype) not in DTYPES:
        raise GraphError(f"argument {name} is of dtype {dtype}; a float or signed integer is needed")
    if max(shape, default=0) > _LONGEST_AXIS:
        raise GraphError(f"argument {name} has shape {shape}; at most {_LONGEST_AXIS} elements along an axis are read")
    return TensorType(shape, graph_dtype(dtype))


def value_dtype(dtype: str) -> str:
    """NumPy's dtype for a value of an argument."""
    return graph_dtype(dtype) if graph_dtype(dtype) == "float32" else dtype


def check_value(name: str, value: Array, type: TypeSyntax | None) -> None:
    """DataError where a value has not its argument's shape, or is an integer for a float or the reverse."""
    if type is None:
        return
    if not isinstance(type, TensorSyntax):
        raise DataError(f"parameter {name} is given as an array; its argument is no tensor")
    if not _fits(value.shape, type.shape):
        raise DataError(f"parameter {name} is given with shape {value.shape}; {_shown(type.shape)} is needed")
    if (graph_dtype(type.dtype) == "float32") != (value.dtype.kind == "f"):
        raise DataError(f"parameter {name} is given as {value.dtype}; {type.dtype} is needed")


def check_type(value: Known, type: TypeSyntax | None, title: str) -> None:
    """GraphError where a value has not the structure or the shapes that a type says."""
    stack: list[tuple[Known, TypeSyntax | None]] = [(value, type)]
    while stack:
        found, needed = stack.pop()
        if isinstance(needed, TupleSyntax) and isinstance(found, tuple):
            if len(found) != len(needed.items):
                raise GraphError(f"{title} has {len(found)} items; the text says {len(needed.items)}")
            stack += zip(found, needed.items, strict=True)
        elif isinstance(needed, (TupleSyntax, TensorSyntax)) and isinstance(found, (tuple, Closure)):
            raise GraphError(f"{title} is a tuple or function where the text says another type")
        elif isinstance(needed, TupleSyntax) and isinstance(found, (Symbol, np.ndarray)):
            raise GraphError(f"{title} is a tensor; the text says a tuple")
        elif (
            isinstance(needed, TensorSyntax)
            and isinstance(found, (Symbol, np.ndarray))
            and not _fits(tuple(found.shape), needed.shape)
        ):
            raise GraphError(f"{title} has shape {tuple(found.shape)}; the text says {_shown(needed.shape)}")


def _fits(shape: tuple[int, ...], stated: tuple[int | None, ...]) -> bool:
    return len(shape) == len(stated) and all(b is None or a == b for a, b in zip(shape, stated, strict=True))


def _shown(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"
