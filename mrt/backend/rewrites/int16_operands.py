"""What layers and products of matrices read is stored as int16 where 16 bits hold it, with an offset if need be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from mrt.backend.kernels.dot_instructions import choose_dot, fitting_dot
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Flatten, Reshape, Transpose

LEAST, MOST = DTYPE_RANGES["int16"]
MOVING = (Flatten, Pad, Reshape, Transpose)
"""What takes an offset through."""
LAYERS = (Convolution, FullyConnected)
NO_DOT = "no instruction adds up products of int16"


@dataclass(frozen=True)
class Int16Operands(Rewrite):
    """An int32 tensor whose bounds are at most 2^16 - 1 apart is read as int16, of which machines have dots.

    1. X that layers or products of matrices read, and one other at most, becomes (X - z) + z, with X - z in int16: z is
       0 where int16 holds X, as of an affine matrix less its zero point, else the least X - z is -2^15.
    2. Pad(X' + z), Flatten, Reshape and Transpose become Pad(X') + z, of a constant less z.
    3. Layer(X' + z, W) becomes Layer(X', W) + z ΣW, where the sums of X' stay in 32 bits.
    4. batch_dot(X' + 0, Y) and (Y, X' + 0) become those of X'.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if symbol.dtype != "int32" or self.facts.machine is None or not inputs:
            return None
        if isinstance(symbol.operator, BatchDot):
            return _product(symbol, inputs, builder) or self._split(graph, symbol, inputs, builder)
        offset = _offset(inputs[0], builder)
        if offset is not None and isinstance(symbol.operator, MOVING):
            return _moved(symbol, inputs[0], offset, builder)
        if offset is not None and isinstance(symbol.operator, LAYERS):
            return self._layer(graph, symbol, inputs, offset, builder)
        return self._split(graph, symbol, inputs, builder)

    def _split(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        """Case 1."""
        readers, others = _readers(graph, symbol)
        if not readers:
            return None
        bounds = self.facts.bounds(graph)[symbol.name]
        if bounds.max - bounds.min > MOST - LEAST:
            return f"it is in [{bounds.min}, {bounds.max}], which exceeds 16 bits"
        if others > 1:
            return "several read it in 32 bits"
        offset = 0 if bounds.min >= LEAST and bounds.max <= MOST else int(bounds.min) - LEAST
        for reader in readers:
            if refusal := self._why_not(graph, reader, offset):
                return f"{reader.name} ({reader.op}), which reads it: {refusal}"
        whole = builder.apply(symbol.operator, inputs, f"{symbol.name}_int32", symbol.origin)
        less = _plus(whole, -offset, f"{symbol.name}_less", builder) if offset else whole
        held = builder.apply(Cast(dtype="int16"), [less], f"{symbol.name}_offset", symbol.origin)
        return _plus(held, offset, symbol.name, builder)

    def _layer(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], offset: int, builder: GraphBuilder
    ) -> Symbol | None:
        """Case 3."""
        weight = graph.value(symbol.inputs[1])
        if weight is None or self._why_not(graph, symbol, offset):
            return None
        if not offset:
            return builder.apply(symbol.operator, [inputs[0].inputs[0], *inputs[1:]], symbol.name, symbol.origin)
        operator, data = _without_bias(symbol.operator), inputs[0].inputs[0]
        added = _added(graph, symbol, offset, weight)
        sums = builder.apply(operator, [data, inputs[1]], f"{symbol.name}_of_offset", symbol.origin)
        shape = [1] * symbol.type.rank
        shape[1 if isinstance(operator, Convolution) else -1] = len(weight)
        constants = builder.parameter(f"{symbol.name}_offsets", added.astype(np.int32).reshape(shape), symbol.origin)
        return builder.apply(BroadcastAdd(), [sums, constants], symbol.name, symbol.origin)

    def _why_not(self, graph: Graph, layer: Symbol, offset: int) -> str:
        """Why a layer or a product does not read its data less `offset`; empty where it does."""
        operator, data = layer.operator, layer.inputs[0]
        if isinstance(operator, BatchDot):
            return self._why_no_product(offset)
        weight, bounds = graph.value(layer.inputs[1]), self.facts.bounds(graph)
        if weight is None or (len(layer.inputs) == 3 and graph.value(layer.inputs[2]) is None):
            return "its weight or bias is computed"
        if offset and isinstance(operator, Convolution) and any(operator.pad):
            return "it pads its data with 0"
        if self.facts.machine is None or not choose_dot("int16", weight, "int32", self.facts.machine).instruction:
            return NO_DOT
        held = bounds[data.name].map(lambda bound: bound.astype(np.int64) - offset)
        if held.min < LEAST or held.max > MOST:
            return f"what it reads is in [{held.min}, {held.max}] less the offset"
        sums = _without_bias(operator).intermediates(held, bounds[layer.inputs[1].name])
        added = _added(graph, layer, offset, weight)
        least, most = DTYPE_RANGES["int32"]
        fits = all(each.fits_int32 for each in sums) and added.min(initial=0) >= least and added.max(initial=0) <= most
        return "" if fits else "its sums might exceed 32 bits"

    def _why_no_product(self, offset: int) -> str:
        """The same of a product of matrices."""
        if offset:
            return "an offset would have to be taken off both matrices' sums"
        machine = self.facts.machine
        return "" if machine and fitting_dot("int16", "int16", 0, "int32", machine).instruction else NO_DOT


