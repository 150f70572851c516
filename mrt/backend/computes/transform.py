"""Operators that move or select values and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import te, tirx

from mrt.backend.compute import Kind, Wish, compute, joining, record, viewing
from mrt.backend.expressions import Expression, Tensor, constant, ravel, unravel
from mrt.backend.stages import inlined
from mrt.backend.storage import Storage, View
from mrt.symbol import Symbol
from mrt.symbol.operators.transform import Concat, Slice, SliceAxis, Take, Transpose


@compute("Flatten", "Reshape", "expand_dims", "squeeze", kind=Kind.RESHAPE)
def reshape(symbol: Symbol, data: Tensor) -> Tensor:
    """The same elements in the same order; the shape is the symbol's, whatever its attributes say."""
    source = symbol.inputs[0].shape
    return inlined(symbol.shape, symbol.dtype, lambda *at: data(*unravel(ravel(at, symbol.shape), source)))


def passed_by_flatten(symbol: Symbol, wish: Wish) -> Wish | None:
    """Columns are channels and places; whoever reads rows of channels reads those of each place."""
    return replace(wish, inner=1) if wish.inner == 1 and symbol.inputs[0].type.rank > 2 else None


@viewing("Flatten", passed_by_flatten)
def view_flatten(symbol: Symbol, data: View) -> View:
    def element(n: Expression, place: Expression) -> Expression:
        return data(n, *unravel(place, data.shape[1:]))

    return View(symbol.shape, symbol.dtype, element, flattened=data)


@compute("transpose")
def transpose(symbol: Symbol, data: View) -> View:
    seen = data.permuted(record(symbol, Transpose).order(symbol.type.rank))
    return inlined(symbol.shape, symbol.dtype, lambda *at: seen(*at))


def passed_by_transpose(symbol: Symbol, wish: Wish) -> Wish | None:
    """The innermost axis is another one of the data, where a storage describes the transpose."""
    if wish.inner is None:
        return wish
    axes = record(symbol, Transpose).order(symbol.type.rank)
    if Storage.with_inner(symbol.inputs[0].type, axes[wish.inner]).permuted(axes) is None:
        return None
    before, after = (tuple(n[axes.index(a)] for a in range(len(axes))) if n else n for n in (wish.before, wish.after))
    return replace(wish, inner=axes[wish.inner], before=before, after=after)


@viewing("transpose", passed_by_transpose)
def view_transpose(symbol: Symbol, data: View) -> View:
    return data.permuted(record(symbol, Transpose).order(symbol.type.rank))


@joining("Concat")
def concat_axis(symbol: Symbol) -> int:
    return record(symbol, Concat).dim % symbol.type.rank


@compute("Concat", kind=Kind.GATHER)
def concat(symbol: Symbol, *parts: Tensor) -> Tensor:
    axis = record(symbol, Concat).dim % len(symbol.shape)

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


@compute("slice", kind=Kind.GATHER)
def slice_axes(symbol: Symbol, data: Tensor) -> Tensor:
    return _sliced(symbol, data, record(symbol, Slice).slices(len(data.shape)))


@compute("slice_axis", kind=Kind.GATHER)
def slice_axis(symbol: Symbol, data: Tensor) -> Tensor:
    return _sliced(symbol, data, record(symbol, SliceAxis).slices(len(data.shape)))


def _sliced(symbol: Symbol, data: Tensor, slices: Sequence[slice]) -> Tensor:
    """Python's slices, negative steps included."""
    lengths = symbol.inputs[0].shape
    cuts = [cut.indices(n) for cut, n in zip(slices, lengths, strict=True)]
    return inlined(
        symbol.shape,
        symbol.dtype,
        lambda *at: data(*(begin + i * step for i, (begin, _, step) in zip(at, cuts, strict=True))),
    )


@compute("take")
def take(symbol: Symbol, data: Tensor, indices: Tensor) -> Tensor:
    """Indices outside are moved to the nearest end, or wrapped; with mode raise, which code cannot, they are moved."""
    operator = record(symbol, Take)
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
