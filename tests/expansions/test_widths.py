"""Activations of 8 to 16 bits: every operator takes every width, and more bits are never less accurate."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType, run_passes
from mrt.symbol.operators.activation import LeakyReLU, Relu, Sigmoid
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul
from mrt.symbol.operators.functions import Negative
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import LayerNorm, Softmax
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Mean, Sum
from mrt.symbol.operators.transform import Concat
from tests.matrix import NORMAL_FORM, QUANTIZERS, Case
from tests.matrix_cases import CASES
from tests.quantization.networks import observe, proven_bounds, quantize_and_run

WIDTHS = (8, 10, 12, 16)
CHANCE = 2.5
"""By how many decibels roundings of few values, or of weights, happen to be better or worse."""
ENOUGH = 75.0
"""Decibels beyond which the 16 bits of an output decide."""


def sqnr(graph: Graph, samples: Sequence[dict[str, Array]], config: QuantizationConfig) -> float:
    """10 log10 of the mean square of the outputs over that of what integers are off by, all within 32 bits."""
    outcome = quantize_and_run(graph, samples, config, observe(graph, samples))
    assert max(bound.bits for bound in proven_bounds(outcome.integer).values()) <= 32
    pairs = outcome.real, outcome.approximate
    real, found = (np.concatenate([np.ravel(y) for each in outputs for y in each]) for outputs in pairs)
    signal, noise = np.square(real).sum(), np.square(real - found).sum()
    return float(10 * np.log10(signal / noise)) if noise else np.inf


def assert_rises(found: Sequence[float]) -> None:
    for fewer, more in itertools.pairwise(found):
        assert more >= min(fewer, ENOUGH) - CHANCE, found


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("case", "quantizer"),
    zip((case for case in CASES if not case.is_loose), itertools.cycle(QUANTIZERS), strict=False),
    ids=str,
)
def test_operators(case: Case, quantizer: str) -> None:
    """Weights have the bits of activations; quantizers serve in turn, and so do widths between the ends."""
    samples = [case.draw(seed) for seed in range(1, 7)]
    widths = (WIDTHS[0], WIDTHS[1 + CASES.index(case) // 2 % 2], WIDTHS[-1])
    assert_rises([sqnr(case.graph, samples, case.config(quantizer, bits=bits)) for bits in widths])


Network = Callable[[GraphBuilder], Symbol]


def drawn(builder: GraphBuilder, name: str, *shape: int) -> Symbol:
    return builder.parameter(name, np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


def of(
    operator: Operator, *shapes: tuple[int, ...], weights: Sequence[tuple[int, ...]] = (), first: Operator | None = None
) -> Network:
    """An operator on inputs that a constant for each channel, and `first`, stand before."""

    def make(builder: GraphBuilder) -> Symbol:
        inputs = []
        for index, shape in enumerate(shapes):
            symbol = builder.input(f"x{index}", TensorType(shape))
            spread = np.linspace(0.5, 3.0, shape[1]).reshape(-1, *(1,) * (len(shape) - 2))
            constant = builder.parameter(f"c{index}", spread.astype(np.float32))
            symbol = builder.apply(BroadcastMul(), [symbol, constant])
            inputs.append(symbol if first is None else builder.apply(first, [symbol]))
        parameters = [drawn(builder, f"w{index}", *shape) for index, shape in enumerate(weights)]
        return builder.apply(Negative(), [builder.apply(operator, [*inputs, *parameters], "y")])

    return make


def added(made: Network, *shape: int) -> Network:
    """What a network gives, brought to the scale of a sum."""

    def make(builder: GraphBuilder) -> Symbol:
        return builder.apply(ElemwiseAdd(), [made(builder), builder.input("z", TensorType(shape))])

    return make


def joined(builder: GraphBuilder) -> Symbol:
    """A product of two tensors beside a tensor."""
    x, y, z = (builder.input(name, TensorType((1, 32, 8, 8))) for name in "xyz")
    return builder.apply(Negative(), [builder.apply(Concat(), [builder.apply(ElemwiseMul(), [x, y]), z])])


GLOBAL = {"global_pool": True, "pool_type": "avg"}
SQUARE = (1, 32, 8, 8)
NETWORKS: dict[str, tuple[float, Network]] = {
    # The least decibels at 16 bits, weights of 8.
    "3x3x512": (40, of(Convolution((3, 3), 8), (1, 512, 4, 4), weights=[(8, 512, 3, 3), (8,)], first=Relu())),
    "5x5x512": (38, of(Convolution((5, 5), 4), (1, 512, 6, 6), weights=[(4, 512, 5, 5), (4,)], first=Relu())),
    "12544": (38, of(FullyConnected(8), (1, 12544), weights=[(8, 12544), (8,)], first=Relu())),
    "gelu then 3072": (
        40,
        of(
            FullyConnected(16, flatten=False),
            (4, 3, 3072),
            weights=[(16, 3072), (16,)],
            first=LeakyReLU(act_type="gelu"),
        ),
    ),
    "products of 512": (50, of(BatchDot(), (2, 8, 512), (2, 512, 8))),
    "products of 4096": (70, of(BatchDot(), (1, 4, 4096), (1, 4096, 4), first=Relu())),
    "layer norm of 384": (70, of(LayerNorm(), (2, 8, 384), weights=[(384,), (384,)])),
    "layer norm of 4096": (55, of(LayerNorm(), (1, 2, 4096), weights=[(4096,), (4096,)])),
    "instance norm": (65, of(InstanceNorm(), (1, 2, 224, 224), weights=[(2,), (2,)])),
    "l2": (60, of(L2Normalization(), (4, 512))),
    "softmax": (60, of(Softmax(), (4, 8, 64))),
    "softmax of 1000": (55, of(Softmax(), (4, 1000))),
    "mean of 50176": (85, of(Pooling(**GLOBAL), (1, 2, 224, 224), first=Relu())),
    "mean of either sign": (65, of(Pooling(**GLOBAL), (1, 1, 1024, 1024))),
    "sum of 131072": (85, of(Sum(axis=(1, 2)), (1, 64, 2048), first=Relu())),
    "mean": (70, of(Mean(axis=(2,)), (1, 8, 1024))),
    "gate": (75, of(BroadcastMul(), (1, 32, 8, 8), (1, 32, 1, 1), first=Sigmoid())),
    "product in a sum": (75, added(of(ElemwiseMul(), SQUARE, SQUARE), *SQUARE)),
    "products in a sum": (65, added(of(BatchDot(), (2, 8, 64), (2, 64, 8)), 2, 8, 8)),
    "layer norm in a sum": (70, added(of(LayerNorm(), (2, 8, 384), weights=[(384,), (384,)]), 2, 8, 384)),
    "mean in a sum": (75, added(of(Pooling(**GLOBAL), (2, 8, 32, 32)), 2, 8, 1, 1)),
    "product beside a tensor": (72, joined),
}
"""Sizes at which 16 bits fill the accumulators, and scales that nothing can absorb behind those."""


@pytest.mark.parametrize(("name", "quantizer"), zip(NETWORKS, itertools.cycle(QUANTIZERS), strict=False))
def test_large_operators(name: str, quantizer: str) -> None:
    enough, make = NETWORKS[name]
    builder = GraphBuilder()
    graph = run_passes(builder.graph([make(builder)]), NORMAL_FORM).graph
    rng = np.random.default_rng(1)
    samples = [{x.name: rng.standard_normal(x.shape).astype(np.float32) for x in graph.inputs} for _ in range(2)]
    found = [
        sqnr(graph, samples, QuantizationConfig.model_validate({"activation": {"quantizer": quantizer, "bits": bits}}))
        for bits in WIDTHS
    ]
    assert_rises(found)
    assert found[-1] >= enough
