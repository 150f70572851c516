"""How sums of products are grown: their inputs and attributes, drawn at random."""

from __future__ import annotations

from math import isqrt, prod

from mrt.symbol import Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from tests.fuzz.growers.registry import grows
from tests.fuzz.growth import Growth

MOST_KERNEL = 1 << 15
"""Elements of a weight."""


def _weight(g: Growth, shape: tuple[int, ...]) -> Symbol:
    """A weight, mostly of bytes; now and then data."""
    dtype = g.draw.choice(("int8", "int8", "int8", "int16", "uint8", "int32", "bool"))
    if g.draw.chance(0.08):
        return g.fresh(shape, dtype)
    lo, hi = DTYPE_RANGES[dtype]
    reach = g.draw.choice((1, 7, 127, 128, 255, 2**31))
    return g.constant(shape, dtype, max(lo, -reach), min(hi, reach))


def _bias(g: Growth, length: int) -> list[Symbol]:
    if g.draw.chance(0.6):
        return []
    reach = g.draw.choice((1, 99, 2**16, 2**29))
    return [g.constant((length,), "int32", -reach, reach)]


@grows("Convolution")
def convolution(g: Growth, op: str) -> Symbol:
    data = g.tensor((3, 4, 5), lambda s: s.type.size < 8192)
    kernel, pads, dilate, stride = [], [], [], []
    for n in data.shape[2:]:
        pads.append(g.draw.choice((0, 0, 1, 2)))
        kernel.append(g.draw.integer(1, min(n + 2 * pads[-1], 4)))
        dilate.append(g.draw.integer(1, max((n + 2 * pads[-1] - 1) // max(kernel[-1] - 1, 1), 1)))
        dilate[-1] = min(dilate[-1], 3) if g.draw.chance(0.3) else 1
        stride.append(g.draw.integer(1, 3))
    groups, channels = g.draw.divisor(data.shape[1]) if g.draw.chance(0.4) else 1, data.shape[1]
    taps = channels // groups * prod(kernel)
    filters = groups * g.draw.integer(1, max(min(33, MOST_KERNEL // (taps * groups)), 1))
    bias = _bias(g, filters)
    return g.apply(
        op,
        [data, _weight(g, (filters, channels // groups, *kernel)), *bias],
        kernel=tuple(kernel),
        num_filter=filters,
        num_group=groups,
        pad=tuple(pads),
        stride=tuple(stride),
        dilate=tuple(dilate),
        no_bias=not bias,
    )


@grows("Deconvolution")
def deconvolution(g: Growth, op: str) -> Symbol:
    data = g.tensor((3, 4, 5), lambda s: s.type.size < 2000)
    kernel = tuple(g.draw.integer(1, 3) for _ in data.shape[2:])
    stride = tuple(g.draw.integer(1, 3) for _ in kernel)
    dilate = tuple(g.draw.choice((1, 1, 2)) for _ in kernel)
    whole = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(data.shape[2:], stride, kernel, dilate, strict=True)]
    border: dict[str, tuple[int, ...]] = {}
    if g.draw.chance(0.2):
        border["target_shape"] = tuple(g.draw.integer(1, n) for n in whole)
    else:
        border["pad"] = tuple(g.draw.integer(0, min((n - 1) // 2, 2)) for n in whole)
        border["adj"] = tuple(g.draw.integer(0, s - 1) for s in stride)
    groups = g.draw.divisor(data.shape[1]) if g.draw.chance(0.4) else 1
    each = g.draw.integer(1, max(min(9, MOST_KERNEL // (data.shape[1] * prod(kernel))), 1))
    bias = _bias(g, each * groups)
    shared = {"kernel": kernel, "num_filter": each * groups, "num_group": groups, "no_bias": not bias}
    weight = _weight(g, (data.shape[1], each, *kernel))
    return g.apply(op, [data, weight, *bias], stride=stride, dilate=dilate, **shared, **border)


@grows("FullyConnected")
def fully_connected(g: Growth, op: str) -> Symbol:
    flatten = g.draw.chance(0.5)
    data = g.tensor(range(2 if flatten else 1, 6))
    if g.draw.chance(0.15):  # sums of as many products as 32 bits hold, or one more
        data = g.fresh((1, 2 ** g.draw.integer(6, 14) + g.draw.integer(-1, 1)), g.draw.choice(("int8", "uint8")))
    length = prod(data.shape[1:]) if flatten else data.shape[-1]
    hidden = g.draw.integer(1, max(min(33, MOST_KERNEL // length), 1))
    bias = _bias(g, hidden)
    weight = _weight(g, (hidden, length))
    return g.apply(op, [data, weight, *bias], num_hidden=hidden, flatten=flatten, no_bias=not bias)


@grows("batch_dot", "dot")
def product(g: Growth, op: str) -> Symbol:
    data = g.tensor((2,) if op == "dot" else (3, 4))
    turned = g.draw.chance(0.5), g.draw.chance(0.5)
    if g.draw.chance(0.3):
        other, turned = data, (turned[0], not turned[0])
    else:
        inner = data.shape[-2 if turned[0] else -1]
        columns = g.draw.integer(1, max(min(33, isqrt(MOST_KERNEL // inner)), 1))
        matrix = (columns, inner) if turned[1] else (inner, columns)
        other = _weight(g, (*data.shape[:-2], *matrix))
    pair, named = [data, other], dict(zip(("transpose_a", "transpose_b"), turned, strict=True))
    return g.apply(op, pair, **named)
