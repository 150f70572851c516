"""Networks that divide tensors, quantized and exported in every format: the integers of the quantized model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from c_programs import SANITIZED, Programs
from formats import Format, in_every_format

import mrt
from mrt.model import QuantizedModel
from mrt.symbol import GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.interval import Array
from mrt.symbol.operators.broadcast import BroadcastDiv
from mrt.symbol.operators.functions import Exp, Square
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.scalar import RDivScalar

RNG = np.random.default_rng(3)
WIDE, NARROW = (1, 3, 4), (1, 3, 1)
SIZES = {"x": WIDE, "d": WIDE, "row": NARROW}


def divided() -> tuple[QuantizedModel, list[dict[str, Array]]]:
    """Quotients by positive, negative and mixed divisors, of constants, of sums that follow a layer and spread."""
    builder = GraphBuilder()
    x, d, row = (builder.input(name, TensorType(shape)) for name, shape in SIZES.items())
    weight = builder.parameter("weight", RNG.standard_normal((4, 4)).astype(np.float32))
    layer = builder.apply(FullyConnected(4, no_bias=True, flatten=False), [x, weight], "layer")
    powers = builder.apply(Exp(), [x], "powers")
    squares = builder.apply(Square(), [d], "squares")
    graph = builder.graph(
        [
            builder.apply(BroadcastDiv(), [layer, d], "by_either_sign"),
            builder.apply(BroadcastDiv(), [x, row], "by_negative"),
            builder.apply(BroadcastDiv(), [powers, builder.apply(Sum(axis=(2,), keepdims=True), [squares])], "spread"),
            builder.apply(BroadcastDiv(), [builder.parameter("top", np.float32([[[1, -2, 3, 0]]])), d], "of_constant"),
            builder.apply(RDivScalar(2.0), [layer], "of_number"),
        ]
    )
    samples = [
        {
            "x": RNG.standard_normal(WIDE).astype(np.float32),
            "d": (RNG.uniform(0.2, 2, WIDE) * RNG.choice([-1, 1], WIDE)).astype(np.float32),
            "row": RNG.uniform(-4, -0.5, NARROW).astype(np.float32),
        }
        for _ in range(4)
    ]
    return mrt.quantize(graph, samples, runner=NumpyRunner()), samples


@pytest.fixture(scope="module")
def network() -> tuple[QuantizedModel, list[dict[str, Array]]]:
    return divided()


def fed(model: QuantizedModel, samples: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """The integers of the samples, and those at the ends of all ranges, zero and one among the divisors."""
    found = [model.quantize_inputs(sample) for sample in samples]
    for ends in ("lo", "hi"):
        found.append({e.name: np.full(e.shape, getattr(e, ends), e.dtype) for e in model.inputs})
    mixed = {
        e.name: RNG.choice([e.lo, max(e.lo, -1), min(e.hi, 1), e.hi], e.shape).astype(e.dtype) for e in model.inputs
    }
    zero = {e.name: np.full(e.shape, np.clip(0, e.lo, e.hi), e.dtype) for e in model.inputs}
    return [*found, mixed, zero]


def test_the_network_divides(network: tuple[QuantizedModel, list[dict[str, Array]]]) -> None:
    """In integers, and near enough to the quotients of reals."""
    model, samples = network
    assert model.graph.count_operators()["floor_divide"] >= 4
    for sample in samples:
        x, d, row = (sample[name].astype(np.float64) for name in SIZES)
        meant = {1: x / row, 2: np.exp(x) / (d**2).sum(axis=2, keepdims=True)}
        found = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(sample)))
        for place, y in meant.items():
            np.testing.assert_allclose(found[place], y, atol=0.1 * abs(y).max())


@in_every_format
def test_divisions(target: Format, network: tuple[QuantizedModel, list[dict[str, Array]]], tmp_path: Path) -> None:
    model, samples = network
    written = target.load(model.graph, target.write(model, tmp_path))
    target.assert_written(model.graph, written, fed(model, samples))


def test_divisions_in_c(network: tuple[QuantizedModel, list[dict[str, Array]]], tmp_path: Path) -> None:
    """By a program that stops at what C does not define, such as a division by 0."""
    model, samples = network
    Programs.of([(model.graph, model.inputs)], tmp_path, *SANITIZED).assert_same(0, fed(model, samples))
