"""Channel granularity: the scale and zero point of each group of channels, and where groups pay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from mrt.calibration import Range
from mrt.quantization.quantizer import SMALLEST_SCALE, ChannelGroups, Target, affine_target, symmetric_target
from mrt.symbol import Array

FACTOR_BITS = 8
"""Group scales are at most 2^8 times the common one: with 8-bit weights, factor times weight fits 16 bits."""
LEAST_FACTOR = 4
"""The finest group's factor, where FACTOR_BITS allow it: rounding a factor up costs it at most a quarter more step."""


ENOUGH = 10_000
"""A channel's range is taken as it was seen where so many of its values or more were seen."""


def channel_ranges_with_margin(found: Range) -> tuple[tuple[float, float], ...]:
    """The range that each channel's quantizer covers: what calibration saw, and a margin where it saw little.

    The next of n + 1 independent values of one distribution is the largest with probability 1 / (n + 1): a tensor has
    been seen often enough where one of its channels has not, such as behind a global pooling, where a channel has one
    value a sample. With an exponential tail the largest of n values is expected at

        H(n) = 1 + 1/2 + ... + 1/n

    lengths of that tail (A. Renyi, "On the theory of order statistics", 1953), so that of N values it is expected at
    H(N) / H(n) times that of n. By this factor, with N = ENOUGH, ends are moved away from zero, as far as the tensor's
    own range goes. It is too careful where tails are lighter.
    """
    factor = _expected_largest(ENOUGH) / _expected_largest(found.observations or ENOUGH)
    if factor <= 1:
        return found.channels
    return tuple(
        (min(lo, max(lo * factor, found.lo)), max(hi, min(hi * factor, found.hi))) for lo, hi in found.channels
    )


@cache
def _expected_largest(count: int) -> float:
    """The expected largest of `count` values with an exponential tail of length 1; ENOUGH values at most count."""
    return math.fsum(1 / k for k in range(1, min(count, ENOUGH) + 1))


def integer_factors(wanted: Array, bits: int) -> tuple[float, Array]:
    """A common scale and integer factors such that common * factors is at least `wanted` and close to it.

    wanted: positive scales, of any shape. factors: int64, of the same shape, from 1 to 2^bits. The largest scale is
    met exactly; all equal ones give the factors 1, so that splitting a tensor into like groups changes nothing.
    """
    largest, smallest = float(wanted.max()), float(wanted.min())
    if largest == smallest:
        return largest, np.ones(wanted.shape, np.int64)
    top = 1 << min(bits, math.ceil(math.log2(LEAST_FACTOR * largest / smallest)))
    common = largest / top
    return common, np.clip(np.ceil(wanted / common * (1 - 1e-9)), 1, top).astype(np.int64)


def group_ranges(channels: Sequence[tuple[float, float]], step: int) -> list[tuple[float, float]]:
    """The hull of each `step` channels' ranges, the last group being the remainder."""
    groups = [channels[first : first + step] for first in range(0, len(channels), step)]
    return [(min(lo for lo, _ in group), max(hi for _, hi in group)) for group in groups]


def grouped_target(
    channels: Sequence[tuple[float, float]],
    axis: int,
    step: int,
    bits: int,
    quantizer: str,
    signed: bool,
) -> Target:
    """The quantizer with a scale and a zero point for each `step` channels.

    channels: the calibrated range of every channel. Each group's scale is that of its own symmetric or affine
    quantizer, raised to the next integer multiple of the tensor's common scale. A group that was only ever zero, or too
    small for a scale, takes the coarsest scale of the others, since nothing is known of what it may hold.
    """
    ranges = group_ranges(channels, step)
    if quantizer == "affine":
        targets = [affine_target(lo, hi, bits, signed) for lo, hi in ranges]
    else:
        targets = [symmetric_target(max(abs(lo), abs(hi)), bits, signed) for lo, hi in ranges]
    live = np.array([max(abs(lo), abs(hi)) >= SMALLEST_SCALE * 2.0**bits for lo, hi in ranges])
    wanted = np.array([target.scale for target in targets])
    if live.any():
        wanted[~live] = wanted[live].max()
    common, factors = integer_factors(wanted, FACTOR_BITS)
    lowest, highest = targets[0].lo, targets[0].hi
    zero_points = [0] * len(ranges)
    if quantizer == "affine":
        steps = [lo / (common * factor) for (lo, _), factor in zip(ranges, factors.tolist(), strict=True)]
        zero_points = [int(np.clip(np.rint(lowest - min(least, 0.0)), lowest, highest)) for least in steps]
    groups = ChannelGroups(axis, step, tuple(factors.tolist()), tuple(zero_points))
    return Target(common, lowest, highest, groups=groups)


def gain_db(channels: Sequence[tuple[float, float]], step: int, quantizer: str) -> float:
    """How much less quantization noise groups of `step` channels leave than one scale, in dB.

    The noise of a uniform quantizer is its step squared over 12; the step is proportional to the range covered: the
    distance of its ends, zero among them, if affine, that of the farther one from zero if symmetric.
    """

    def spans(ranges: Sequence[tuple[float, float]]) -> Array:
        lo, hi = np.array(ranges, np.float64).T
        affine: Array = np.maximum(hi, 0) - np.minimum(lo, 0)
        symmetric: Array = np.maximum(np.abs(lo), np.abs(hi))
        return affine if quantizer == "affine" else symmetric

    (whole,) = spans(group_ranges(channels, len(channels)))
    groups = np.repeat(spans(group_ranges(channels, step)), step)[: len(channels)]
    noise = float(np.mean(np.square(groups / whole))) if whole > 0 else 0.0
    return -10 * math.log10(noise) if noise > 0 else 0.0
