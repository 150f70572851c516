"""Sums and requantizations in int16: a vector holds twice as many of its integers as of 32 bits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mrt.backend.kernels.dot_instruction import INT16_HOLDS
from mrt.backend.kernels.x86.avx512.requantize_int16 import clips_products
from mrt.backend.operators.int16 import (
    BITS,
    MOST_UNSIGNED,
    AddInt16,
    MultiplyHighInt16,
    RequantizeInt16,
    RightShiftInt16,
)
from mrt.backend.rewrites.rewrite import LIMITS_ARE_ATTRIBUTES, Rewrite
from mrt.backend.te.rounding import choose_rounding, half_of
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.integer import Cast, RightShift

FEW = 16
"""Channels that fill no vector of int16, which nothing is gained for then."""
LEAST, MOST = DTYPE_RANGES["int16"]
SAME_DTYPE = (Relu, Clip)
"""What gives the dtype that it reads."""
OWN_DTYPE = (BroadcastAdd, BroadcastMul, Cast, ElemwiseAdd, RightShift)
"""What gives a dtype of its own, whatever integers it reads."""
NO_INSTRUCTIONS = "the machine has no vector instructions for it (AVX-512 VNNI has)"


@dataclass(frozen=True)
class NarrowToInt16(Rewrite):
    """What is proven to fit 16 bits is computed in int16; below, integers of 8 bits count as int16, too.

    1. ElemwiseAdd of int16 becomes AddInt16.
    2. x >> s of an int16 x becomes RightShiftInt16.
    3. (x * f) >> s of int16 x and f and s >= 17 becomes RightShiftInt16(MultiplyHighInt16(x, f), s - 16). With
       x * f = 2^16 q + r and 0 <= r < 2^16 the shift gives (2^16 q + r + 2^(s-1)) >> s, of which r reaches no bit,
       since 2^16 divides 2^(s-1).
    4. Cast(clip(x, lo, hi)) to int16 becomes a clip of int16, of what one conversion that saturates gives.
    5. clip((x * f) >> s, lo, hi) with lo >= 0, of x or of relu(x), becomes clip(RequantizeInt16(x, f, s), lo, hi) where
       no x is above 2^16 - 1, or all that are give hi at least, as 2^16 - 1 then does: scaling and rounding keep the
       order. f and s are constants, any number of them.
    6. Where some x above give less, the upper 16 bits of x * f are clipped, and not x: only those below 0 are cut off
       then, since an int32 holds the others' products.
    7. clip((x * f) >> s, lo, hi) with lo < 0 becomes clip(RightShiftInt16(MultiplyHighInt16(x, f), s - 16), lo, hi), as
       in 3.
    8. clip(((x * f) >> s) + z, lo, hi) with one constant z becomes clip(AddInt16(y, z), lo, hi), y being as in 7.

    1 to 3 only where what follows stays in int16, or gives a dtype of its own, and s is one constant, or one for each
    channel on a machine that `clips_products`; 6 to 8 only for such a one; 5 to 8 where the clip is cast, to bytes if
    there are few channels.
    """

    about = (ElemwiseAdd, RightShift, Clip, Cast)
    requires = (LIMITS_ARE_ATTRIBUTES,)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        match symbol.operator:
            case ElemwiseAdd() if _are_int16(inputs):
                refusal = self._why_wide(graph, symbol)
                return refusal or builder.apply(AddInt16(), inputs, symbol.name, symbol.origin)
            case RightShift():
                return self._shifted(graph, symbol, inputs, builder)
            case Clip() if symbol.dtype == "int32":
                return self._requantized(graph, symbol, symbol.operator, inputs[0], builder)
            case Cast(dtype="int16"):
                return _saturated(graph, symbol, inputs[0], builder)
        return None

    @property
    def _clips_products(self) -> bool:
        return self.facts.machine is not None and clips_products(self.facts.machine)

    def _why_wide(self, graph: Graph, symbol: Symbol) -> str:
        """Why no int16 holds the symbol, and whatever has its dtype since it is made of it; empty where one does."""
        bounds, waiting = self.facts.bounds(graph), [symbol]
        while waiting:
            each = waiting.pop()
            held = bounds[each.name]
            if held.min < LEAST or held.max > MOST:
                return f"{each.name} is in [{held.min}, {held.max}], which exceeds 16 bits"
            if each in graph.outputs:
                return f"{each.name} is an output of the graph"
            for reader in graph.consumers[each]:
                if isinstance(reader.operator, SAME_DTYPE):
                    waiting.append(reader)
                elif not isinstance(reader.operator, OWN_DTYPE):
                    return f"{reader.name} ({reader.op}) reads {each.name}, and takes its dtype from what it reads"
        return ""

    def _shifted(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        """Case 2 or 3 of a right shift."""
        (data, by), shift = inputs, graph.value(symbol.inputs[1])
        is_product = isinstance(data.operator, BroadcastMul) and _are_int16(data.inputs)
        if not is_product and not _are_int16((data,)):
            return None
        if shift is None:
            return "its shift is computed"
        if shift.size != 1 and not self._clips_products:
            return f"its channels are shifted by one number each: {NO_INSTRUCTIONS}"
        refusal = self._why_wide(graph, symbol)
        if refusal:
            return refusal
        if _are_int16((data,)) and int(shift.max()) < BITS:
            return builder.apply(RightShiftInt16(), inputs, symbol.name, symbol.origin)
        if not is_product or int(shift.min()) <= BITS:
            return f"its shift is {int(shift.max())}; a product is shifted by 17 or more, an int16 by 15 or less"
        scaled = symbol.inputs[0]
        if graph.consumers[scaled] != (symbol,) or scaled in graph.outputs:
            return f"{scaled.name}, which it shifts, is read by others too"
        if graph.value(scaled.inputs[1]) is None:
            return "its factor is computed"
        upper = builder.apply(MultiplyHighInt16(), data.inputs, f"{scaled.name}_upper", scaled.origin)
        return builder.apply(RightShiftInt16(), (upper, _less_16(by, shift, builder)), symbol.name, symbol.origin)

    def _requantized(
        self, graph: Graph, symbol: Symbol, operator: Clip, found: Symbol, builder: GraphBuilder
    ) -> Symbol | str | None:
        """Cases 5 to 8 of a clip. found: what its input has become."""
        chain = _Chain.of(graph, symbol)
        if chain is None:
            return None
        shifted = found if chain.moved is None else found.inputs[0]
        if type(shifted.operator) is not RightShift or shifted.inputs[0].inputs[0].dtype != "int32":
            return None
        refusal = chain.why_not_requantized(graph)
        if refusal:
            return refusal
        factor, shift = (np.asarray(graph.value(step.inputs[1])) for step in (chain.scaled, chain.shifted))
        product, by = shifted.inputs
        data, multiplier = product.inputs
        if operator.a_min < 0 or chain.moved is not None:
            refusal = self._why_not_signed(graph, operator, chain, shift)
            if refusal:
                return refusal
            upper = builder.apply(MultiplyHighInt16(), [data, multiplier], f"{product.name}_upper", product.origin)
            left = _less_16(by, shift, builder)
            narrow = builder.apply(RightShiftInt16(), [upper, left], f"{symbol.name}_int16", symbol.origin)
            if chain.moved is not None:
                terms = [narrow, found.inputs[1]]
                narrow = builder.apply(AddInt16(), terms, f"{found.name}_int16", found.origin)
            return builder.apply(operator, [narrow], f"{symbol.name}_clipped", symbol.origin)
        clips_data = self._may_clip_data(graph, chain.scaled, factor.astype(np.int64), shift, operator.a_max)
        if not clips_data and not self._clips_products:
            return f"some values of more than 16 bits are below its upper limit once they are scaled: {NO_INSTRUCTIONS}"
        if isinstance(data.operator, Relu):
            (data,) = data.inputs
        scale = RequantizeInt16(clips_data=clips_data)
        narrow = builder.apply(scale, [data, multiplier, by], f"{symbol.name}_int16", symbol.origin)
        return builder.apply(operator, [narrow], f"{symbol.name}_clipped", symbol.origin)

    def _why_not_signed(self, graph: Graph, operator: Clip, chain: _Chain, shift: Array) -> str:
        """Why the upper half of a product cannot be rounded, moved and clipped in int16; empty where it can."""
        if not self._clips_products:
            return f"values may be negative: {NO_INSTRUCTIONS}"
        if operator.a_min < LEAST or operator.a_max > MOST:
            return "its limits exceed 16 bits"
        # Of matrices rows are vectors of 32 bits mostly, which nothing is gained for either.
        scaled = chain.scaled
        if scaled.type.rank > 1 and (scaled.type.rank < 4 or _few_channels(scaled)):
            return f"nothing is gained for matrices, and for {FEW} channels or fewer"
        bounds = self.facts.bounds(graph)
        if chain.moved is not None and not _is_within_int16(bounds[chain.moved.name]):
            return f"{chain.moved.name} exceeds 16 bits"
        upper = bounds[scaled.name].map(lambda bound: bound >> BITS)
        fits = choose_rounding(upper, shift - BITS, "int16") is not None
        return "" if fits else "int16 cannot be rounded by these shifts"

    def _may_clip_data(self, graph: Graph, scaled: Symbol, factor: Array, shift: Array, limit: float) -> bool:
        """Whether x · f gives the same, clipped at `limit` once it is scaled, where x is clipped at 2^16 - 1 before."""
        least_at_limit = -((half_of(shift) - (int(limit) << shift.astype(np.int64))) // factor)
        highest = self.facts.bounds(graph)[scaled.inputs[0].name].hi
        return bool((np.minimum(least_at_limit, highest) <= MOST_UNSIGNED).all())


@dataclass(frozen=True)
class _Chain:
    """clip(((x * f) >> s) + z), or without z. clip, shifted, scaled: its steps. moved: the one that adds z, if any."""

    clip: Symbol
    moved: Symbol | None
    shifted: Symbol
    scaled: Symbol

    @classmethod
    def of(cls, graph: Graph, clip: Symbol) -> _Chain | None:
        """None where something else is clipped."""
        (shifted,), moved = clip.inputs, None
        if isinstance(shifted.operator, BroadcastAdd):
            term = graph.value(shifted.inputs[1])
            if term is None or term.size != 1 or not _are_int16((shifted.inputs[1],)):
                return None
            moved, shifted = shifted, shifted.inputs[0]
        if not isinstance(shifted.operator, RightShift) or not isinstance(shifted.inputs[0].operator, BroadcastMul):
            return None
        return cls(clip, moved, shifted, shifted.inputs[0])

    def why_not_requantized(self, graph: Graph) -> str:
        """Why it is none of cases 5 to 8; empty where it may be one."""
        factor, shift = graph.value(self.scaled.inputs[1]), graph.value(self.shifted.inputs[1])
        if factor is None or shift is None:
            return "its factor or its shift is computed"
        steps = [self.scaled, self.shifted, *([] if self.moved is None else [self.moved]), self.clip]
        if any(graph.consumers[step] != (reader,) for step, reader in pairwise(steps)):
            return "what it clips is read by others too"
        if any(step in graph.outputs for step in steps):
            return "it, or what it clips, is an output of the graph"
        readers = graph.consumers[self.clip]
        other = next((reader for reader in readers if not isinstance(reader.operator, Cast)), None)
        if other is not None:
            return f"{other.name} ({other.op}) reads it in 32 bits"
        # Bytes are stored four vectors at a time, whatever they are of.
        if _few_channels(self.scaled) and all(reader.dtype == "int16" for reader in readers):
            return f"nothing is gained for {FEW} channels or fewer that are stored as int16"
        if factor.min() <= 0 or factor.max() > MOST:
            return f"its factors are in [{factor.min()}, {factor.max()}]; [1, {MOST}] is needed"
        return "" if shift.min() > BITS else f"its least shift is {shift.min()}; more than {BITS} is needed"


def _is_within_int16(bounds: Interval) -> bool:
    return bool(bounds.min >= LEAST and bounds.max <= MOST)


def _are_int16(symbols: tuple[Symbol, ...]) -> bool:
    return all(symbol.dtype in INT16_HOLDS for symbol in symbols)


def _few_channels(symbol: Symbol) -> bool:
    return symbol.type.rank > 1 and symbol.shape[1] <= FEW


def _less_16(by: Symbol, shift: Array, builder: GraphBuilder) -> Symbol:
    """What is left of a shift where the lower 16 bits are dropped before."""
    return builder.parameter(f"{by.name}_left", shift - np.int8(BITS), by.origin)


def _saturated(graph: Graph, symbol: Symbol, clipped: Symbol, builder: GraphBuilder) -> Symbol | str | None:
    """Case 4 of a cast to int16. clipped: what its input has become."""
    operator, source = clipped.operator, symbol.inputs[0]
    if not isinstance(operator, Clip) or clipped.dtype != "int32":
        return None
    if graph.consumers[source] != (symbol,) or source in graph.outputs:
        return f"{source.name}, which it casts, is read by others too"
    if operator.a_min < LEAST or operator.a_max > MOST:
        return f"{source.name}, which it casts, is clipped at more than 16 bits"
    held = builder.apply(Clip(a_min=LEAST, a_max=MOST), clipped.inputs, f"{clipped.name}_int16", clipped.origin)
    narrow = builder.apply(symbol.operator, [held], f"{symbol.name}_int16", symbol.origin)
    return builder.apply(operator, [narrow], symbol.name, symbol.origin)
