"""Pad: constant, edge and reflect."""

from __future__ import annotations

from tvm import te, tirx

from mrt.backend.compute import Kind, compute, record
from mrt.backend.expressions import Expression, Tensor, constant
from mrt.backend.stages import inlined
from mrt.symbol import Symbol
from mrt.symbol.operators.pad import Pad


@compute("Pad", kind=Kind.GATHER)
def pad(symbol: Symbol, data: Tensor) -> Tensor:
    operator = record(symbol, Pad)
    lengths = symbol.inputs[0].shape
    before = operator.pad_width[::2]

    def body(*at: Expression) -> Expression:
        places = [i - n if n else i for i, n in zip(at, before, strict=True)]
        changed = [axis for axis, n in enumerate(symbol.shape) if n != lengths[axis] or before[axis]]
        if operator.mode == "constant":
            inside = [test for axis in changed for test in (places[axis] >= 0, places[axis] < lengths[axis])]
            value = int(operator.constant_value) if symbol.type.is_integer else operator.constant_value
            if not inside:
                return data(*at)
            return tirx.if_then_else(tirx.all(*inside), data(*places), constant(value, symbol.dtype))
        for axis in changed:
            last = lengths[axis] - 1
            if operator.mode == "edge":
                places[axis] = te.max(te.min(places[axis], last), 0)
            else:
                places[axis] = last - tirx.abs(last - tirx.abs(places[axis]))
        return data(*places)

    return inlined(symbol.shape, symbol.dtype, body)
