"""What quantized networks are made of: sums of products that are requantized by channel, residuals, shuffles."""

from __future__ import annotations

from collections.abc import Callable

from mrt.symbol import Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from tests.fuzz.growth import Growth

IMAGES = (3, 4, 5)


def _image(g: Growth) -> Symbol:
    """Bytes or words with channels and one to three spatial axes."""
    data = g.tensor(IMAGES, lambda s: s.dtype not in ("bool", "int32") and s.type.size < 8192)
    return g.cast(data, g.draw.choice(("int8", "uint8", "int16"))) if data.dtype in ("bool", "int32") else data


def _requantized(g: Growth, data: Symbol) -> Symbol:
    """By channel: shifted, biased, clipped and cast to a narrow dtype."""
    dtype = g.draw.choice(("int8", "uint8", "int16"))
    channels = (1, data.shape[1], *(1,) * (data.type.rank - 2))
    shifted = g.plain("right_shift", [data, g.constant(channels, "int8", 0, 12)])
    biased = g.plain("broadcast_add", [shifted, g.constant(channels, "int16", -99, 99)])
    lo, hi = DTYPE_RANGES[dtype]
    clipped = g.plain("clip", [biased], a_min=float(lo + (dtype == "int8")), a_max=float(hi))
    return g.plain("Cast", [clipped], dtype=dtype)


def _weighted(g: Growth, data: Symbol, filters: int, groups: int, kernel: tuple[int, ...], **window: object) -> Symbol:
    weight = g.constant((filters, data.shape[1] // groups, *kernel), "int8", -127, 127)
    named = {"kernel": kernel, "num_filter": filters, "num_group": groups, "no_bias": True}
    return g.apply("Convolution", [data, weight], **named, **window)


def layer(g: Growth) -> Symbol:
    """A convolution, depthwise or grouped now and then, its sums requantized and rectified."""
    data = _image(g)
    channels = data.shape[1]
    groups = g.draw.choice((1, 1, channels, g.draw.divisor(channels)))
    filters = groups * g.draw.integer(1, max(48 // groups, 1))
    pad = tuple(g.draw.integer(0, 1) for _ in data.shape[2:])
    kernel = tuple(g.draw.integer(1, min(n + 2 * p, 3)) for n, p in zip(data.shape[2:], pad, strict=True))
    made = _requantized(g, _weighted(g, data, filters, groups, kernel, pad=pad))
    return g.plain("relu", [made]) if g.draw.chance(0.5) else made


def residual(g: Growth) -> Symbol:
    """The sum of the data and of a convolution of it, which may be written over the data."""
    data = _image(g)
    made = _weighted(g, data, data.shape[1], 1, (1,) * (data.type.rank - 2))
    return g.plain("elemwise_add", [_requantized(g, made), data])


def shuffle(g: Growth) -> Symbol:
    """Channels in another order, as ShuffleNet has them."""
    data = _image(g)
    batch, channels, *spatial = data.shape
    groups = g.draw.divisor(channels)
    apart = g.plain("Reshape", [data], shape=(batch, groups, channels // groups, *spatial))
    turned = g.plain("transpose", [apart], axes=(0, 2, 1, *range(3, 3 + len(spatial))))
    return g.plain("Reshape", [turned], shape=data.shape)


BLOCKS: dict[str, Callable[[Growth], Symbol]] = {"layer": layer, "residual": residual, "shuffle": shuffle}
"""By what is counted of them."""
