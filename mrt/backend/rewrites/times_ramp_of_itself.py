"""A tensor times a ramp of itself is one operator, which reads it once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.backend.operators.times_ramp import TimesRamp
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.integer import Cast, LeftShift, RightShift
from mrt.symbol.types import INT32_MAX


@dataclass(frozen=True)
class TimesRampOfItself(Rewrite[ElemwiseMul]):
    """Of ElemwiseMul, Clip, BroadcastAdd, LeftShift, RightShift and Cast, in int32: x * clip(2^k x + c, 0, m), as hard
    swish is, becomes TimesRamp(x, c, m).

    What reads a tensor twice ends its region; this is fused with what makes x.
    """

    about = (ElemwiseMul,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[ElemwiseMul], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if symbol.dtype != "int32":
            return None
        ramp = _ramp_of(graph, symbol.inputs[1])
        if ramp is None or ramp.data is not _before_cast(symbol.inputs[0]):
            return None
        if any(len(graph.consumers[step]) > 1 or step in graph.outputs for step in ramp.steps):
            return "its ramp is read by others too"
        if self.facts.bounds(graph)[ramp.data.name].max + (1 << max(-ramp.finer, 0) >> 1) > INT32_MAX:
            return "there is no room for the half that rounds"
        shape = (1,) * symbol.type.rank
        numbers = [
            builder.parameter(f"{symbol.name}_{name}", np.full(shape, number, np.int32), symbol.origin)
            for name, number in (("start", ramp.start), ("most", ramp.most))
        ]
        return builder.apply(TimesRamp(ramp.finer), [_before_cast(inputs[0]), *numbers], symbol.name, symbol.origin)


@dataclass(frozen=True)
class _Ramp:
    """clip(2^finer data + start, 0, most), and the symbols that make it of the data."""

    data: Symbol
    finer: int
    start: int
    most: int
    steps: tuple[Symbol, ...]


def _ramp_of(graph: Graph, clipped: Symbol) -> _Ramp | None:
    """The ramp that a symbol is, None for any other."""
    if not isinstance(clipped.operator, Clip) or clipped.operator.a_min != 0 or clipped.dtype != "int32":
        return None
    (moved,) = clipped.inputs
    start = _number(graph, moved) if isinstance(moved.operator, BroadcastAdd) else None
    if start is None:
        return None
    scaled, most = moved.inputs[0], int(clipped.operator.a_max)
    amount = _number(graph, scaled) if isinstance(scaled.operator, (LeftShift, RightShift)) else None
    if amount is None:
        return _Ramp(_before_cast(scaled), 0, start, most, (clipped, moved))
    finer = -amount if isinstance(scaled.operator, RightShift) else amount
    return _Ramp(_before_cast(scaled.inputs[0]), finer, start, most, (clipped, moved, scaled))


def _number(graph: Graph, symbol: Symbol) -> int | None:
    """The constant that is the second input of a symbol; None where it is not one number."""
    value = graph.value(symbol.inputs[1])
    return int(value.item()) if value is not None and value.size == 1 else None


def _before_cast(symbol: Symbol) -> Symbol:
    """What a cast widens to int32."""
    if isinstance(symbol.operator, Cast) and symbol.dtype == "int32" and np.can_cast(symbol.inputs[0].dtype, "int32"):
        return symbol.inputs[0]
    return symbol
