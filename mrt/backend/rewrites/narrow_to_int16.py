"""Sums and requantizations in words: a vector holds twice as many integers of 16 bits as of 32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mrt.backend.kernels.dot_instructions import WORDS
from mrt.backend.operators.int16 import BITS, MOST_UNSIGNED, UpperWord, WordScale, WordShift, WordSum
from mrt.backend.te.rounding import choose_rounding, half_of
from mrt.symbol import Array, Graph, GraphBuilder, Interval, RewritePass, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.integer import Cast, RightShift

FEW = 16
"""Channels that fill no vector of words, which nothing is gained for then."""


@dataclass(frozen=True)
class Words(RewritePass):
    """What is proven to fit 16 bits is computed in words, with the same integers.

    1. elemwise_add of words becomes a WordSum.
    2. x >> s of a word x becomes a WordShift.
    3. (x * f) >> s of words x and f and s >= 17 becomes WordShift(UpperWord(x, f), s - 16). With x * f = 2^16 q + r and
       0 <= r < 2^16 the shift gives (2^16 q + r + 2^(s-1)) >> s, of which r reaches no bit, since 2^16 divides 2^(s-1).
    4. Cast(clip(x, lo, hi)) to int16 becomes a clip of words, of what one conversion that saturates gives.
    5. clip((x * f) >> s, lo, hi) with lo >= 0, of x or of relu(x), becomes clip(WordScale(x, f, s), lo, hi), where no x
       is above 2^16 - 1, or all that are give hi at least, as 2^16 - 1 then does: scaling and rounding keep the order.
       f and s are constants, any number of them.
    6. Where some x above give less, the upper word of x * f is held, and not x: only those below 0 are cut off then,
       since an int32 holds the others' products.
    7. clip((x * f) >> s, lo, hi) with lo < 0 becomes clip(WordShift(UpperWord(x, f), s - 16), lo, hi), as in 3.

    1 to 3 only where what follows keeps to words, or makes other integers of them by itself, and s is one constant, or
    one for each channel on a machine that `has_late`; 6 and 7 only for such a one; 5 to 7 where the clip is cast.
    bounds: of the graph given, by name. A symbol that keeps its name keeps its values.
    """

    bounds: Mapping[str, Interval] = field(compare=False)
    has_late: bool = False

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        match symbol.operator:
            case ElemwiseAdd() if _are_words(inputs) and self._may_be_word(graph, symbol):
                return builder.apply(WordSum(), inputs, symbol.name, symbol.origin)
            case RightShift() if self._may_be_word(graph, symbol):
                return _shifted(graph, symbol, inputs, builder, self.has_late)
            case Clip() as clip if symbol.dtype == "int32":
                return self._scaled(graph, symbol, clip, inputs[0], builder)
            case Cast(dtype="int16"):
                return _saturated(graph, symbol, inputs[0], builder)
        return None

    def _scaled(
        self, graph: Graph, symbol: Symbol, operator: Clip, shifted: Symbol, builder: GraphBuilder
    ) -> Symbol | None:
        """Cases 5 to 7 of a clip; None where it is none of them."""
        (source,) = symbol.inputs
        if type(shifted.operator) is not RightShift or not isinstance(source.inputs[0].operator, BroadcastMul):
            return None
        scaled = source.inputs[0]
        factor, shift = graph.value(scaled.inputs[1]), graph.value(source.inputs[1])
        product, by = shifted.inputs
        if factor is None or shift is None or product.inputs[0].dtype != "int32":
            return None
        if (graph.consumers[source], graph.consumers[scaled]) != ((symbol,), (source,)):
            return None
        if any(each in graph.outputs for each in (symbol, source, scaled)):
            return None
        if not all(isinstance(reader.operator, Cast) for reader in graph.consumers[symbol]):
            return None
        if factor.min() <= 0 or factor.max() > DTYPE_RANGES["int16"][1] or shift.min() <= BITS:
            return None
        data, multiplier = product.inputs
        if operator.a_min < 0:
            if not self._is_signed_word(operator, scaled, shift):
                return None
            upper = builder.apply(UpperWord(), [data, multiplier], f"{scaled.name}_upper", scaled.origin)
            left = builder.parameter(f"{by.name}_left", shift - np.int8(BITS), by.origin)
            word = builder.apply(WordShift(), [upper, left], f"{symbol.name}_word", symbol.origin)
            return builder.apply(operator, [word], f"{symbol.name}_held", symbol.origin)
        scale = self._scale(scaled, factor.astype(np.int64), shift, operator.a_max)
        if scale is None:
            return None
        if isinstance(data.operator, Relu):
            (data,) = data.inputs
        word = builder.apply(scale, [data, multiplier, by], f"{symbol.name}_word", symbol.origin)
        return builder.apply(operator, [word], f"{symbol.name}_held", symbol.origin)

    def _is_signed_word(self, operator: Clip, scaled: Symbol, shift: Array) -> bool:
        """Whether the upper word of a product can be rounded and clipped in words."""
        lo, hi = DTYPE_RANGES["int16"]
        if (
            not self.has_late
            or operator.a_min < lo
            or operator.a_max > hi
            # Of matrices rows are vectors of 32 bits mostly, which nothing is gained for either.
            or (scaled.type.rank > 1 and (scaled.type.rank < 4 or scaled.shape[1] <= FEW))
        ):
            return False
        upper = self.bounds[scaled.name].map(lambda bound: bound >> BITS)
        return choose_rounding(upper, shift - BITS, "int16") is not None

    def _scale(self, scaled: Symbol, factor: Array, shift: Array, limit: float) -> WordScale | None:
        """How x · f is scaled to words that are clipped at a limit; None where words do not hold what counts."""
        # The least x that gives the limit.
        enough = -((half_of(shift) - (int(limit) << shift.astype(np.int64))) // factor)
        if (np.minimum(enough, self.bounds[scaled.inputs[0].name].hi) <= MOST_UNSIGNED).all():
            return WordScale()
        return WordScale(early=False) if self.has_late else None

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


def _shifted(
    graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder, by_channel: bool
) -> Symbol | None:
    """Case 2 or 3 of a right shift; None where it is neither. by_channel: whether channels may have a shift each."""
    (data, by), shift = inputs, graph.value(symbol.inputs[1])
    if shift is None or (shift.size != 1 and not by_channel):
        return None
    if _are_words((data,)) and int(shift.max()) < BITS:
        return builder.apply(WordShift(), inputs, symbol.name, symbol.origin)
    scaled = symbol.inputs[0]
    if not isinstance(data.operator, BroadcastMul) or not _are_words(data.inputs) or int(shift.min()) <= BITS:
        return None
    if graph.consumers[scaled] != (symbol,) or scaled in graph.outputs or graph.value(scaled.inputs[1]) is None:
        return None
    upper = builder.apply(UpperWord(), data.inputs, f"{scaled.name}_upper", scaled.origin)
    left = builder.parameter(f"{by.name}_left", shift - np.int8(BITS), by.origin)
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
