"""A requantization of every int16, whose limits rewrites may move or widen."""

from __future__ import annotations

import numpy as np
from compiled import op

from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType


def requantized(factor: int, shift: int, limits: tuple[int, int], dtype: str, reads: int = 1, moved: int = 0) -> Graph:
    """A chain on int16: times a factor, shifted, moved, clipped, stored; what is shifted may be read once more."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((65536,), "int16"))
    scaled = builder.apply(op("broadcast_mul"), [x, builder.parameter("f", np.array([factor], np.int32))], "scaled")
    shifted = builder.apply(op("right_shift"), [scaled, builder.parameter("s", np.array([shift], np.int8))], "shifted")
    held = builder.apply(op("_plus_scalar", scalar=moved), [shifted], "moved") if moved else shifted
    clipped = builder.apply(op("clip", a_min=limits[0], a_max=limits[1]), [held], "clipped")
    stored: list[Symbol] = [builder.apply(op("Cast", dtype=dtype), [clipped], "stored")]
    return builder.graph(stored + [shifted] * (reads - 1))


ALL = {"x": np.arange(-(2**15), 2**15, dtype=np.int16)}
"""Every int16."""
