"""A tensor that the options split into channel groups, and its quantizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.calibration import Range
from mrt.quantization.granularity import grouped_target
from mrt.quantization.options import ActivationConfig
from mrt.quantization.quantizer import Target


@dataclass(frozen=True)
class ChannelSplit:
    """A tensor that the options split along `axis`, `step` channels a group.

    channels: the range that each channel's quantizer covers.
    """

    channels: tuple[tuple[float, float], ...]
    axis: int
    step: int
    options: ActivationConfig
    never_negative: bool

    def target(self, covered: Range | None) -> Target:
        """The quantizer in channel groups; covered: the part of the tensor's range that counts, None for all."""
        lo, hi = (-np.inf, np.inf) if covered is None else (covered.lo, covered.hi)
        lo = max(lo, 0.0) if self.never_negative else lo
        channels = [(min(max(least, lo), hi), min(max(most, lo), hi)) for least, most in self.channels]
        options = self.options
        quantizer = options.group_quantizer
        signed = options.is_signed if quantizer == "affine" else not self.never_negative
        return grouped_target(channels, self.axis, self.step, options.bits, quantizer, signed)
