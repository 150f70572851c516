"""The forms in which operators want their inputs."""

from __future__ import annotations

import enum


class Demand(enum.Enum):
    """The form in which an operator wants one input."""

    WIDE = "wide"
    """As its producer gives it: any width up to 32 bits, possibly one scale per channel."""
    NARROW = "narrow"
    """At the tensor's own quantizer: the asked bits, one scale."""
    CHANNELS = "channels"
    """NARROW, with one scale and zero point for each group of channels where the tensor has channel granularity
    along an axis that the operator keeps apart or, a layer, sums over."""
    OUTPUT = "output"
    """At the quantizer of the operator's own output, in channel groups where that has them."""
    COMMON = "common"
    """At the one scale that the plan gives the operator's output."""
    GRID = "grid"
    """At the integers to which the operator, a quantizer of the float graph, rounds."""
