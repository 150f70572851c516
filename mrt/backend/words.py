"""Sums and requantizations in words: a vector holds twice as many integers of 16 bits as of 32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mrt.symbol import Array, Graph, GraphBuilder, Interval, RewritePass, Symbol, TensorType
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.integer import Cast, RightShift

WORD = 16
"""Bits of a word."""
WORDS = ("int8", "uint8", "int16")
"""Dtypes whose values an int16 holds."""


@dataclass(frozen=True)
class WordSum(ElemwiseAdd):
    """lhs + rhs in int16, which holds the sum."""

    op = "word_sum"

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return super().infer(lhs, rhs).with_dtype("int16")


@dataclass(frozen=True)
class WordShift(RightShift):
    """x / 2^shift rounded half up, of a word x, in int16; 0 <= shift <= 15."""

    op = "word_shift"

    def infer(self, x: TensorType, shift: TensorType) -> TensorType:
        return super().infer(x, shift).with_dtype("int16")


@dataclass(frozen=True)
class UpperWord(BroadcastMul):
    """floor(x · f / 2^16) of words x and f, in int16: what processors give for vectors of words."""

    op = "upper_word"

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return super().infer(lhs, rhs).with_dtype("int16")

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        product: Array = super().evaluate(lhs, rhs) >> WORD
        return product

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return super().bounds(lhs, rhs).map(lambda bound: bound >> WORD)


@dataclass(frozen=True)
class Words(RewritePass):
    """What is proven to fit 16 bits is computed in words, with the same integers.

    1. elemwise_add of words becomes a WordSum.
    2. x >> s of a word x becomes a WordShift.
    3. (x * f) >> s of words x and f and s >= 17 becomes WordShift(UpperWord(x, f), s - 16). With x * f = 2^16 q + r and
       0 <= r < 2^16 the shift gives (2^16 q + r + 2^(s-1)) >> s, of which r reaches no bit, since 2^16 divides 2^(s-1).
    4. Cast(clip(x, lo, hi)) to int16 becomes a clip of words, of what one conversion that saturates gives.

    1 to 3 only where s is one constant and what follows keeps to words, or makes other integers of them by itself.
    bounds: of the graph given, by name. A symbol that keeps its name keeps its values.
    """

    bounds: Mapping[str, Interval] = field(compare=False)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        match symbol.operator:
            case ElemwiseAdd() if _are_words(inputs) and self._may_be_word(graph, symbol):
                return builder.apply(WordSum(), inputs, symbol.name, symbol.origin)
            case RightShift() if self._may_be_word(graph, symbol):
                return _shifted(graph, symbol, inputs, builder)
            case Cast(dtype="int16"):
                return _saturated(graph, symbol, inputs[0], builder)
        return None

    def _may_be_word(self, graph: Graph, symbol: Symbol) -> bool:
        """Whether an int16 holds the symbol, and whatever has its dtype since it is made of it."""
        lo, hi = DTYPE_RANGES["int16"]
        waiting = [symbol]
        while waiting:
            each = waiting.pop()
            bounds = self.bounds[each.name]
            if bounds.min < lo or bounds.max > hi or each in graph.outputs:
                return False
            for reader in graph.consumers[each]:
                if isinstance(reader.operator, (Relu, Clip)):
                    waiting.append(reader)
                elif not isinstance(reader.operator, (BroadcastAdd, BroadcastMul, Cast, ElemwiseAdd, RightShift)):
                    return False
        return True


def _are_words(symbols: tuple[Symbol, ...]) -> bool:
    return all(symbol.dtype in WORDS for symbol in symbols)


def _shifted(graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
    """Case 2 or 3 of a right shift; None where it is neither."""
    (data, by), shift = inputs, graph.value(symbol.inputs[1])
    if shift is None or shift.size != 1:
        return None
    if _are_words((data,)) and int(shift.max()) < WORD:
        return builder.apply(WordShift(), inputs, symbol.name, symbol.origin)
    scaled = symbol.inputs[0]
    if not isinstance(data.operator, BroadcastMul) or not _are_words(data.inputs) or int(shift.min()) <= WORD:
        return None
    if graph.consumers[scaled] != (symbol,) or scaled in graph.outputs or graph.value(scaled.inputs[1]) is None:
        return None
    upper = builder.apply(UpperWord(), data.inputs, f"{scaled.name}_upper", scaled.origin)
    left = builder.parameter(f"{by.name}_left", shift - np.int8(WORD), by.origin)
    return builder.apply(WordShift(), (upper, left), symbol.name, symbol.origin)


def _saturated(graph: Graph, symbol: Symbol, clipped: Symbol, builder: GraphBuilder) -> Symbol | None:
    """Case 4 of a cast to int16; None where it is not."""
    lo, hi = DTYPE_RANGES["int16"]
    operator, source = clipped.operator, symbol.inputs[0]
    if not isinstance(operator, Clip) or clipped.dtype != "int32" or graph.consumers[source] != (symbol,):
        return None
    if source in graph.outputs or operator.a_min < lo or operator.a_max > hi:
        return None
    held = builder.apply(Clip(a_min=lo, a_max=hi), clipped.inputs, f"{clipped.name}_word", clipped.origin)
    word = builder.apply(symbol.operator, [held], f"{symbol.name}_word", symbol.origin)
    return builder.apply(operator, [word], symbol.name, symbol.origin)
