"""Elementwise regions in float: the computes of their operators, one on the other."""

from __future__ import annotations

from mrt.backend.memory.storage import View
from mrt.backend.te.registry import Kind, compute, find_compute, kind_of, repeats_input
from mrt.backend.te.stages import elementwise, inlined, stage
from mrt.backend.tir.expressions import Tensor
from mrt.symbol import Operator, Symbol, apply, variable
from mrt.symbol.operators.region import ElementwiseRegion, parse_expression


@compute(ElementwiseRegion)
def elementwise_region(symbol: Symbol[ElementwiseRegion], data: Tensor) -> Tensor:
    """Every operator is computed where it is read; stored are those that are not Kind.ELEMENTWISE or repeat their
    input.
    """

    def applied(inner: Operator, values: list[tuple[Symbol, Tensor]]) -> tuple[Symbol, Tensor]:
        step = apply(inner, [source for source, _ in values], symbol.name)
        tensor = find_compute(step)(step, *(tensor for _, tensor in values))
        if kind_of(step) is not Kind.ELEMENTWISE or repeats_input(step):
            tensor = _stored(tensor, symbol.shape)
        return step, tensor

    start = (variable(symbol.name, symbol.type), data)
    _, result = parse_expression(symbol.operator.expression).fold(start, applied)
    # TVM wants an output that is no input.
    return elementwise(symbol, result, body=lambda x: x)


def _stored(tensor: Tensor, shape: tuple[int, ...]) -> View:
    held = stage(shape, lambda *at: tensor(*at), "stored")
    return inlined(shape, held.dtype, lambda *at: held(*at))
