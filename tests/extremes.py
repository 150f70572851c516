"""Random chains of elementwise integer operators at the ends of their dtypes, with what Python makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from math import isqrt
from operator import add, mul, sub
from random import Random
from typing import Any

import numpy as np

from mrt.errors import MRTError
from mrt.symbol import Graph, GraphBuilder, Interval, Symbol, TensorType, find_operator
from mrt.symbol.bounds import DTYPE_RANGES, bounds_of
from mrt.symbol.quantized_tensor import TensorQuantization

LOWEST, HIGHEST = DTYPE_RANGES["int32"]
NUMBERS = sorted(
    {0, LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST}
    | {sign * 2**n + d for n in range(31) for sign in (1, -1) for d in (-1, 0, 1)}
)
SHAPE = (2, 19)
TRIES = 60

Array = Any
Step = tuple[str, dict[str, Any], list[Any], Callable[..., int]]
"""An operator, its attributes, its inputs (symbols or arrays), and what it makes of Python's integers."""


@dataclass(frozen=True)
class Chains:
    """graph: every chain is an output. expected: the outputs' values, by Python's integers."""

    graph: Graph
    inputs: tuple[TensorQuantization, ...]
    feeds: dict[str, Array]
    expected: list[Array]


Meaning = Callable[[int, int], int]
"""What a step makes of a number, given also the one that the chain began with."""


def _by_number(op: str, number: int, meaning: Callable[[int, int], int]) -> tuple[str, dict[str, Any], Any, Meaning]:
    return op, {"scalar": number}, None, lambda x, _: meaning(x, number)


def _by_parameter(op: str, number: int, meaning: Callable[[int, int], int]) -> tuple[str, dict[str, Any], Any, Meaning]:
    return op, {}, np.array([[number]], np.int32), lambda x, _: meaning(x, number)


def _half_up(x: int, s: int) -> int:
    return (x + (1 << s >> 1)) >> s


