"""Comparing compiled graphs with what they mean: many operators in one graph, so that one compilation serves a test."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrt.backend import TvmRunner
from mrt.symbol import Graph, GraphBuilder, Operator, Runner, Symbol, TensorType, find_operator

Array = Any
THIRDS = "uint8", "int16", "int32"
"""Dtypes that are moved and compared as int8 is: each does a part of what int8 does, and together they do all."""


def op(name: str, **attributes: Any) -> Operator:
    return find_operator(name)(**attributes)


class Bundle:
    """A graph of several inputs whose every operator is an output."""

    def __init__(self, seed: int = 0) -> None:
        self.builder = GraphBuilder()
        self.random = np.random.default_rng(seed)
        self.feeds: dict[str, Array] = {}
        self.outputs: list[Symbol] = []

    def input(self, value: Array, name: str = "x") -> Symbol:
        """A new input fed with `value`."""
        value = np.asarray(value)
        name = self.builder.unique(f"{name}_in")
        symbol = self.builder.input(f"{name}_fed", TensorType(value.shape, value.dtype.name))
        self.feeds[symbol.name] = value
        return symbol

    def integers(
        self, shape: tuple[int, ...], dtype: str = "int8", lo: int | None = None, hi: int | None = None
    ) -> Array:
        info = np.iinfo(dtype)
        lo, hi = info.min if lo is None else lo, info.max if hi is None else hi
        return self.random.integers(lo, hi, shape, endpoint=True).astype(dtype)

    def floats(self, *shape: int) -> Array:
        return self.random.standard_normal(shape).astype(np.float32)

    def parameter(self, value: Array) -> Symbol:
        return self.builder.parameter("parameter", np.asarray(value))

    def add(self, name: str, *inputs: Symbol, **attributes: Any) -> Symbol:
        """An operator whose value is compared."""
        symbol = self.builder.apply(op(name, **attributes), inputs)
        self.outputs.append(symbol)
        return symbol

    def hidden(self, name: str, *inputs: Symbol, **attributes: Any) -> Symbol:
        """An operator that is read by others only, so that it may be fused."""
        return self.builder.apply(op(name, **attributes), inputs)

    def keep_in_turn(self, dtype: str, others: tuple[str, ...] = THIRDS) -> None:
        """Compares a part of the operators only, of each of the other dtypes another one; of further ones all."""
        if dtype in others:
            self.outputs = self.outputs[others.index(dtype) :: len(others)]

    def graph(self) -> Graph:
        return self.builder.graph(self.outputs)

    def check(self, tolerance: float | None = None, runner: Runner | None = None) -> None:
        """Compiled values equal the graph's: bit for bit, floats within `tolerance` where one is given."""
        graph = self.graph()
        assert_same_values(
            graph, (runner or TvmRunner()).prepare(graph)(self.feeds), graph.evaluate(self.feeds), tolerance
        )


def assert_same_values(graph: Graph, found: list[Array], expected: list[Array], tolerance: float | None = None) -> None:
    assert len(found) == len(expected)
    for symbol, a, b in zip(graph.outputs, found, expected, strict=True):
        assert (a.shape, a.dtype.name) == (symbol.shape, symbol.dtype), symbol
        if tolerance is None or a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b, err_msg=f"{symbol} {symbol.operator}")
        else:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"{symbol} {symbol.operator}")


def assert_same_at_the_ends(graph: Graph, lo: int, hi: int, runner: Runner) -> None:
    """Compiled code gives the integers of a graph of one input, for numbers drawn from a range and its ends."""
    (given,) = graph.inputs
    rng, run = np.random.default_rng(1), runner.prepare(graph)
    drawn = rng.integers(lo, hi, given.shape, endpoint=True)
    for values in (drawn, np.where(drawn > 0, hi, lo), np.full(given.shape, lo)):
        feeds = {given.name: values.astype(given.dtype)}
        assert_same_values(graph, run(feeds), graph.evaluate(feeds))
