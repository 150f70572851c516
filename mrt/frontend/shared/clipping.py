"""Clips in the simplest form, open ends told from closed ones."""

from __future__ import annotations

import numpy as np

from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import Clip, Relu

FLOAT_MAX = float(np.finfo(np.float32).max)
"""An open end: the largest float32."""


def clipped(node: ModelNode, data: Symbol, low: float, high: float) -> Symbol:
    """`data` in [low, high], where low <= high: as it is where both ends are open, by relu where it can be."""
    if low <= -FLOAT_MAX and high >= FLOAT_MAX:
        return data
    if low == 0 and high >= FLOAT_MAX:
        return node.apply(Relu(), [data])
    return node.apply(Clip(a_min=low, a_max=high), [data])
