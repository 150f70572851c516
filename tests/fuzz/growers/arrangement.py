"""How operators that move and choose values are grown: their inputs and attributes, drawn at random."""

from __future__ import annotations

from math import prod

from mrt.symbol import Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from tests.fuzz.draw import DTYPES
from tests.fuzz.growers.registry import grows
from tests.fuzz.growth import Growth


@grows("take")
def take(g: Growth, op: str) -> Symbol:
    data = g.tensor(range(1, 5))
    axis, mode = g.draw.integer(-data.type.rank, data.type.rank - 1), g.draw.choice(("clip", "wrap", "raise"))
    length, shape = data.shape[axis], g.draw.shape(g.draw.integer(0, 2), 40)
    if g.draw.chance(0.6):
        reach = 0 if mode == "raise" else 3
        indices = g.constant(shape, "int32", -reach, length - 1 + reach)
    else:
        indices = g.clipped(g.fresh(shape), 0, length - 1) if mode == "raise" else g.fresh(shape)
    return g.apply(op, [data, indices], axis=axis, mode=mode)


@grows("Embedding")
def embedding(g: Growth, op: str) -> Symbol:
    rows, width = g.draw.integer(1, 40), g.draw.integer(1, 20)
    indices = g.tensor(range(4), lambda s: s.type.size < 300)
    return g.apply(op, [indices, g.constant((rows, width), g.draw.choice(DTYPES))], input_dim=rows, output_dim=width)


@grows("Concat")
def concat(g: Growth, op: str) -> Symbol:
    data = g.tensor(range(1, 6))
    rank = data.type.rank
    dim = g.draw.integer(-rank, rank - 1)
    at = dim % rank
    others = []
    for _ in range(g.draw.integer(0, 3)):
        if g.draw.chance(0.6):
            others.append(g.like(data, data.dtype))
        else:
            others.append(g.fresh((*data.shape[:at], g.draw.integer(1, 9), *data.shape[at + 1 :]), data.dtype))
    return g.apply(op, [data, *others][:: g.draw.choice((1, -1))], dim=dim)


@grows("Flatten", "squeeze", "SwapAxis", "transpose", "expand_dims")
def arranged(g: Growth, op: str) -> Symbol:
    data = g.tensor(range(1, 6))
    rank = data.type.rank
    if op == "expand_dims":
        return g.apply(op, [data], axis=g.draw.integer(-rank - 1, rank))
    if op == "transpose":
        order = g.draw.random.permutation(rank) - g.draw.choice((0, rank))
        return g.apply(op, [data], axes=() if g.draw.chance(0.2) else tuple(map(int, order)))
    if op == "SwapAxis":
        return g.apply(op, [data], dim1=g.draw.integer(-rank, rank - 1), dim2=g.draw.integer(-rank, rank - 1))
    ones = [a for a, n in enumerate(data.shape) if n == 1]
    named = {"axis": (g.draw.choice(ones),)} if op == "squeeze" and ones and g.draw.chance(0.6) else {}
    return g.apply(op, [data], **named)


