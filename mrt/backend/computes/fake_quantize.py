"""FakeQuantize of float graphs: what calibration and the comparison of layers run."""

from __future__ import annotations

from tvm import te, tirx

from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise
from mrt.backend.tir.expressions import Expression, Tensor, constant, once
from mrt.symbol import Symbol
from mrt.symbol.operators.fake_quantize import FakeQuantize


@compute(FakeQuantize, kind=Kind.ELEMENTWISE)
def fake_quantize(symbol: Symbol[FakeQuantize], data: Tensor, *limits: Tensor) -> Tensor:
    """The definition in float32; LLVM may contract the last product and sum, so that the level's value is an ulp
    off."""
    top = constant(symbol.operator.levels - 1, "float32")

    def element(x: Expression, *limits: Expression) -> Expression:
        low, high, first, last = (value.astype("float32") for value in limits)

        def levelled(x: Expression) -> Expression:
            steps = tirx.nearbyint((x - low) / (high - low) * top)
            between = steps / top * (last - first) + first
            above = tirx.Select(x > te.max(low, high), last, between)
            return tirx.Select(x <= te.min(low, high), first, above).astype(symbol.dtype)

        return once(x.astype("float32"), levelled)

    return elementwise(symbol, data, *limits, body=element)
