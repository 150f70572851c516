"""Operators that move or select values and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import te, tirx

from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import VECTOR, Storage, View, padded_length
from mrt.backend.operators.interleave import Interleave
from mrt.backend.operators.steps_from import StepsFrom
from mrt.backend.te.registry import AsView, Kind, compute
from mrt.backend.te.stages import inlined
from mrt.backend.tir.expressions import Expression, Tensor, constant, regrouped, unravel
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.transform import (
    Concat,
    ExpandDims,
    Flatten,
    Reshape,
    Slice,
    SliceAxis,
    Slicing,
    Squeeze,
    Take,
    Transpose,
)


def propagate_flatten(symbol: Symbol, request: LayoutRequest) -> LayoutRequest | str:
    """A reader of rows reads the channels of one position after the other, which are innermost in the data."""
    data = symbol.inputs[0].type
    if request.inner != 1 or data.rank <= 2:
        return "its readers do not read rows of channels"
    if padded_length(data.shape[1]) >= 2 * data.shape[1]:
        return f"its data has {data.shape[1]} channels, which dots would multiply with as much that pads them"
    return replace(request, inner=1)


def view_flatten(symbol: Symbol, data: View) -> View:
    def element(n: Expression, place: Expression) -> Expression:
        return data(n, *unravel(place, data.shape[1:]))

    return View(symbol.shape, symbol.dtype, element, flattened=data)


def propagate_reshape(symbol: Symbol, request: LayoutRequest) -> LayoutRequest | str:
    """A reader along the last axis reads that of the data, where positions alone are counted otherwise."""
    source, last = symbol.inputs[0].shape, symbol.type.rank - 1
    if request.inner != last or not last or len(source) < 2:
        return "its readers do not read along its last axis"
    if source[-1] != symbol.shape[-1]:
        return "its last axis has other elements than that of its data"
    if request.has_border:
        return "a border is needed around it, which positions that follow each other have no room for"
    return replace(request, inner=len(source) - 1, before=(), after=())


def view_reshape(symbol: Symbol, data: View) -> View:
    held, source = data.storage, symbol.inputs[0].shape
    if held is not None and held.inner == len(source) - 1 and held.is_one_run and source[-1:] == symbol.shape[-1:]:
        before, after = ((0,) * (symbol.type.rank - 1) + n[-1:] for n in (held.before, held.after))
        type, inner = held.type.with_shape(symbol.shape), symbol.type.rank - 1
        return View.of(data.tensor, replace(held, type=type, inner=inner, before=before, after=after))
    return View(symbol.shape, symbol.dtype, lambda *at: data(*regrouped(at, symbol.shape, source)))


REGROUPED: AsView[Operator] = AsView(view_reshape, propagate_reshape)


@compute(Flatten, kind=Kind.RESHAPE, as_view=AsView(view_flatten, propagate_flatten))
@compute(Reshape, ExpandDims, Squeeze, kind=Kind.RESHAPE, as_view=REGROUPED)
def reshape(symbol: Symbol, data: Tensor) -> Tensor:
    """The same elements in the same order; the shape is the symbol's, whatever its attributes say."""
    source = symbol.inputs[0].shape
    return inlined(symbol.shape, symbol.dtype, lambda *at: data(*regrouped(at, symbol.shape, source)))


def propagate_transpose(symbol: Symbol[Transpose], request: LayoutRequest) -> LayoutRequest | str:
    """The innermost axis is another one of the data, where a storage describes the transpose."""
    if request.inner is None:
        return request
    axes = symbol.operator.order(symbol.type.rank)
    if Storage.with_inner(symbol.inputs[0].type, axes[request.inner]).permuted(axes) is None:
        return f"its readers request axis {request.inner} innermost, which leaves the others in another order"
    before, after = (
        tuple(n[axes.index(a)] for a in range(len(axes))) if n else n for n in (request.before, request.after)
    )
    return replace(request, inner=axes[request.inner], before=before, after=after)


def view_transpose(symbol: Symbol[Transpose], data: View) -> View:
    return data.permuted(symbol.operator.order(symbol.type.rank))


@compute(Transpose, as_view=AsView(view_transpose, propagate_transpose))
def transpose(symbol: Symbol[Transpose], data: View) -> View:
    seen = data.permuted(symbol.operator.order(symbol.type.rank))
    return inlined(symbol.shape, symbol.dtype, lambda *at: seen(*at))


def concat_axis(symbol: Symbol[Concat]) -> int:
    return symbol.operator.dim % symbol.type.rank