@grows("Reshape")
def reshape(g: Growth, op: str) -> Symbol:
    data = g.tensor()
    rank, size = data.type.rank, data.type.size
    codes: list[tuple[int, ...]] = [(-1,), (1, -1)]
    if rank > 1:
        codes += [(0, -1), (-3, -2), (-4, g.draw.divisor(data.shape[0]), -1, -2), (-1, 0)]
    first = g.draw.divisor(size)
    codes += [(first, -1), (first, g.draw.divisor(size // first), -1), (1,) * 6 if size == 1 else (-1, 1, 1, 1, 1, 1)]
    return g.apply(op, [data], shape=() if size == 1 and g.draw.chance(0.3) else g.draw.choice(codes))


@grows("slice", "slice_axis", "slice_like")
def sliced(g: Growth, op: str) -> Symbol:
    data = g.tensor(range(1, 6))
    rank = data.type.rank
    if op == "slice_like":
        axes = tuple(a for a in range(rank) if g.draw.chance(0.5)) or (rank - 1,)
        like = g.fresh(tuple(g.draw.integer(1, n) for n in data.shape))
        return g.apply(op, [data, like], axes=axes if g.draw.chance(0.7) else ())
    if op == "slice_axis":
        axis = g.draw.integer(-rank, rank - 1)
        begin = g.draw.integer(0, data.shape[axis] - 1)
        end = g.draw.choice((None, g.draw.integer(begin + 1, data.shape[axis])))
        return g.apply(op, [data], axis=axis, begin=begin, end=end)
    begins, ends, steps = [], [], []
    for n in data.shape[: g.draw.integer(1, rank)]:
        begin = g.draw.integer(0, n - 1)
        step = g.draw.choice((None, 1, 1, 2, 3, -1, -2))
        begins.append(g.draw.choice((begin, begin - n, None)))
        backwards = step is not None and step < 0
        first = (n - 1 if backwards else 0) if begins[-1] is None else begin
        stop = g.draw.integer(-n - 1, first - n - 1) if backwards else g.draw.integer(first + 1, n)
        ends.append(g.draw.choice((None, stop)))
        steps.append(step)
    return g.apply(op, [data], begin=tuple(begins), end=tuple(ends), step=tuple(steps))


@grows("tile", "repeat", "UpSampling", "depth_to_space", "space_to_depth")
def repeated(g: Growth, op: str) -> Symbol:
    if op == "tile":
        data = g.tensor(range(5), lambda s: s.type.size < 600)
        return g.apply(op, [data], reps=tuple(g.draw.integer(1, 3) for _ in range(g.draw.integer(1, 4))))
    if op == "repeat":
        data = g.tensor(range(1, 5), lambda s: s.type.size < 2000)
        axis = g.draw.choice((None, g.draw.integer(-data.type.rank, data.type.rank - 1)))
        return g.apply(op, [data], repeats=g.draw.integer(1, 4), axis=axis)
    block = g.draw.integer(1, 3)
    if op == "UpSampling":
        return g.apply(op, [g.tensor((4,), lambda s: s.type.size < 1000)], scale=block)
    batch, channels, rows, columns = (g.draw.integer(1, 4) for _ in range(4))
    if op == "depth_to_space":
        shape = (batch, channels * block**2, rows, columns)
    else:
        shape = (batch, channels, rows * block, columns * block)
    return g.apply(op, [_shaped(g, shape)], block_size=block)


def _shaped(g: Growth, shape: tuple[int, ...]) -> Symbol:
    """A tensor of just this shape: one that has it, one with as many elements, or a fresh one."""
    found = [s for s in g.pool if s.type.size == prod(shape)]
    if not found:
        return g.fresh(shape)
    data = g.draw.choice(found)
    return data if data.shape == shape else g.plain("Reshape", [data], shape=shape)


@grows("Pad")
def pad(g: Growth, op: str) -> Symbol:
    data = g.tensor(range(1, 6), lambda s: s.type.size < 2000)
    mode = g.draw.choice(("constant", "constant", "edge", "reflect"))
    widths = []
    for n in data.shape:
        most = min(2, n - 1) if mode == "reflect" else 2
        widths += [g.draw.integer(0, most) if g.draw.chance(0.6) else 0 for _ in range(2)]
    value = g.draw.number(*DTYPE_RANGES[data.dtype])
    return g.apply(op, [data], pad_width=tuple(widths), mode=mode, constant_value=float(value))


@grows("assign")
def assign(g: Growth, op: str) -> Symbol:
    """A state of its own, whose next value and initial one are held to its range."""
    data = g.tensor(range(1, 6), lambda s: s.dtype != "bool")
    dtype = "int8" if data.dtype == "bool" else data.dtype
    state = g.input(data.shape, dtype)
    lo, hi = g.ranges[state.name]
    value = g.plain("clip", [g.cast(data, dtype)], a_min=float(lo), a_max=float(hi))
    return g.plain(op, [value, state, g.constant((1,) * data.type.rank, dtype, lo, hi)])
