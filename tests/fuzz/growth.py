"""Graphs that grow operator by operator, each tensor with the interval that is proven of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrt.errors import QuantizationError
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Symbol, TensorType, find_operator
from mrt.symbol.bounds import DTYPE_RANGES, bounds_of
from tests.fuzz.draw import DTYPES, Draw

Fits = Callable[[Symbol], bool]
Feeds = dict[str, Array]
MOST_INPUTS = 4
MOST_ELEMENTS = 1 << 14
"""Of one tensor: larger ones are not read on."""


@dataclass(frozen=True)
class Grown:
    """An integer graph, the range of each input, and feeds within these: at the ends and between."""

    graph: Graph
    ranges: Mapping[str, tuple[int, int]]
    feeds: Sequence[Feeds]

    @property
    def intervals(self) -> dict[str, Interval]:
        return {s.name: Interval.of(*self.ranges[s.name], s.shape) for s in self.graph.inputs}


class Growth:
    """A graph in the making. pool: tensors that operators may read."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.builder = GraphBuilder()
        self.pool: list[Symbol] = []
        self.ranges: dict[str, tuple[int, int]] = {}
        self.bounds: dict[Symbol, Interval] = {}
        self.refused: Counter[str] = Counter()
        self.input(draw.shape(draw.integer(0, 6)), draw.choice(DTYPES))

    def input(self, shape: tuple[int, ...], dtype: str) -> Symbol:
        symbol = self.builder.input(f"x{len(self.ranges)}", TensorType(shape, dtype))
        lo, hi = self.ranges[symbol.name] = self.draw.interval(dtype)
        self.bounds[symbol] = Interval.of(lo, hi, shape)
        self.pool.append(symbol)
        return symbol

    def parameter(self, value: Array) -> Symbol:
        symbol = self.builder.parameter("p", value)
        self.bounds[symbol] = Interval.constant(value)
        return symbol

    def constant(self, shape: Sequence[int], dtype: str, lo: int | None = None, hi: int | None = None) -> Symbol:
        """A parameter of values in [lo, hi], by default in an interval that is drawn."""
        ends = self.draw.interval(dtype)
        return self.parameter(
            self.draw.array(shape, dtype, ends[0] if lo is None else lo, ends[1] if hi is None else hi)
        )

    def fresh(self, shape: tuple[int, ...], dtype: str | None = None) -> Symbol:
        """A tensor that no operator made."""
        dtype = dtype or self.draw.choice(DTYPES)
        if len(self.ranges) < MOST_INPUTS and self.draw.chance(0.6):
            return self.input(shape, dtype)
        return self.constant(shape, dtype)

    def tensor(self, ranks: Sequence[int] = range(7), fits: Fits = lambda symbol: True) -> Symbol:
        """One of the pool that fits, mostly a late one, or a fresh one, which need not fit."""
        found = [s for s in self.pool if s.type.rank in ranks and s.type.size <= MOST_ELEMENTS and fits(s)]
        if found and self.draw.chance(0.85):
            return found[-1] if self.draw.chance(0.5) else self.draw.choice(found)
        return self.fresh(self.draw.shape(self.draw.choice(list(ranks))))

    def like(self, data: Symbol, dtype: str | None = None) -> Symbol:
        """A tensor of the same shape, and of a dtype where one is given; often `data` itself."""
        found = [s for s in self.pool if s.shape == data.shape and dtype in (None, s.dtype)]
        return self.draw.choice(found) if found and self.draw.chance(0.7) else self.fresh(data.shape, dtype)

    def broadcast(self, data: Symbol, dtype: str | None = None) -> Symbol:
        """A tensor that broadcasts with `data`."""
        shape = [1 if self.draw.chance(0.4) else n for n in data.shape]
        shape = [self.draw.choice((2, 3)) if n == 1 and self.draw.chance(0.1) else n for n in shape]
        short = tuple(shape[self.draw.integer(0, len(shape)) :] if self.draw.chance(0.4) else shape)
        return self.like(data, dtype) if self.draw.chance(0.3) else self.fresh(short, dtype)

    def plain(self, op: str, inputs: Sequence[Symbol], **attributes: Any) -> Symbol:
        """The operator on these inputs; MRTError where the graph may not have it."""
        symbol = self.builder.apply(find_operator(op)(**attributes), inputs)
        self.bounds[symbol] = bounds_of(symbol, [self.bounds[source] for source in inputs])
        return symbol

    def apply(self, op: str, inputs: Sequence[Symbol], **attributes: Any) -> Symbol:
        """The operator on these inputs or, where 32 bits do not hold that, on smaller ones."""
        for most in (None, 255, 15, 1):
            try:
                return self.plain(op, inputs if most is None else [self.narrow(s, most) for s in inputs], **attributes)
            except QuantizationError:
                self.refused[op] += 1
                if self.draw.chance(0.05):
                    raise
        return self.plain(op, [self.clipped(s, 0, 0) for s in inputs], **attributes)

    def narrow(self, data: Symbol, most: int) -> Symbol:
        """Of magnitude `most` at most: a parameter by division, another tensor by a shift and a clip."""
        bounds = self.bounds[data]
        if bounds.magnitude <= most:
            return data
        if (value := self.builder.value(data)) is not None:
            return self.parameter((value.astype(np.int64) // (bounds.magnitude // most + 1)).astype(value.dtype))
        shift = self.parameter(np.array(self.draw.integer(0, 31), "int8"))
        return self.clipped(self.plain("right_shift", [data, shift]), -most, most)

    def clipped(self, data: Symbol, lo: int, hi: int) -> Symbol:
        """Held to [lo, hi] and, mostly, cast to a narrow dtype that holds that."""
        if data.dtype == "bool":
            return data
        least, most = DTYPE_RANGES[data.dtype]
        lo, hi = max(lo, least), min(hi, most)
        found = self.plain("clip", [data], a_min=float(lo), a_max=float(hi))
        held = [d for d in DTYPES if d != "bool" and DTYPE_RANGES[d][0] <= lo and hi <= DTYPE_RANGES[d][1]]
        return self.plain("Cast", [found], dtype=self.draw.choice(held)) if self.draw.chance(0.8) else found

    def cast(self, data: Symbol, dtype: str) -> Symbol:
        """In a dtype, held to what that holds."""
        if data.dtype == dtype:
            return data
        if dtype == "bool":
            return self.plain("Cast", [data], dtype=dtype)
        bounds, (least, most) = self.bounds[data], DTYPE_RANGES[dtype]
        if bounds.min < least or bounds.max > most:
            data = self.plain("clip", [data], a_min=float(least), a_max=float(most))
        return self.plain("Cast", [data], dtype=dtype)

    def finish(self) -> Grown:
        """The graph of some tensors of the pool, inputs and parameters now and then among them."""
        made = [s for s in self.pool if not s.is_variable]
        kept = [s for s in made if self.draw.chance(0.4)] or made[-1:] or self.pool[-1:]
        if self.draw.chance(0.1):
            kept.append(self.draw.choice([s for s in self.bounds if s.is_variable]))
        if self.draw.chance(0.1):
            kept.append(self.draw.choice(kept))
        graph = self.builder.graph(kept)
        return Grown(graph, self.ranges, [self._feeds(graph, kind) for kind in ("lo", "hi", "any", "any", "ends")])

    def _feeds(self, graph: Graph, kind: str) -> Feeds:
        found = {}
        for symbol in graph.inputs:
            lo, hi = self.ranges[symbol.name]
            ends = {"lo": [lo], "hi": [hi], "ends": [lo, min(max(lo, 0), hi), hi]}
            if kind == "any":
                value = self.draw.random.integers(lo, hi, symbol.shape, endpoint=True)
            else:
                value = self.draw.random.choice(ends[kind], symbol.shape)
            found[symbol.name] = np.asarray(value).astype(symbol.dtype)
        return found
