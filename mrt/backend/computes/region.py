"""The compute of regions: chains of elementwise operators that the graph holds as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tvm import tirx

from mrt.backend.memory.storage import View
from mrt.backend.te.registry import Kind, compute, find_compute, kind_of, repeats_input
from mrt.backend.te.stages import elementwise, inlined, stage
from mrt.backend.tir.expressions import Expression, Tensor, dtype_of
from mrt.symbol import Operator, Symbol, apply, variable
from mrt.symbol.operators.region import ElementwiseRegion, parse_expression

_Value = TypeVar("_Value")


def _kind(symbol: Symbol[ElementwiseRegion]) -> Kind:
    """Elementwise, if every operator is and at most one repeats its input: TVM follows every path through variables."""
    steps: list[Symbol] = []
    _fold(symbol, None, lambda step, _: steps.append(step))
    is_short = all(kind_of(step) is Kind.ELEMENTWISE for step in steps) and sum(map(repeats_input, steps)) <= 1
    return Kind.ELEMENTWISE if is_short else Kind.OTHER


@compute(ElementwiseRegion, kind=_kind, repeats_input=True)
def elementwise_region(symbol: Symbol[ElementwiseRegion], data: Tensor) -> View:
    """One expression, or one up to each operator that is stored: it is not elementwise, or repeats its input."""
    if _kind(symbol) is Kind.ELEMENTWISE:
        return inlined(symbol.shape, symbol.dtype, lambda *at: _element(symbol, data, at))

    def made(step: Symbol, values: Sequence[Tensor]) -> Tensor:
        tensor = find_compute(step)(step, *values)
        return _stored(tensor) if kind_of(step) is not Kind.ELEMENTWISE or repeats_input(step) else tensor

    # TVM wants an output that is no input.
    return elementwise(symbol, _fold(symbol, data, made), body=lambda x: x)


def _element(symbol: Symbol[ElementwiseRegion], data: Tensor, at: Sequence[Expression]) -> Expression:
    """The element at an index. What an operator gives is held by a variable, since others may read it several times."""
    held: list[tuple[Expression, Expression]] = []

    def hold(value: Expression) -> View:
        name = tirx.Var("held", dtype_of(value))
        held.append((name, value))
        return inlined(symbol.shape, dtype_of(value), lambda *_: name)

    made = _fold(symbol, hold(data(*at)), lambda step, values: hold(find_compute(step)(step, *values)(*at)))(*at)
    for name, value in reversed(held):
        made = tirx.Let(name, value, made)
    return made


def _fold(
    symbol: Symbol[ElementwiseRegion], data: _Value, made: Callable[[Symbol, Sequence[_Value]], _Value]
) -> _Value:
    """The value of a region whose input is `data`: `made(operator, values of its inputs)`, equal parts once."""

    def applied(inner: Operator, inputs: list[tuple[Symbol, _Value]]) -> tuple[Symbol, _Value]:
        step = apply(inner, [source for source, _ in inputs], symbol.name)
        return step, made(step, [value for _, value in inputs])

    start = (variable(symbol.name, symbol.type), data)
    return parse_expression(symbol.operator.expression).fold(start, applied)[1]


def _stored(tensor: Tensor) -> View:
    held = stage(tuple(tensor.shape), lambda *at: tensor(*at), "stored")
    return inlined(tuple(tensor.shape), held.dtype, lambda *at: held(*at))
