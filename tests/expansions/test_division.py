"""Quotients of two tensors in integers: near float, saturating where a divisor reaches 0, the same bits compiled."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv
from mrt.symbol.operators.functions import Sqrt, Square
from mrt.symbol.operators.reduce import Sum
from tests.compiled_integers import assert_compiled_alike
from tests.quantization.networks import Outcome, quantize_and_run

RNG = np.random.default_rng(19)


def quotient(shape: tuple[int, ...], by: tuple[int, ...]) -> Graph:
    builder = GraphBuilder()
    x, d = builder.input("x", TensorType(shape)), builder.input("d", TensorType(by))
    return builder.graph([builder.apply(BroadcastDiv(), [x, d], "y")])


def run(x: np.ndarray, d: np.ndarray, bits: int = 8) -> Outcome:
    config = QuantizationConfig.model_validate({"activation": {"bits": bits}, "output": {"bits": 16}})
    samples = [{"x": x.astype(np.float32), "d": d.astype(np.float32)}]
    return quantize_and_run(quotient(x.shape, d.shape), samples, config)


def sqnr(outcome: Outcome) -> float:
    (real,), (found,) = outcome.real[0], outcome.approximate[0]
    return float(10 * np.log10(np.square(real).sum() / np.square(real - found).sum()))


@pytest.mark.parametrize("sign", ["positive", "negative", "both"])
@pytest.mark.parametrize("by", [(2, 3, 40), (2, 1, 40), (2, 3, 1)])
def test_a_quotient_is_as_good_as_its_operands(sign: str, by: tuple[int, ...]) -> None:
    d = RNG.uniform(0.5, 2.0, by) * {"positive": 1.0, "negative": -1.0, "both": RNG.choice([-1.0, 1.0], by)}[sign]
    x = RNG.normal(size=(2, 3, 40))
    # Eight bits of a normal tensor are about 40 dB, those of the divisor as many.
    assert sqnr(run(x, d)) > 36
    assert sqnr(run(x, d, bits=16)) > 70


def test_every_pair_of_eight_bits_is_rounded_to_the_nearest() -> None:
    """Against exact rational arithmetic: the operands are the integers themselves."""
    x, d = np.arange(-127, 128)[:, None], np.arange(1, 256)[None, :]
    outcome = run(np.broadcast_to(x, (255, 255)).copy(), np.broadcast_to(d, (255, 255)).copy(), bits=16)
    (real,), (found,) = outcome.real[0], outcome.approximate[0]
    step = 127 / 2**15
    # Half a step of the output's 16 bits and of the 4 guard bits, and that of either operand's 16 bits.
    room = 0.54 * step + 0.51 * 127 / 2**15 / d + np.abs(x) / d * 0.51 * 255 / 2**16 / d
    assert (np.abs(found - x / d) <= room).all()
    np.testing.assert_allclose(real, x / d, rtol=1e-6)


def test_a_divisor_that_reaches_0_saturates_and_is_noted() -> None:
    x, d = np.array([[1.0, -1.0, 0.0, 0.5]]), np.array([[1e-7, 1e-7, -1e-7, 1.0]])
    outcome = run(x, d, bits=16)
    assert any("its divisor d was calibrated on [-1e-07, 1]" in note for note in outcome.integer.notes)
    (found,) = outcome.approximate[0]
    assert found[0, 0] > 1e4 and found[0, 1] < -1e4 and found[0, 2] == 0


@pytest.mark.parametrize("columns", [8, 300])
def test_a_length_that_is_computed_of_the_data(columns: int) -> None:
    """x / sqrt(sum(x^2) + eps) over rows of very different size keeps them all."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((6, columns)))
    squares = builder.apply(Sum(axis=(1,), keepdims=True), [builder.apply(Square(), [x])])
    eps = builder.parameter("eps", np.full((1, 1), 1e-6, np.float32))
    length = builder.apply(Sqrt(), [builder.apply(BroadcastAdd(), [squares, eps])])
    graph = builder.graph([builder.apply(BroadcastDiv(), [x, length], "y")])
    rows = RNG.normal(size=(6, columns)) * np.array([[1.0], [0.5], [0.3], [0.2], [0.8], [1.0]])
    outcome = quantize_and_run(graph, [{"x": rows.astype(np.float32)}], QuantizationConfig())
    assert sqnr(outcome) > 30
    assert_compiled_alike(outcome.integer)


@pytest.mark.parametrize("constant", ["numerator", "neither"])
def test_compiled_integers_equal(constant: str) -> None:
    builder = GraphBuilder()
    d = builder.input("d", TensorType((2, 5)))
    top = np.arange(1.0, 6.0, dtype=np.float32).reshape(1, 5) - 3.5
    x = builder.parameter("x", top) if constant == "numerator" else builder.input("x", TensorType((2, 5)))
    graph = builder.graph([builder.apply(BroadcastDiv(), [x, d], "y")])
    feeds = {"d": RNG.uniform(-3, 3, (2, 5)).astype(np.float32), "x": RNG.normal(size=(2, 5)).astype(np.float32)}
    feeds = {symbol.name: feeds[symbol.name] for symbol in graph.inputs}
    outcome = quantize_and_run(graph, [feeds], QuantizationConfig())
    assert sqnr(outcome) > 25
    assert_compiled_alike(outcome.integer)
