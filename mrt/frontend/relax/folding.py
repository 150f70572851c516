"""Values that do not depend on the data are computed while reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.node import Value
from mrt.frontend.relax.node import Node, Scope, find_converter
from mrt.symbol import Array, Symbol

_NUMPY: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "arange": np.arange,
    "ceil": np.ceil,
    "divide": lambda a, b: np.trunc(a / b) if a.dtype.kind == b.dtype.kind == "i" else a / b,
    "equal": np.equal,
    "exp": np.exp,
    "floor": np.floor,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "log": np.log,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negative": np.negative,
    "not_equal": np.not_equal,
    "power": np.power,
    "round": np.rint,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sign": np.sign,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
    "where": np.where,
}
"""Operators whose meaning NumPy has; used only where no input depends on the data."""


def is_foldable(operator: str) -> bool:
    """Whether a call of the operator is computed where none of its inputs depends on the data."""
    return operator.removeprefix("relax.") in _NUMPY or find_converter(operator) is not None


def fold(node: Node) -> Value:
    """The value of a call none of whose inputs depends on the data: by NumPy, else by what its converter makes.

    Raises GraphError where it cannot be computed.
    """
    compute = _NUMPY.get(node.operator.removeprefix("relax."))
    if compute is not None:
        try:
            with np.errstate(all="ignore"):
                return np.asarray(compute(*node.inputs)).astype(node.result_dtype)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise GraphError(f"{node.label}: cannot be computed on its constant inputs: {error}") from None
    convert = find_converter(node.operator)
    if convert is None:
        raise node.unsupported("the operator", "not covered", "another one")
    scratch = Scope({})
    return _evaluated(convert(replace(node, scope=scratch)), scratch)


def _evaluated(value: Value, scratch: Scope) -> Value:
    if isinstance(value, tuple):
        return tuple(_evaluated(item, scratch) for item in value)
    if not isinstance(value, Symbol):
        return value
    result: Array = scratch.builder.graph([value]).evaluate({})[0]
    return result
