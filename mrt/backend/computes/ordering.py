"""The first elements along an axis in their order, by the rank of each among all."""

from __future__ import annotations

from tvm import te, tirx

from mrt.backend.te.registry import compute
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, ordered
from mrt.symbol import Symbol
from mrt.symbol.operators.ordering import TopK
from mrt.symbol.types import normalize_axis


@compute(TopK)
def top_k(symbol: Symbol[TopK], data: Tensor) -> Tensor:
    """An element's rank is how many come before it: larger ones, or as large ones of lower places."""
    operator, shape = symbol.operator, symbol.inputs[0].shape
    axis = normalize_axis(operator.axis, len(shape))
    ascends, dtype = operator.is_ascend, ordered(data.dtype)

    def with_place(at: tuple[Expression, ...], place: Expression) -> tuple[Expression, ...]:
        return (*at[:axis], place, *at[axis + 1 :])

    def rank(*at: Expression) -> Expression:
        other = te.reduce_axis((0, shape[axis]), "other")
        here, there = (data(*each).astype(dtype) for each in (at, with_place(at, other.var)))
        is_before = there < here if ascends else there > here
        is_tied = tirx.And(there.equal(here), other.var < at[axis])
        return te.sum(
            tirx.Select(tirx.Or(is_before, is_tied), constant(1, "int32"), constant(0, "int32")), axis=[other]
        )

    ranks = stage(tuple(shape), rank, "rank")

    def chosen(*at: Expression) -> Expression:
        place = te.reduce_axis((0, shape[axis]), "place")
        there = with_place(at, place.var)
        value = data(*there).astype(dtype) if operator.gives_values else place.var.astype("int32")
        least = te.min_value(dtype if operator.gives_values else "int32")
        return te.max(tirx.Select(ranks(*there).equal(at[axis]), value, least), axis=[place])

    found = stage(symbol.shape, chosen, "chosen")
    if operator.gives_values and dtype == symbol.dtype:
        return found
    return stage(symbol.shape, lambda *at: found(*at).astype(symbol.dtype), "taken")
