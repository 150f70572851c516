"""Proven bounds never need more bits than the formulas of the reference say, and where the reference's is unsound.

The formulas are those of "MRT Generalized Quantization Math Formalization": `infer_prec` of Convolution, FullyConnected
and Quantize Scale. get_bit_cnt is MRT's: the number of binary digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from applied import draw, random_interval
from hypothesis import example, given
from hypothesis import strategies as st

from mrt.calibration import Range
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, Interval, Operator, Symbol
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.graph import topological
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Concat
from tests.quantization.networks import chain


def get_bit_cnt(count: int) -> int:
    return int(count).bit_length()


@dataclass(frozen=True)
class Reduction:
    """What the formulas ask of a sum of products. terms: their K; zx, zw: the largest |zero point|; sums: the largest
    |sum(Wq)|."""

    terms: int
    xprec: int
    wprec: int
    zx: int = 0
    zw: int = 0
    sums: int = 0

    @property
    def infer_prec(self) -> int:
        products = get_bit_cnt(self.terms) + self.xprec + self.wprec
        if not self.zx and not self.zw:
            return products
        if not self.zw:
            return max(products + 1, get_bit_cnt(self.zx * self.sums)) + 1
        if not self.zx:
            return max(products + 1, get_bit_cnt(self.zw * self.terms) + self.xprec) + 1
        second = get_bit_cnt(self.zw * self.terms) + self.xprec + 1
        third = get_bit_cnt(self.zx * self.sums)
        return max(products + 2, second, third, get_bit_cnt(self.zx * self.zw * self.terms)) + 2


def symmetric(bits: int) -> int:
    return (1 << (bits - 1)) - 1


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Operator, tuple[int, ...], tuple[int, ...]]:
    """A convolution with the shapes of its data and its weight."""
    groups, channels, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    operator = Convolution(kernel=kernel, num_filter=groups * outputs, num_group=groups, no_bias=True)
    return operator, (1, groups * channels, 3, 4), (groups * outputs, channels, *kernel)


@st.composite
def layers(draw: st.DrawFn) -> tuple[Operator, tuple[int, ...], tuple[int, ...]]:
    """A fully connected layer with the shapes of its data and its weight."""
    length, outputs = draw(st.integers(1, 70)), draw(st.integers(1, 4))
    return FullyConnected(num_hidden=outputs, no_bias=True), (1, length), (outputs, length)


BITS = st.integers(2, 12)
SEEDS = st.integers(0, 2**31)
EXTREME = (Convolution(kernel=(3, 3), num_filter=1, no_bias=True), (1, 7, 3, 4), (1, 7, 3, 3))
"""K = 63 = 2^6 - 1."""


@given(case=convolutions() | layers(), xprec=BITS, wprec=BITS, seed=SEEDS, extreme=st.booleans())
@example(case=EXTREME, xprec=8, wprec=8, seed=0, extreme=True)
def test_a_symmetric_reduction_needs_a_bit_less(
    case: tuple[Operator, tuple[int, ...], tuple[int, ...]], xprec: int, wprec: int, seed: int, extreme: bool
) -> None:
    operator, shape, weight_shape = case
    top = symmetric(wprec)
    rng = np.random.default_rng(seed)
    weight = rng.choice([-top, top], weight_shape) if extreme else rng.integers(-top, top, weight_shape, endpoint=True)
    x = Interval.of(-symmetric(xprec), symmetric(xprec), shape)
    taken = (x, Interval.constant(weight))
    allowed = Reduction(prod(weight_shape[1:]), xprec, wprec).infer_prec
    for interval in (operator.bounds(*taken), *operator.intermediates(*taken)):
        assert interval.bits <= allowed - 1


@given(
    case=convolutions() | layers(),
    xprec=BITS,
    wprec=BITS,
    seed=SEEDS,
    quantizers=st.tuples(*[st.sampled_from(["symmetric", "affine"])] * 2),
    storage=st.sampled_from(["signed", "unsigned"]),
    ends=st.sampled_from([(-1.0, 1.0), (-0.1, 3.0), (-5.0, 0.25), (0.0, 2.0), (-2.0, 0.0), (1.0, 1.5)]),
    sign=st.sampled_from([-1, 0, 1]),
)
@example(EXTREME, 8, 8, 0, ("affine", "affine"), "unsigned", (-2.0, 0.0), 1)
@example(EXTREME, 8, 8, 0, ("affine", "affine"), "signed", (0.0, 2.0), -1)
def test_an_expanded_reduction_needs_no_more_bits(
    case: tuple[Operator, tuple[int, ...], tuple[int, ...]],
    xprec: int,
    wprec: int,
    seed: int,
    quantizers: tuple[str, str],
    storage: str,
    ends: tuple[float, float],
    sign: int,
) -> None:
    """Every tensor from the product to the corrected accumulator, in all four formalizations."""
    operator, shape, weight_shape = case
    weight = np.random.default_rng(seed).standard_normal(weight_shape).astype(np.float32)
    weight = weight if sign == 0 else sign * np.abs(weight)
    graph = chain(shape, (operator, [weight]))
    config = QuantizationConfig.model_validate(
        {
            "activation": {"bits": xprec, "quantizer": quantizers[0], "storage": storage},
            "weight": {"bits": wprec, "quantizer": quantizers[1]},
        }
    )
    largest = float(np.abs(weight).sum()) * max(map(abs, ends))
    integer = expand_graph(graph, {"x": Range(*ends), "s0": Range(-largest, largest)}, config)
    bounds = analyse_bounds(integer.graph, {s.name: Interval.of(t.lo, t.hi, s.shape) for s, t in integer.inputs})
    allowed = _reduction(integer, graph, xprec, wprec).infer_prec
    accumulators = _accumulators(integer)
    assert accumulators[0].op == operator.op
    assert not any(symbol.op == "right_shift" for symbol in accumulators)
    for symbol in accumulators:
        found = [bounds[source.name] for source in symbol.inputs]
        for interval in (bounds[symbol.name], *symbol.operator.intermediates(*found)):
            assert interval.bits <= allowed, symbol


def _accumulators(integer: IntegerGraph) -> list[Symbol]:
    """The symbols from the product to what stands for its real value."""
    last = next(s for s in integer.graph.operators if s.origin == "s0" and s.name in integer.scales)
    return [symbol for symbol in topological([last]) if symbol.origin == "s0" and not symbol.is_variable]


def _reduction(integer: IntegerGraph, graph: Graph, xprec: int, wprec: int) -> Reduction:
    """The facts of the quantized operands: zero points as the graph holds them."""
    parameters = {name: value.astype(np.int64) for name, value in integer.graph.parameters.items()}
    weight = parameters["p0_0"]
    zx = abs(integer.inputs[0][1].zero_point)
    zw = int(np.abs(parameters.get("p0_0_zero_point", np.zeros(1))).max())
    sums = int(np.abs(weight.reshape(len(weight), -1).sum(axis=1)).max())
    return Reduction(prod(graph.parameters["p0_0"].shape[1:]), xprec, wprec, zx, zw, sums)


SHAPE = (2, 3, 4)


@given(seed=SEEDS, bits=st.tuples(st.integers(1, 31), st.integers(1, 31)))
def test_a_sum_of_two_needs_a_bit_more_and_a_concatenation_none(seed: int, bits: tuple[int, int]) -> None:
    """Quantize Scale: max(xprecs) + 1 for elemwise_add, max(xprecs) for Concat."""
    rng = np.random.default_rng(seed)
    x, y = (random_interval(rng, SHAPE, -(1 << (p - 1)), (1 << (p - 1)) - 1) for p in bits)
    xprecs = x.bits, y.bits
    assert ElemwiseAdd().bounds(x, y).bits <= max(xprecs) + 1
    assert Concat(dim=1).bounds(x, y).bits == max(xprecs)


def test_a_sum_of_three_may_need_two_bits_more() -> None:
    """max(xprecs) + 1 is unsound for add_n: 127 + 127 + 127 = 381, and 9 bits hold 255."""
    x = Interval.of(-127, 127, SHAPE)
    infer_prec = max(x.bits, x.bits, x.bits) + 1
    reached = AddN().evaluate(*[np.full(SHAPE, 127, np.int8)] * 3)
    assert infer_prec == 9
    assert reached.max() == 381 > (1 << (infer_prec - 1)) - 1
    assert AddN().bounds(x, x, x).bits == 10
    assert AddN().bounds(*[x] * 2).bits <= infer_prec


@given(seed=SEEDS, count=st.integers(1, 40), bits=st.integers(1, 20))
def test_a_sum_of_many_needs_the_bits_of_their_number(seed: int, count: int, bits: int) -> None:
    """max(xprecs) + ceil(log2(n)) is sound, and ours is never looser."""
    rng = np.random.default_rng(seed)
    terms = [random_interval(rng, SHAPE, -(1 << (bits - 1)), (1 << (bits - 1)) - 1) for _ in range(count)]
    bounds = AddN().bounds(*terms)
    value = AddN().evaluate(*(draw(rng, term) for term in terms))
    assert (bounds.lo <= value).all() and (value <= bounds.hi).all()
    assert bounds.bits <= max(term.bits for term in terms) + (count - 1).bit_length()
