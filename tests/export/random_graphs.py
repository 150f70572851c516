"""Random graphs of integers whose values are proven to fit 32 bits, some of them to the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from mrt.errors import MRTError
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Symbol, TensorType, find_operator
from mrt.symbol.bounds import DTYPE_RANGES, analyse_bounds
from mrt.symbol.types import INT32_MAX, INT32_MIN

SHAPE = (1, 4, 5, 5)
NARROW = ("int8", "uint8", "int16")


@dataclass
class Growing:
    """A graph that grows by one operator after the other; what could leave 32 bits is not kept."""

    random: np.random.Generator
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    made: list[Symbol] = field(default_factory=list)
    count: int = 0

    def parameter(self, array: Any, dtype: str = "int32") -> Symbol:
        self.count += 1
        return self.builder.parameter(f"p{self.count}", np.asarray(array, dtype))

    def by_channel(self, lo: int, hi: int, dtype: str = "int32") -> Symbol:
        return self.parameter(self.random.integers(lo, hi, (1, SHAPE[1], 1, 1), endpoint=True), dtype)

    def apply(self, op: str, *inputs: Symbol, **attributes: Any) -> Symbol:
        self.count += 1
        return self.builder.apply(find_operator(op)(**attributes), inputs, f"s{self.count}")

    def any(self) -> Symbol:
        return self.made[self.random.integers(len(self.made))]

    def wide(self, symbol: Symbol) -> Symbol:
        return symbol if symbol.dtype == "int32" else self.apply("Cast", symbol, dtype="int32")

    def fits(self, symbol: Symbol) -> bool:
        try:
            graph = self.builder.graph([symbol])
            intervals = analyse_bounds(graph, ranges(graph))
        except MRTError:
            return False
        bounds = intervals[symbol.name]
        return bool(bounds.min >= INT32_MIN and bounds.max <= INT32_MAX and bounds.max > bounds.min)

    def narrowed(self, symbol: Symbol) -> Symbol:
        """The symbol in a dtype of fewer bits where it fits one."""
        graph = self.builder.graph([symbol])
        bounds = analyse_bounds(graph, ranges(graph))[symbol.name]
        fitting = [d for d in NARROW if DTYPE_RANGES[d][0] <= bounds.min and bounds.max <= DTYPE_RANGES[d][1]]
        if symbol.dtype != "int32" or not fitting or self.random.random() < 0.3:
            return symbol
        return self.apply("Cast", symbol, dtype=fitting[0])


def ranges(graph: Graph) -> dict[str, Interval]:
    return {symbol.name: Interval.of(*DTYPE_RANGES[symbol.dtype], symbol.shape) for symbol in graph.inputs}


def convolution(g: Growing, x: Symbol) -> Symbol:
    groups = int(g.random.choice([1, 1, 2, 4]))
    lo, hi = [(-127, 127), (-3, 3), (-(2**12), 2**12)][g.random.integers(3)]
    weight = g.parameter(g.random.integers(lo, hi, (4, 4 // groups, 3, 3)), "int8" if hi < 128 else "int16")
    bias = g.parameter(g.random.integers(-(2**20), 2**20, 4))
    return g.apply("Convolution", x, weight, bias, kernel=(3, 3), num_filter=4, pad=(1, 1), num_group=groups)


def dense(g: Growing, x: Symbol) -> Symbol:
    """Along the last axis."""
    weight = g.parameter(g.random.integers(-30, 30, (5, 5)), "int8")
    return g.apply("FullyConnected", x, weight, num_hidden=5, no_bias=True, flatten=False)


def moved_and_back(g: Growing, x: Symbol) -> Symbol:
    return g.apply("transpose", g.apply("transpose", x, axes=(0, 2, 3, 1)), axes=(0, 3, 1, 2))


def shifted(g: Growing, x: Symbol) -> Symbol:
    number = g.parameter(g.random.integers(0, 20), "int8")
    return g.apply("right_shift", x, number if g.random.random() < 0.5 else g.by_channel(0, 20, "int8"))


STEPS: tuple[Callable[[Growing, Symbol], Symbol], ...] = (
    convolution,
    convolution,
    dense,
    moved_and_back,
    shifted,
    shifted,
    lambda g, x: g.apply("relu", x),
    lambda g, x: g.apply("broadcast_mul", x, g.by_channel(1, 2 ** int(g.random.integers(2, 16)))),
    lambda g, x: g.apply("broadcast_mul", x, g.by_channel(-50, 50)),
    lambda g, x: g.apply("broadcast_add", x, g.by_channel(-(2**30), 2**30)),
    lambda g, x: g.apply("broadcast_sub", x, g.by_channel(-1000, 1000)),
    lambda g, x: g.apply("_mul_scalar", x, scalar=float(g.random.integers(-300, 300))),
    lambda g, x: g.apply("_plus_scalar", x, scalar=float(g.random.integers(-(2**20), 2**20))),
    lambda g, x: g.apply("clip", x, a_min=-127.0, a_max=float(g.random.integers(0, 2**23))),
    lambda g, x: g.apply("square", x),
    lambda g, x: g.apply("abs", x),
    lambda g, x: g.apply("floor_divide", x, g.by_channel(1, 1000)),
    lambda g, x: g.apply("left_shift", x, g.by_channel(0, 9, "int8")),
    lambda g, x: g.apply("elemwise_add", x, g.any()),
    lambda g, x: g.apply("elemwise_mul", x, g.any()),
    lambda g, x: g.apply("elemwise_sub", x, g.any()),
    lambda g, x: g.apply("broadcast_maximum", g.wide(x), g.wide(g.any())),
    lambda g, x: g.apply("Pooling", x, kernel=(3, 3), pad=(1, 1), pool_type="max"),
    lambda g, x: g.apply("Pooling", x, kernel=(3, 3), pad=(1, 1), pool_type="sum"),
)


@lru_cache
def random_graph(seed: int, length: int = 14) -> Graph:
    """About `length` operators on one input of 8 bits, all on one shape; three outputs."""
    g = Growing(np.random.default_rng(seed))
    x = g.builder.input("x", TensorType(SHAPE, str(g.random.choice(["int8", "uint8"]))))
    g.made.append(x)
    for _ in range(20 * length):
        step = STEPS[g.random.integers(len(STEPS))]
        # Mostly on: chains are what optimizers rewrite.
        made = step(g, g.made[-1] if g.random.random() < 0.7 else g.any())
        if g.fits(made):
            g.made.append(g.narrowed(made))
        if len(g.made) > length:
            break
    return g.builder.graph([g.made[-1], g.made[-2], g.made[len(g.made) // 2]])


def feeds_of(graph: Graph, seed: int = 0, count: int = 3) -> list[dict[str, Array]]:
    """The input at either end of its range, at both at random, and anywhere between."""
    random = np.random.default_rng(seed)
    (x,) = graph.inputs
    lo, hi = DTYPE_RANGES[x.dtype]
    drawn = [
        np.full(x.shape, lo),
        np.full(x.shape, hi),
        *(random.choice([lo, hi], x.shape) for _ in range(count)),
        *(random.integers(lo, hi, x.shape, endpoint=True) for _ in range(count)),
    ]
    return [{x.name: values.astype(x.dtype)} for values in drawn]
