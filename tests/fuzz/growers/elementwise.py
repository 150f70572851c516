"""How elementwise operators are grown: their inputs and attributes, drawn at random."""

from __future__ import annotations

from mrt.symbol import Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from tests.fuzz.draw import DTYPES
from tests.fuzz.growers.registry import grows
from tests.fuzz.growth import Growth

INT32 = DTYPE_RANGES["int32"]


@grows("relu", "abs", "negative", "square", "_copy", "Dropout")
def unary(g: Growth, op: str) -> Symbol:
    return g.apply(op, [g.tensor()])


@grows("clip")
def clip(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    lo, hi = DTYPE_RANGES[data.dtype]
    a, b = g.draw.number(lo, hi), g.draw.number(lo, hi)
    off = g.draw.choice((0.0, 0.0, 0.25, 1e10))
    return g.apply(op, [data], a_min=min(a, b) - off, a_max=max(a, b) + off)


@grows("_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar")
def with_scalar(g: Growth, op: str) -> Symbol:
    scalar = g.draw.number(*INT32) if g.draw.chance(0.4) else g.draw.integer(-300, 300)
    return g.apply(op, [g.tensor()], scalar=float(scalar))


@grows("_maximum_scalar", "_minimum_scalar")
def chosen_by_scalar(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    return g.apply(op, [data], scalar=float(g.draw.number(*DTYPE_RANGES[data.dtype])))


@grows("elemwise_add", "elemwise_sub", "elemwise_mul")
def of_one_shape(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    return g.apply(op, [data, g.like(data)])


@grows("add_n")
def add_n(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    return g.apply(op, [data, *(g.like(data) for _ in range(g.draw.integer(0, 4)))])


@grows("broadcast_add", "broadcast_sub", "broadcast_mul", "bitwise_and")
def of_broadcast(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    pair = [data, g.broadcast(data)]
    return g.apply(op, pair[:: g.draw.choice((1, -1))])


@grows("_maximum", "_minimum", "broadcast_maximum", "broadcast_minimum")
def chosen_of_two(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    other = g.broadcast(data, data.dtype) if op.startswith("broadcast") else g.like(data, data.dtype)
    return g.apply(op, [data, other][:: g.draw.choice((1, -1))])


@grows("where")
def where(g: Growth, op: str) -> Symbol:
    x = g.tensor()
    y = g.broadcast(x, x.dtype)
    condition = g.broadcast(x)
    if x.type.rank > 1 and g.draw.chance(0.2):
        condition = g.fresh((x.shape[0],))
    return g.apply(op, [condition, *(x, y)[:: g.draw.choice((1, -1))]])


@grows("right_shift", "left_shift")
def shift(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    least = g.draw.integer(0, 31)
    most = g.draw.integer(least, 31)
    other = g.broadcast(data)
    bounds = g.bounds[other]
    if other.dtype == "bool" or (bounds.min >= 0 and bounds.max <= 31):
        return g.apply(op, [data, other])
    if g.draw.chance(0.6):
        return g.apply(op, [data, g.constant(other.shape, g.draw.choice(("int8", "int32")), least, most)])
    return g.apply(op, [data, g.plain("clip", [other], a_min=float(least), a_max=float(most))])


@grows("floor_divide", "floor_mod")
def divided(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    other = g.cast(g.broadcast(data), g.draw.choice(("int8", "uint8", "int16", "int32")))
    hi = DTYPE_RANGES[other.dtype][1]
    least = g.draw.number(1, hi) if g.draw.chance(0.3) else 1
    most = g.draw.number(least, hi)
    if g.draw.chance(0.5):
        return g.apply(op, [data, g.constant(other.shape, other.dtype, least, most)])
    divisor = g.plain("clip", [other], a_min=float(least), a_max=float(most))
    return g.plain(op, [data, divisor])


@grows("integer_sqrt")
def integer_sqrt(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    if g.bounds[data].min < 0:
        data = g.plain("relu", [data])
    return g.plain(op, [data], fraction_bits=g.draw.integer(0, 12))


@grows("Cast")
def cast(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    return g.cast(data, g.draw.choice([d for d in DTYPES if d != data.dtype]))


@grows("table_lookup")
def table_lookup(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    if data.dtype == "int32" or g.draw.chance(0.3):
        a, b = g.draw.integer(-300, 300), g.draw.integer(-300, 300)
        data = g.clipped(data, min(a, b), max(a, b))
    bounds, spare = g.bounds[data], g.draw.choice((0, 0, 1, 5))
    size = min(bounds.max - bounds.min + 1 + 2 * spare, 2**16)
    table = g.constant((size,), g.draw.choice(DTYPES))
    return g.apply(op, [data, table], offset=spare - bounds.min)