@compute(Concat, kind=Kind.GATHER, joined_axis=concat_axis)
def concat(symbol: Symbol[Concat], *parts: Tensor) -> Tensor:
    axis = concat_axis(symbol)

    def element(*at: Expression) -> Expression:
        start = symbol.shape[axis]
        value: Expression = None
        for part in reversed(parts):
            start -= int(part.shape[axis])
            found = part(*at[:axis], at[axis] - start, *at[axis + 1 :]).astype(symbol.dtype)
            if value is None:
                value = found
            else:
                value = tirx.if_then_else(at[axis] < start + int(part.shape[axis]), found, value)
        return value

    return inlined(symbol.shape, symbol.dtype, element)


@compute(Interleave, kind=Kind.GATHER)
def interleave(symbol: Symbol, *parts: Tensor) -> View:
    def element(n: Expression, channel: Expression, *position: Expression) -> Expression:
        turn, place = tirx.floormod(channel, len(parts)), tirx.floordiv(channel, len(parts))
        *others, value = (part(n, place, *position) for part in parts)
        for number, found in reversed(list(enumerate(others))):
            value = tirx.if_then_else(turn == number, found, value)
        return value

    return View(symbol.shape, symbol.dtype, element, turns=len(parts))


def _cuts(symbol: Symbol[Slicing]) -> list[range]:
    """The places of the data that each axis of a slice has."""
    lengths = symbol.inputs[0].shape
    return [range(*cut.indices(n)) for cut, n in zip(symbol.operator.slices(len(lengths)), lengths, strict=True)]


def _places(at: Sequence[Expression], cuts: Sequence[range]) -> list[Expression]:
    """Where in the data of a slice an element is."""
    return [cut.start + i * cut.step for i, cut in zip(at, cuts, strict=True)]


def propagate_slice(symbol: Symbol[Slicing], request: LayoutRequest) -> LayoutRequest | str:
    """The same layout of the data: what the slice leaves out lies around it, as other channels or positions."""
    cuts, lengths = _cuts(symbol), symbol.inputs[0].shape
    if any(cut.step != 1 for cut in cuts):
        return "it takes steps"
    shortened = [axis for axis, (cut, n) in enumerate(zip(cuts, lengths, strict=True)) if len(cut) < n]
    if request.has_border and any(request.before[axis] or request.after[axis] for axis in shortened):
        return "its readers want a border where its data goes on"
    if request.inner in shortened:
        cut, length = cuts[request.inner], padded_length(lengths[request.inner])
        # Dots read whole vectors, and multiply what is not the slice's by 0.
        if cut.start + -(-len(cut) // VECTOR) * VECTOR > length:
            return f"its readers take whole vectors of axis {request.inner}, and memory ends before"
    return request


def view_slice(symbol: Symbol[Slicing], data: View) -> View:
    cuts = _cuts(symbol)
    if data.storage is not None and all(cut.step == 1 for cut in cuts):
        return View.of(data.tensor, data.storage.part(symbol.type, [cut.start for cut in cuts]))
    return View(symbol.shape, symbol.dtype, lambda *at: data(*_places(at, cuts)))


@compute(Slice, SliceAxis, kind=Kind.GATHER, as_view=AsView(view_slice, propagate_slice, keeps_order=True))
def sliced(symbol: Symbol[Slicing], data: Tensor) -> Tensor:
    """Python's slices, negative steps included."""
    cuts = _cuts(symbol)
    return inlined(symbol.shape, symbol.dtype, lambda *at: data(*_places(at, cuts)))


@compute(StepsFrom, kind=Kind.GATHER)
def steps_from(symbol: Symbol[StepsFrom], data: Tensor, begin: Tensor) -> Tensor:
    axis, rank = symbol.operator.axis, symbol.type.rank

    def element(*at: Expression) -> Expression:
        first = begin(*[constant(0, "int32")] * rank)
        return data(*at[:axis], first + at[axis], *at[axis + 1 :])

    return inlined(symbol.shape, symbol.dtype, element)


@compute(Take)
def take(symbol: Symbol[Take], data: Tensor, indices: Tensor) -> Tensor:
    """Indices outside are moved to the nearest end, or wrapped; with mode raise, which code cannot, they are moved."""
    operator = symbol.operator
    axis = operator.axis % len(data.shape)
    length, rank = int(data.shape[axis]), len(indices.shape)

    def element(*at: Expression) -> Expression:
        index = indices(*at[axis : axis + rank])
        wide = "int32" if indices.dtype in ("int8", "uint8", "int16", "int32") else "int64"
        index, size = index.astype(wide), constant(length, wide)
        if operator.mode == "wrap":
            place = tirx.floormod(index, size)
        else:
            place = te.max(te.min(index, size - 1), constant(0, wide))
        return data(*at[:axis], place.astype("int32"), *at[axis + rank :])

    return inlined(symbol.shape, symbol.dtype, element)
