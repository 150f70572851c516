"""The tensors that the options split into channel groups, and the quantizers of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mrt.calibration import Range
from mrt.quantization.expansion import group_readers
from mrt.quantization.granularity import covered_channels, grouped_target
from mrt.quantization.options import ActivationConfig
from mrt.quantization.plan.own_quantizers import Asked
from mrt.quantization.quantizer import Target
from mrt.symbol import Graph
from mrt.symbol.channels import channel_axes


@dataclass(frozen=True)
class ChannelSplit:
    """A tensor that the options split along `axis`. channels: the range that each channel's quantizer covers."""

    channels: tuple[tuple[float, float], ...]
    axis: int
    step: int
    options: ActivationConfig
    never_negative: bool

    def target(self, covered: Range | None) -> Target:
        """The quantizer in channel groups; covered: the part of the tensor's range that matters, None for all."""
        lo, hi = (-np.inf, np.inf) if covered is None else (covered.lo, covered.hi)
        lo = max(lo, 0.0) if self.never_negative else lo
        channels = [(min(max(least, lo), hi), min(max(most, lo), hi)) for least, most in self.channels]
        options = self.options
        signed = options.is_signed if options.quantizer == "affine" else not self.never_negative
        return grouped_target(channels, self.axis, self.step, options.bits, options.quantizer, signed)


def channel_splits(
    graph: Graph,
    thresholds: Mapping[str, Range],
    asked: Mapping[str, Asked],
    never_negative: frozenset[str],
) -> dict[str, ChannelSplit]:
    """The tensors, by name, that the options split and that some reader takes in channel groups.

    Inputs keep one scale: they come from outside as integers of one scale. So do tensors of whose channels calibration
    saw nothing.
    """
    found = {}
    axes = channel_axes(graph)
    for symbol in graph.operators:
        options, axis = asked[symbol.name], axes.get(symbol.name, 0)
        step = options.channel_step if isinstance(options, ActivationConfig) else None
        if not isinstance(options, ActivationConfig) or step is None or not group_readers(graph, symbol, axis):
            continue
        if thresholds[symbol.name].channels:
            channels = covered_channels(thresholds[symbol.name])
            found[symbol.name] = ChannelSplit(channels, axis, step, options, symbol.name in never_negative)
    return found
