"""How reductions are grown: their inputs and attributes, drawn at random."""

from __future__ import annotations

from mrt.symbol import Symbol
from tests.fuzz.growers.registry import grows
from tests.fuzz.growth import Growth


@grows("sum", "max", "min")
def reduced(g: Growth, op: str) -> Symbol:
    data = g.tensor(range(1, 6))
    rank = data.type.rank
    axes = tuple(a - g.draw.choice((0, rank)) for a in range(rank) if g.draw.chance(0.5))
    named = {"axis": axes, "exclude": g.draw.chance(0.2) and len(axes) < rank} if axes else {}
    return g.apply(op, [data], keepdims=g.draw.chance(0.5), **named)


@grows("argmax", "argmin")
def place(g: Growth, op: str) -> Symbol:
    data = g.tensor(range(1, 6))
    axis = None if g.draw.chance(0.2) else g.draw.integer(-data.type.rank, data.type.rank - 1)
    return g.apply(op, [data], axis=axis, keepdims=g.draw.chance(0.5))


@grows("topk")
def in_order(g: Growth, op: str) -> Symbol:
    data = g.tensor(range(1, 5))
    axis = g.draw.integer(-data.type.rank, data.type.rank - 1)
    count = g.draw.integer(0, data.shape[axis])
    return g.apply(
        op, [data], axis=axis, k=count, ret_typ=g.draw.choice(("value", "indices")), is_ascend=g.draw.chance(0.5)
    )


@grows("Pooling")
def pooling(g: Growth, op: str) -> Symbol:
    data = g.tensor((3, 4, 5))
    kind = g.draw.choice(("max", "sum"))
    if g.draw.chance(0.2):
        return g.apply(op, [data], pool_type=kind, global_pool=True)
    kernel = tuple(g.draw.integer(1, min(n, 5)) for n in data.shape[2:])
    pads = tuple(g.draw.integer(0, k - 1) for k in kernel * g.draw.choice((1, 2)))
    stride = tuple(g.draw.integer(1, 3) for _ in kernel)
    convention = g.draw.choice(("valid", "full"))
    return g.apply(op, [data], pool_type=kind, kernel=kernel, pad=pads, stride=stride, pooling_convention=convention)
