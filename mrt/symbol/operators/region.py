"""An elementwise region as one operator: a function of one tensor that is written down as an expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, find_operator, is_operator, operator, parse_operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.operators._intervals import without_nan
from mrt.symbol.operators.functions import FloatFunction
from mrt.symbol.types import TensorType

MAX_OPERATORS = 48
"""Operators of one expression; deeper ones would exhaust the recursion of who reads and compiles them."""

_TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*)|([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|inf))|([(),=]))")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Expression:
    """A tree of elementwise operators over one tensor x: `operator` on the values of `arguments`; None is x itself."""

    operator: Operator | None = None
    arguments: tuple[Expression, ...] = ()

    @property
    def size(self) -> int:
        """How many operators there are."""
        return sum(1 for part in self._parts() if part.operator is not None)

    def fold(self, x: _Value, apply: Callable[[Operator, list[_Value]], _Value]) -> _Value:
        """The value of the tree: `x` at its leaves, `apply(operator, values)` above them; equal parts once."""
        found: dict[Expression, _Value] = {Expression(): x}
        pending = [self]
        while pending:
            part = pending[-1]
            missing = [argument for argument in part.arguments if argument not in found]
            if part in found or part.operator is None:
                pending.pop()
            elif missing:
                pending += missing
            else:
                found[part] = apply(part.operator, [found[argument] for argument in part.arguments])
        return found[self]

    def as_line(self) -> tuple[Expression, float, float]:
        """(inner, a, b): the tree is a * inner + b, where inner is no arithmetic with numbers."""
        inner, steps = self, list[Operator]()
        while (found := inner.operator) and found.operation and len(inner.arguments) == 1 and found.exact_in_integers:
            steps.append(found)
            (inner,) = inner.arguments
        ends = np.array([0.0, 1.0])
        for step in reversed(steps):
            ends = step.evaluate(ends)
        return inner, float(ends[1] - ends[0]), float(ends[0])

    def _parts(self) -> Iterator[Expression]:
        pending = [self]
        while pending:
            part = pending.pop()
            yield part
            pending += part.arguments

    def __str__(self) -> str:
        return self.fold("x", _written)


def _written(operator: Operator, arguments: list[str]) -> str:
    attributes = [f"{name}={value}" for name, value in operator.attributes().items()]
    return f"{operator.op}({', '.join([*arguments, *attributes])})"


@lru_cache(maxsize=1024)
def parse_expression(text: str) -> Expression:
    """The tree of a text such as "elemwise_mul(x, tanh(_mul_scalar(x, scalar=0.5)))"; GraphError if it is none.

    An operator's arguments, `Operator.expression_arity` of them, come first, then its attributes.
    """
    return _Parser(text).whole()


class _Parser:
    """Reads an expression from its text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._operators = 0

    def whole(self) -> Expression:
        result = self._expression()
        if self._at < len(self._tokens):
            raise self._wrong(f"ends before {self._tokens[self._at]!r}")
        return result

    def _expression(self) -> Expression:
        name = self._take()
        if name == "x":
            return Expression()
        arity = _arity(name)
        if not arity:
            raise self._wrong(f"holds {name!r}, which is no elementwise operator of one or two tensors")
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise self._wrong(f"has more than {MAX_OPERATORS} operators")
        self._expect("(")
        arguments = [self._expression()]
        attributes: dict[str, str] = {}
        while self._take_if(","):
            if self._following("="):
                key = self._take()
                self._expect("=")
                attributes[key] = self._take()
            else:
                arguments.append(self._expression())
        self._expect(")")
        if len(arguments) != arity or attributes.get("act_type") == "prelu":
            raise self._wrong(f"gives {name} {len(arguments)} tensors")
        return Expression(parse_operator(name, attributes), tuple(arguments))

    def _following(self, token: str) -> bool:
        return self._tokens[self._at + 1 : self._at + 2] == [token]

    def _take(self) -> str:
        if self._at == len(self._tokens):
            raise self._wrong("ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take_if(self, token: str) -> bool:
        found = self._tokens[self._at : self._at + 1] == [token]
        self._at += found
        return found

    def _expect(self, token: str) -> None:
        if not self._take_if(token):
            raise self._wrong(f"lacks {token!r} at token {self._at}")

    def _wrong(self, what: str) -> GraphError:
        return GraphError(f"the expression {self._text!r} {what}")


def _arity(name: str) -> int:
    """How many operands an operator has in an expression, which knows it under its own name and no other."""
    record = find_operator(name) if is_operator(name) else Operator
    return record.expression_arity if record.op == name else 0


def _tokens(text: str) -> Iterator[str]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise GraphError(f"the expression {text!r} is malformed at character {at}")
        yield found[1] or found[2] or found[3]
        at = found.end()


@operator("elementwise_region")
class ElementwiseRegion(FloatFunction):
    """A function of one tensor, elementwise, given by an expression of operators; see `parse_expression`. Float only.

    The whole is computed in float64.
    """

    expression_arity = 0
    family = "function"

    expression: str

    def infer(self, x: TensorType) -> TensorType:
        parse_expression(self.expression)
        return require_float(x)

    def evaluate(self, x: Array) -> Array:
        def apply(operator: Operator, values: list[Array]) -> Array:
            with np.errstate(all="ignore"):
                return np.asarray(operator.evaluate(*values), np.float64)

        return parse_expression(self.expression).fold(x.astype(np.float64), apply)

    def bounds(self, x: Interval) -> Interval:
        """Operator by operator, as if operands were independent: sound, not tight."""

        def apply(operator: Operator, values: list[Interval]) -> Interval:
            with np.errstate(all="ignore"):
                return without_nan(operator.bounds(*values))

        return parse_expression(self.expression).fold(x.map(lambda v: v.astype(np.float64)), apply)