RELU = ("relu", {}, None, lambda x, _: max(x, 0))
NAMED: dict[str, tuple[str, int, int, list[Any]]] = {
    "x - c has no c to add": ("int32", -128, -1, [_by_number("_minus_scalar", LOWEST, sub)]),
    "max(x - c, 0) is no max(x, c) - c": ("int32", LOWEST, -1, [_by_number("_minus_scalar", LOWEST, sub), RELU]),
    "c is not added after half a step": (
        "int32",
        0,
        HIGHEST,
        [_by_number("_plus_scalar", LOWEST, add), _by_parameter("right_shift", 13, _half_up)],
    ),
    "(x + c) d is no x d + c d": (
        "int32",
        -(2**30),
        -1,
        [_by_number("_plus_scalar", 2**30, add), _by_number("_mul_scalar", 2, mul)],
    ),
    "x c d is no x (c d)": (
        "int32",
        -1,
        0,
        [_by_number("_mul_scalar", 2**15, mul), _by_number("_mul_scalar", 2**16, mul)],
    ),
    "(x + c) + p is no (x + p) + c": (
        "int32",
        HIGHEST - 5,
        HIGHEST,
        [_by_number("_plus_scalar", LOWEST, add), _by_parameter("broadcast_add", 5, add)],
    ),
    "nor below a maximum": (
        "int32",
        HIGHEST - 5,
        HIGHEST,
        [_by_number("_plus_scalar", LOWEST, add), _by_parameter("broadcast_add", 2**30, add), RELU],
    ),
    "max(x + c, d) + 1 is no max(x, d - c) + (c + 1)": (
        "int32",
        LOWEST,
        LOWEST + 5,
        [
            _by_number("_plus_scalar", HIGHEST, add),
            _by_number("_maximum_scalar", LOWEST + 7, max),
            _by_number("_plus_scalar", 1, add),
        ],
    ),
    "c - (d - x) is no x + (c - d)": (
        "int32",
        LOWEST,
        -1,
        [
            _by_number("_rminus_scalar", -1, lambda x, c: c - x),
            _by_number("_rminus_scalar", HIGHEST, lambda x, c: c - x),
        ],
    ),
    "c - x is no (0 - x) + c": ("int32", LOWEST, -1, [_by_number("_rminus_scalar", -1, lambda x, c: c - x)]),
    "a limit that no int16 is, of what is one": (
        "int16",
        0,
        100,
        [
            _by_number("_minus_scalar", 5, sub),
            _by_number("_maximum_scalar", -(2**30), max),
            ("Cast", {"dtype": "int16"}, None, lambda x, _: x),
            ("abs", {}, None, lambda x, _: abs(x)),
            _by_parameter("floor_divide", 3, lambda x, y: x // y),
        ],
    ),
    "c - d of what d only is left": (
        "int32",
        LOWEST,
        HIGHEST,
        [_by_number("_minimum_scalar", LOWEST, min), _by_number("_rminus_scalar", LOWEST, lambda x, c: c - x)],
    ),
    "min(x, 0) of what is never negative": ("uint8", 0, 255, [_by_number("_minimum_scalar", 0, min)]),
    "max(x, 255) of what is never more": ("uint8", 0, 255, [_by_number("_maximum_scalar", 255, max)]),
}
"""Chains that are wrong, fail or give warnings where compilers rearrange them: a dtype, its ends, and the steps."""


def named_chains() -> Chains:
    """Those of NAMED, each an output."""
    builder, outputs, inputs, feeds, expected = GraphBuilder(), [], [], {}, []
    for i, (dtype, lo, hi, steps) in enumerate(NAMED.values()):
        x = value = builder.input(f"x{i}", TensorType(SHAPE, dtype))
        fed = np.resize(np.array([lo, min(lo + 1, hi), (lo + hi) // 2, max(hi - 1, lo), hi], object), SHAPE)
        exact = fed
        for op, attributes, other, meaning in steps:
            others = [] if other is None else [x] if isinstance(other, str) else [builder.parameter("p", other)]
            value = builder.apply(find_operator(op)(**attributes), [value, *others])
            exact = np.frompyfunc(meaning, 2, 1)(exact, fed)
        inputs.append(TensorQuantization(x.name, SHAPE, dtype, 1.0, 0, lo, hi))
        feeds[x.name] = fed.astype(dtype)
        outputs.append(value)
        expected.append(exact)
    return Chains(builder.graph(outputs), tuple(inputs), feeds, expected)


def chains(seed: int, count: int = 24) -> Chains:
    """`count` chains of two to five operators each, whose bounds fit 32 bits, as a certificate proves."""
    growing = _Growing(Random(seed))
    for _ in range(count):
        growing.chain()
    graph = growing.builder.graph(growing.outputs)
    inputs = [
        TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, growing.bounds[s.name].min, growing.bounds[s.name].max)
        for s in graph.inputs
    ]
    feeds = {s.name: growing.exact[s].astype(s.dtype) for s in graph.inputs}
    return Chains(graph, tuple(inputs), feeds, [growing.exact[s] for s in graph.outputs])


class _Growing:
    def __init__(self, random: Random) -> None:
        self.random, self.builder = random, GraphBuilder()
        self.bounds: dict[str, Interval] = {}
        self.exact: dict[Symbol, Array] = {}
        self.outputs: list[Symbol] = []

    def chain(self) -> None:
        pool = [self._input() for _ in range(self.random.randint(1, 3))]
        for _ in range(self.random.randint(2, 5)):
            pool.append(self._grown(pool))
        if pool[-1] not in self.outputs and not pool[-1].is_variable:
            self.outputs.append(pool[-1])

    def _input(self) -> Symbol:
        dtype = self.random.choice(["int32", "int32", "int32", "int16", "int8", "uint8"])
        lo, hi = DTYPE_RANGES[dtype]
        ends = [(lo, hi), (lo, lo + 3), (hi - 3, hi), (0, 1), (0, hi), (lo, lo // 2), (hi // 2, hi)]
        ends += [(-1, 1), (-128, -1), (lo, -1), (lo + 1, hi)] if lo else []
        lo, hi = self.random.choice(ends)
        symbol = self.builder.input(f"x{len(self.bounds)}", TensorType(SHAPE, dtype))
        near = sorted({min(max(n, lo), hi) for n in (lo, lo + 1, -1, 0, 1, (lo + hi) // 2, hi - 1, hi)})
        values = [self.random.choice([*near, self.random.randint(lo, hi)]) for _ in range(SHAPE[0] * SHAPE[1])]
        return self._known(symbol, Interval.of(lo, hi, SHAPE), np.array(values, object).reshape(SHAPE))

    def _known(self, symbol: Symbol, bounds: Interval, exact: Array) -> Symbol:
        self.bounds[symbol.name], self.exact[symbol] = bounds, exact
        return symbol

    def _grown(self, pool: list[Symbol]) -> Symbol:
        """A symbol of the pool's last ones that is proven to fit; the last one where none is found."""
        for _ in range(TRIES):
            data = pool[-1] if self.random.random() < 0.8 else self.random.choice(pool)
            other = self.random.choice(pool)
            made = self._applied(*self.random.choice(list(self._steps(data, other, self.random.choice(pool)))))
            if made is not None:
                return made
        return pool[-1]

    def _applied(
        self, name: str, attributes: dict[str, Any], inputs: list[Any], meaning: Callable[..., int]
    ) -> Symbol | None:
        """The symbol, if it is proven to fit 32 bits."""
        symbols = [self._parameter(x) if isinstance(x, np.ndarray) else x for x in inputs]
        try:
            symbol = self.builder.apply(find_operator(name)(**attributes), symbols)
            bounds = bounds_of(symbol, [self.bounds[s.name] for s in symbols])
        except MRTError:
            return None
        exact = np.frompyfunc(meaning, len(symbols), 1)(*(self.exact[s] for s in symbols))
        return self._known(symbol, bounds, np.asarray(exact, object))

    def _parameter(self, value: Array) -> Symbol:
        symbol = self.builder.parameter("p", value)
        return self._known(symbol, Interval.constant(value), value.astype(object))

    def _number(self, data: Symbol) -> int:
        """One of NUMBERS, or one that just brings the data to an end."""
        lo, hi = self.bounds[data.name].min, self.bounds[data.name].max
        just = [LOWEST - lo, HIGHEST - hi, -lo, -hi, hi - HIGHEST, lo - LOWEST, lo, hi, HIGHEST + lo, LOWEST + hi]
        fitting = [n for n in just if LOWEST <= n <= HIGHEST]
        return self.random.choice(fitting if fitting and self.random.random() < 0.5 else NUMBERS)

    def _numbers(self, data: Symbol) -> Array:
        shape = self.random.choice([(1, 1), (1, SHAPE[1]), (1,)])
        return np.array([self._number(data) for _ in range(int(np.prod(shape)))], np.int32).reshape(shape)

    def _between(self, lo: int, hi: int) -> Array:
        shape = self.random.choice([(1, 1), (1, SHAPE[1])])
        values = [self.random.choice([lo, lo + 1, self.random.randint(lo, hi), hi]) for _ in range(shape[1])]
        return np.array(values, np.int32).reshape(shape)

    def _steps(self, data: Symbol, other: Symbol, third: Symbol) -> Iterator[Step]:
        n, numbers = self._number(data), self._numbers(data)
        yield "_plus_scalar", {"scalar": n}, [data], lambda x: x + n
        yield "_minus_scalar", {"scalar": n}, [data], lambda x: x - n
        yield "_rminus_scalar", {"scalar": n}, [data], lambda x: n - x
        yield "_mul_scalar", {"scalar": n}, [data], lambda x: x * n
        yield "_maximum_scalar", {"scalar": n}, [data], lambda x: max(x, n)
        yield "_minimum_scalar", {"scalar": n}, [data], lambda x: min(x, n)
        lo, hi = sorted((n, self._number(data)))
        yield "clip", {"a_min": lo, "a_max": hi}, [data], lambda x: min(max(x, lo), hi)
        yield "relu", {}, [data], lambda x: max(x, 0)
        yield "abs", {}, [data], abs
        yield "negative", {}, [data], lambda x: -x
        yield "square", {}, [data], lambda x: x * x
        yield "elemwise_add", {}, [data, other], add
        yield "elemwise_sub", {}, [data, other], sub
        yield "elemwise_mul", {}, [data, other], mul
        yield "broadcast_add", {}, [data, numbers], add
        yield "broadcast_sub", {}, [data, numbers], sub
        yield "broadcast_sub", {}, [numbers, data], sub
        yield "broadcast_mul", {}, [data, numbers], mul
        yield "add_n", {}, [data, other, third], lambda *xs: reduce(add, xs)
        yield "_maximum", {}, [data, other], max
        yield "_minimum", {}, [data, other], min
        yield "where", {}, [third, data, other], lambda c, x, y: x if c else y
        yield "right_shift", {}, [data, self._between(0, 31)], lambda x, s: (x + (1 << s >> 1)) >> s
        yield "right_shift", {}, [data, other], lambda x, s: (x + (1 << s >> 1)) >> s
        yield "left_shift", {}, [data, self._between(0, 31)], lambda x, s: x << s
        yield "left_shift", {}, [data, other], lambda x, s: x << s
        yield "floor_divide", {}, [data, self._between(1, HIGHEST)], lambda x, y: x // y
        yield "floor_divide", {}, [data, other], lambda x, y: x // y
        yield "integer_sqrt", {}, [data], isqrt
        yield "Cast", {"dtype": self.random.choice(list(DTYPE_RANGES)[1:])}, [data], int
