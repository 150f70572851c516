"""Residual networks of integers, whose sums are of 12 bits."""

from __future__ import annotations

import numpy as np
from layers import Layers

from mrt.backend.explain import explain
from mrt.symbol import Symbol

SHAPE = (3, 40, 9, 7)


class Blocks(Layers):
    """Residual blocks of 32 channels, whose sums are of 12 bits and 0 or more."""

    def stem(self) -> Symbol:
        given = self.input(self.integers(SHAPE, "int16", -200, 200))
        return self.word(self.convolution(self.requantized(given), 32, (1, 1)))

    def word(self, data: Symbol) -> Symbol:
        """Requantized to 12 bits."""
        scaled = self.hidden("broadcast_mul", data, self.parameter_of((1, data.shape[1], 1, 1), "int8", 1, 5))
        shifted = self.hidden("right_shift", scaled, self.parameter(np.array([5], np.int8)))
        return self.hidden("Cast", self.hidden("clip", shifted, a_min=-2000.0, a_max=2000.0), dtype="int16")

    def byte(self, data: Symbol, factor: int = 32102, shift: int = 19) -> Symbol:
        scaled = self.hidden("broadcast_mul", data, self.parameter(np.full((1, 1, 1, 1), factor, np.int16)))
        shifted = self.hidden("right_shift", scaled, self.parameter(np.full((1, 1, 1, 1), shift, np.int8)))
        return self.hidden("Cast", self.hidden("clip", shifted, a_min=0.0, a_max=255.0), dtype="uint8")

    def block(self, data: Symbol, branch: Symbol, held: Symbol | None = None) -> Symbol:
        """The next sum: of a convolution of `branch` and, by default, `data`."""
        inner = self.requantized(self.convolution(self.padded(branch, 1, 1, 1, 1), 32, (3, 3)))
        total = self.hidden("elemwise_add", self.word(self.convolution(inner, 32, (1, 1))), held or data)
        relu = self.hidden("relu", total)
        return self.hidden("Cast", self.hidden("clip", relu, a_min=0.0, a_max=4000.0), dtype="int16")

    def written_over(self) -> list[str]:
        """The outputs of what is written over others."""
        calls = explain(self.graph(), []).calls
        return [call.outputs[-1] for call in calls if "written over" in call.memory[-1]]
