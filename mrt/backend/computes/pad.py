"""Pad: constant, edge and reflect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import te, tirx

from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import View, padded_length
from mrt.backend.te.registry import AsView, Kind, compute
from mrt.backend.te.stages import inlined
from mrt.backend.tir.expressions import Expression, constant, opaque
from mrt.symbol import Symbol
from mrt.symbol.operators.pad import Pad


def propagate(symbol: Symbol[Pad], request: LayoutRequest) -> LayoutRequest | str:
    """The Pad is a wider border of its data in memory, if the requested border has the same value."""
    operator = symbol.operator
    if operator.mode != "constant" or any(operator.pad_width[:4]):
        return "its border is no constant around rows and columns"
    if request.inner != 1:
        return "its readers do not request axis 1 innermost"
    if request.has_border and request.border != operator.constant_value:
        return "borders of several values are needed around it"
    none = (0,) * symbol.type.rank
    return replace(
        request,
        before=tuple(a + b for a, b in zip(request.before or none, operator.pad_width[::2], strict=True)),
        after=tuple(a + b for a, b in zip(request.after or none, operator.pad_width[1::2], strict=True)),
        border=operator.constant_value,
    )


def view(symbol: Symbol[Pad], data: View) -> View:
    """In the data's memory if that has the border, which it lacks where another axis is innermost than requested."""
    held, width = data.storage, symbol.operator.pad_width
    if held is not None:
        before = tuple(a - b for a, b in zip(held.before, width[::2], strict=True))
        after = tuple(a - b for a, b in zip(held.after, width[1::2], strict=True))
        if min((*before, *after)) >= 0:
            return View.of(data.tensor, replace(held, type=symbol.type, before=before, after=after))
    return pad(symbol, data)


@compute(Pad, kind=Kind.GATHER, as_view=AsView(view, propagate))
def pad(symbol: Symbol[Pad], data: View) -> View:
    operator = symbol.operator
    lengths = symbol.inputs[0].shape
    before = operator.pad_width[::2]

    def body(*at: Expression) -> Expression:
        places = [i - n if n else i for i, n in zip(at, before, strict=True)]
        changed = [axis for axis, n in enumerate(symbol.shape) if n != lengths[axis] or before[axis]]
        if operator.mode == "constant":
            if changed == [1] and not before[1] and data.storage is not None and data.inner == 1:
                return _longer(symbol, data, at)
            # Each axis stays apart in what is asked, so that schedules see where it ends (see `elementwise`).
            apart = [(opaque(at[axis]) - before[axis], lengths[axis]) for axis in changed]
            inside = [test for place, length in apart for test in (place >= 0, place < length)]
            if not inside:
                return data(*at)
            return tirx.if_then_else(tirx.all(*inside), data(*places), _constant(symbol))
        for axis in changed:
            last = lengths[axis] - 1
            if operator.mode == "edge":
                places[axis] = te.max(te.min(places[axis], last), 0)
            else:
                places[axis] = last - tirx.abs(last - tirx.abs(places[axis]))
        return data(*places)

    return inlined(symbol.shape, symbol.dtype, body)


def _longer(symbol: Symbol[Pad], data: View, at: Sequence[Expression]) -> Expression:
    """An element of data that gets more channels behind its own.

    Whole vectors are read, of which memory holds more than the channels, and elements are selected.
    """
    channel, value = at[1], _constant(symbol)
    chosen = tirx.Select(opaque(channel) < data.shape[1], data(*at), value)
    if data.length >= padded_length(symbol.shape[1], dotted=True):
        return chosen
    return tirx.if_then_else(channel < data.length, chosen, value)


def _constant(symbol: Symbol[Pad]) -> Expression:
    number = symbol.operator.constant_value
    return constant(int(number) if symbol.type.is_integer else number, symbol.dtype)
