"""A decoder in small: a cache of rows that calls change one by one."""

from __future__ import annotations

import numpy as np

import mrt
from mrt.model import QuantizedModel
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, Symbol, TensorType
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.selection import Where
from mrt.symbol.operators.state import Assign
from mrt.symbol.operators.transform import Reshape

PLACES, WIDTH, STEPS = 6, 40, 14
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(2 * STEPS, WIDTH)).astype(np.float32)
AT = np.eye(PLACES, dtype=np.float32)[np.arange(2 * STEPS) % PLACES]
"""One place after the other, and from the first one again."""
AT[4] = [1, 0, 0, 1, 0, 0]
AT[7] = 0


def decoder(decays: bool) -> Graph:
    """A cache of rows, of which those `at` some places become what a layer makes of x; the output adds them all up.

    decays: whether there is another state, of which each call reads all and changes all.
    """
    builder = GraphBuilder()
    x, at = (builder.input(name, TensorType((1, n))) for name, n in (("x", WIDTH), ("at", PLACES)))
    cache = builder.input("cache", TensorType((1, PLACES, WIDTH)))
    weight = builder.parameter("weight", np.random.default_rng(1).normal(size=(WIDTH, WIDTH)).astype(np.float32))
    layer = builder.apply(FullyConnected(num_hidden=WIDTH, no_bias=True), [x, weight], "layer")
    rows = builder.apply(Reshape(shape=(0, 1, WIDTH)), [layer], "rows")
    is_new = builder.apply(Reshape(shape=(0, PLACES, 1)), [at], "is_new")
    following = builder.apply(Where(), [is_new, rows, cache], "following")
    y = builder.apply(Sum(axis=(1,)), [following], "sum")
    zero = builder.parameter("zero", np.zeros((1, 1, 1), np.float32))
    ends: list[Symbol] = [builder.apply(Assign(), [following, cache, zero], "cache_next")]
    if decays:
        kept = builder.input("kept", TensorType((1, WIDTH)))
        half = builder.apply(MulScalar(scalar=0.5), [kept], "half")
        more = builder.apply(ElemwiseAdd(), [half, layer], "more")
        y = builder.apply(ElemwiseAdd(), [y, more], "y")
        flat = builder.parameter("flat", np.zeros((1, 1), np.float32))
        ends.append(builder.apply(Assign(), [more, kept, flat], "kept_next"))
    return builder.graph([y, *ends])


def quantized(decays: bool) -> QuantizedModel:
    return mrt.quantize(decoder(decays), {"x": X, "at": AT}, QuantizationConfig(preset="fast"), runner=NumpyRunner())
