"""Data of 9 to 16 bits as two tensors of bytes where tiles multiply, which hold bytes only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from mrt.backend.kernels.dot_instructions import choose_dot
from mrt.backend.kernels.x86.amx.tiles import DOT_BYTES, FEWEST
from mrt.backend.operators.data_bytes import BYTE, HighByte, JoinBytes, LowByte
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Operator, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pad import Pad

LAYERS = (Convolution, FullyConnected)
DEEP = 256
"""Products of a sum from which on two products of tiles are expected to save more than what it takes to store the sums
of the high bytes and to read them again: 8 bytes of each sum, against products of words that vectors form at a third of
the rate of tiles."""


@dataclass(frozen=True)
class DataInBytes(Rewrite):
    """With X = low + 256 · high a layer's sums are those of low plus 256 times those of high.

    1. An int16 X that layers read for which tiles pay, and no other layers, becomes JoinBytes(low, high).
    2. Pad(JoinBytes(low, high)) becomes JoinBytes(Pad(low), Pad(high)), of the bytes of its constant.
    3. Layer(JoinBytes(low, high), W) becomes Layer(low, W) + 256 · Layer(high, W), where both terms fit 32 bits.

    Only on machines with tiles: vectors multiply words in as many instructions as their bytes.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if self.facts.machine is None or not self.facts.machine.has_tiles or not inputs:
            return None
        data, operator = inputs[0], symbol.operator
        if isinstance(data.operator, JoinBytes):
            if isinstance(operator, Pad):
                return _padded(symbol, operator, data, builder)
            if isinstance(operator, LAYERS):
                return _by_bytes(symbol, operator, inputs, builder)
        return self._split(graph, symbol, inputs, builder)

    def _split(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        """Case 1."""
        if symbol.dtype != "int16" or isinstance(symbol.operator, (Pad, JoinBytes)):
            return None
        readers = _layers(graph, symbol)
        if not readers:
            return None
        for reader in readers:
            if refusal := self._why_not(graph, reader):
                return f"{reader.name} ({reader.op}), which reads it, takes no bytes of it: {refusal}"
        whole = builder.apply(symbol.operator, inputs, f"{symbol.name}_int16", symbol.origin)
        low = builder.apply(LowByte(), [whole], f"{symbol.name}_low", symbol.origin)
        high = builder.apply(HighByte(), [whole], f"{symbol.name}_high", symbol.origin)
        return builder.apply(JoinBytes(), [low, high], symbol.name, symbol.origin)

    def _why_not(self, graph: Graph, layer: Symbol) -> str:
        """Why a layer is not to be formed of bytes; empty where it is."""
        weight, operator = graph.value(layer.inputs[1]), layer.operator
        if weight is None or weight.dtype != np.int8:
            return "its weight is no constant of bytes"
        if getattr(operator, "num_group", 1) > 1:
            return "groups of channels read data of their own"
        if prod(weight.shape[1:]) < DEEP or weight.shape[1] < FEWEST * DOT_BYTES:
            return f"its sums have fewer than {DEEP} products, or {FEWEST * DOT_BYTES} of one tap"
        rows = prod(layer.shape[:-1]) if isinstance(operator, FullyConnected) else layer.shape[-1]
        if rows < FEWEST:
            return f"a row has fewer than {FEWEST} positions"
        for dtype in ("uint8", "int8"):
            dot = choose_dot(dtype, weight, "int32", self.facts.machine) if self.facts.machine else None
            if dot is None or not dot.is_of_bytes:
                return f"sums of {dtype} might exceed 32 bits"
        return "" if self._fits(graph, layer, operator) else "its sums of one byte might exceed 32 bits"

    def _fits(self, graph: Graph, layer: Symbol, operator: Operator) -> bool:
        """Whether the sums of either byte, those of the high one 256 times, fit 32 bits, with the bias."""
        bounds = self.facts.bounds(graph)
        data, *others = (bounds[source.name] for source in layer.inputs)
        low, high = LowByte().bounds(data), HighByte().bounds(data)
        weight = others[0]
        upper = _without_bias(operator).intermediates(high.map(_widened), weight)
        least, most = (end // BYTE for end in DTYPE_RANGES["int32"])
        fits = all(each.min >= least and each.max <= most for each in upper)
        return fits and all(each.fits_int32 for each in operator.intermediates(low.map(_widened), *others))


def _widened(bound: np.ndarray) -> np.ndarray:
    return bound.astype(np.int64)


def _layers(graph: Graph, symbol: Symbol) -> list[Symbol]:
    """The layers that read a symbol as their data, padded or not."""
    found, waiting = [], [symbol]
    while waiting:
        each = waiting.pop()
        for reader in graph.consumers[each]:
            if isinstance(reader.operator, Pad) and reader.operator.mode == "constant":
                waiting.append(reader)
            elif isinstance(reader.operator, LAYERS) and each is reader.inputs[0]:
                found.append(reader)
    return found


def _without_bias(operator: Operator) -> Operator:
    return replace(operator, no_bias=True) if isinstance(operator, LAYERS) else operator


def _padded(symbol: Symbol, operator: Pad, data: Symbol, builder: GraphBuilder) -> Symbol | None:
    """Case 2."""
    if operator.mode != "constant":
        return None
    high, low = divmod(int(operator.constant_value), BYTE)
    parts = [
        builder.apply(replace(operator, constant_value=value), [held], f"{symbol.name}_{part}", symbol.origin)
        for held, value, part in zip(data.inputs, (low, high), ("low", "high"), strict=True)
    ]
    return builder.apply(JoinBytes(), parts, symbol.name, symbol.origin)


def _by_bytes(symbol: Symbol, operator: Operator, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol:
    """Case 3."""
    data, weight, *bias = inputs
    low, high = data.inputs
    upper = builder.apply(_without_bias(operator), [high, weight], f"{symbol.name}_of_high", symbol.origin)
    shape = (1,) * symbol.type.rank
    byte = builder.parameter(f"{symbol.name}_byte", np.full(shape, BYTE, np.int32), symbol.origin)
    scaled = builder.apply(BroadcastMul(), [upper, byte], f"{symbol.name}_of_high_scaled", symbol.origin)
    lower = builder.apply(operator, [low, weight, *bias], f"{symbol.name}_of_low", symbol.origin)
    return builder.apply(ElemwiseAdd(), [lower, scaled], symbol.name, symbol.origin)