def _without_bias(operator: Operator) -> Operator:
    return replace(operator, no_bias=True) if isinstance(operator, LAYERS) else operator


def _added(graph: Graph, layer: Symbol, offset: int, weight: Array) -> Array:
    """What takes the offset off for each output channel, and the bias."""
    added: Array = offset * weight.reshape(len(weight), prod(weight.shape[1:])).sum(axis=1, dtype=np.int64)
    return added + np.asarray(graph.value(layer.inputs[2]), np.int64) if len(layer.inputs) == 3 else added


def _readers(graph: Graph, symbol: Symbol) -> tuple[list[Symbol], int]:
    """The layers and products that read a symbol as their data, moved or not, and how many read it otherwise."""
    found, others, waiting = [], 0, [symbol]
    while waiting:
        each = waiting.pop()
        others += each in graph.outputs
        for reader in graph.consumers[each]:
            if isinstance(reader.operator, MOVING):
                waiting.append(reader)
            elif isinstance(reader.operator, BatchDot) or (
                isinstance(reader.operator, LAYERS) and each is reader.inputs[0]
            ):
                found.append(reader)
            else:
                others += 1
    return found, others


def _offset(data: Symbol, builder: GraphBuilder) -> int | None:
    """What is added to an int16 tensor to make `data`; None if it is made otherwise."""
    if not data.inputs or data.inputs[0].dtype != "int16":
        return None
    if isinstance(data.operator, Cast):
        return 0
    value = builder.value(data.inputs[1]) if isinstance(data.operator, BroadcastAdd) else None
    return int(value.reshape(())) if value is not None and value.size == 1 else None


def _product(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
    """Case 4."""
    held = [each.inputs[0] if _offset(each, builder) == 0 else each for each in inputs]
    if all(a is b for a, b in zip(held, inputs, strict=True)):
        return None
    return builder.apply(symbol.operator, held, symbol.name, symbol.origin)


def _moved(symbol: Symbol, data: Symbol, offset: int, builder: GraphBuilder) -> Symbol | None:
    """Case 2."""
    operator = symbol.operator
    if isinstance(operator, Pad) and operator.mode == "constant":
        value = operator.constant_value - offset
        if not LEAST <= value <= MOST:
            return None
        operator = replace(operator, constant_value=value)
    held = builder.apply(operator, [data.inputs[0]], f"{symbol.name}_offset", symbol.origin)
    return _plus(held, offset, symbol.name, builder)


def _plus(data: Symbol, number: int, name: str, builder: GraphBuilder) -> Symbol:
    """data + number in int32."""
    if not number:
        return builder.apply(Cast(dtype="int32"), [data], name, data.origin)
    term = builder.parameter(f"{name}_term", np.full((1,) * data.type.rank, number, np.int32), data.origin)
    return builder.apply(BroadcastAdd(), [data, term], name, data.origin)
