"""A clip whose limits are inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Interval, Operator, TensorType


@dataclass(frozen=True)
class ClipTo(Operator):
    """min(max(x, least), most) in x's dtype, of one number each; an input that is not there is no limit.

    stored: a dtype to which the result is cast, "" for none. No value is beyond what it holds, which code may rely on.
    """

    has_least: bool = True
    has_most: bool = True
    stored: str = ""

    op = "clip_to"
    input_names = ("data", "least", "most")
    is_elementwise = True

    def infer(self, x: TensorType, *limits: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array, *limits: Array) -> Array:
        left = list(limits)
        if self.has_least:
            x = np.maximum(x, left.pop(0))
        return np.minimum(x, left.pop(0)) if self.has_most else x

    def bounds(self, x: Interval, *limits: Interval) -> Interval:
        ends = [limit.lo for limit in limits]
        return x.map(lambda bound: self.evaluate(bound, *ends))
