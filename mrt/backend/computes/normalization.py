"""Normalizations and softmax, and what does nothing once trained."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te

from mrt.backend.compute import Kind, compute, record
from mrt.backend.computes.reduce import reduced
from mrt.backend.expressions import Expression, Tensor, constant
from mrt.backend.stages import elementwise, inlined, stage
from mrt.symbol import Symbol
from mrt.symbol.operators.normalization import BatchNorm, LayerNorm, LogSoftmax, Softmax


@compute("BatchNorm")
def batch_norm(
    symbol: Symbol, data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor
) -> Tensor:
    operator, dtype = record(symbol, BatchNorm), symbol.dtype
    axis = operator.axis % len(symbol.shape)

    def element(*at: Expression) -> Expression:
        channel = at[axis]
        deviation = te.sqrt(moving_var(channel).astype(dtype) + constant(operator.eps, dtype))
        scale = constant(1, dtype) if operator.fix_gamma else gamma(channel).astype(dtype)
        centred = data(*at) - moving_mean(channel).astype(dtype)
        return centred * (scale / deviation) + beta(channel).astype(dtype)

    return stage(symbol.shape, element, "batch_norm")


@compute("LayerNorm")
def layer_norm(symbol: Symbol, data: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Two passes: the variance is taken of the centred values."""
    operator, dtype = record(symbol, LayerNorm), symbol.dtype
    axis = operator.axis % len(symbol.shape)
    count = constant(symbol.shape[axis], dtype)
    kept = tuple(1 if i == axis else n for i, n in enumerate(symbol.shape))

    def along(at: tuple[Expression, ...]) -> list[Expression]:
        return [0 if i == axis else place for i, place in enumerate(at)]

    total = reduced(data, [axis], kept, te.sum, dtype)
    centred = stage(symbol.shape, lambda *at: data(*at) - total(*along(at)) / count, "centred")
    squares = inlined(symbol.shape, symbol.dtype, lambda *at: centred(*at) * centred(*at))
    variance = reduced(squares, [axis], kept, te.sum, dtype)

    def element(*at: Expression) -> Expression:
        deviation = te.sqrt(variance(*along(at)) / count + constant(operator.eps, dtype))
        return centred(*at) / deviation * gamma(at[axis]).astype(dtype) + beta(at[axis]).astype(dtype)

    return stage(symbol.shape, element, "layer_norm")


@compute("softmax")
def softmax(symbol: Symbol, data: Tensor) -> Tensor:
    operator = record(symbol, Softmax)
    below, along = _below_highest(symbol, data, operator.axis, operator.temperature)
    raised = stage(symbol.shape, lambda *at: te.exp(below(*at)), "raised")
    total = _total(symbol, raised, operator.axis)
    return stage(symbol.shape, lambda *at: raised(*at) / total(*along(at)), "softmax")


@compute("log_softmax")
def log_softmax(symbol: Symbol, data: Tensor) -> Tensor:
    operator = record(symbol, LogSoftmax)
    below, along = _below_highest(symbol, data, operator.axis, operator.temperature)
    raised = inlined(symbol.shape, symbol.dtype, lambda *at: te.exp(below(*at)))
    total = _total(symbol, raised, operator.axis)
    return stage(symbol.shape, lambda *at: below(*at) - te.log(total(*along(at))), "log_softmax")


_Along = Callable[[tuple[Expression, ...]], list[Expression]]


def _below_highest(symbol: Symbol, data: Tensor, axis: int, temperature: float | None) -> tuple[Tensor, _Along]:
    """The data over the temperature less its maximum along the axis, and the index of a place's reduction over it."""
    axis %= len(symbol.shape)
    divisor = constant(temperature or 1.0, symbol.dtype)

    def along(at: tuple[Expression, ...]) -> list[Expression]:
        return [0 if i == axis else place for i, place in enumerate(at)]

    scaled = inlined(symbol.shape, symbol.dtype, lambda *at: data(*at) / divisor)
    highest = reduced(scaled, [axis], _kept(symbol, axis), te.max, symbol.dtype)
    below = inlined(symbol.shape, symbol.dtype, lambda *at: scaled(*at) - highest(*along(at)))
    return below, along


def _total(symbol: Symbol, data: Tensor, axis: int) -> Tensor:
    axis %= len(symbol.shape)
    return reduced(data, [axis], _kept(symbol, axis), te.sum, symbol.dtype)


def _kept(symbol: Symbol, axis: int) -> tuple[int, ...]:
    return tuple(1 if i == axis else n for i, n in enumerate(symbol.shape))


@compute("Dropout", "_copy", kind=Kind.ELEMENTWISE)
def same(symbol: Symbol, data: Tensor) -> Tensor:
    return elementwise(symbol, data, body=lambda x: x)
