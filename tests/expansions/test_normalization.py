"""LayerNorm, InstanceNorm and L2Normalization in integers, against float on the same integers."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Operator
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.normalization import LayerNorm
from tests.quantization.networks import Outcome, chain, quantize_and_run

RNG = np.random.default_rng(5)


def run(
    operator: Operator, integers: np.ndarray, bits: int, step: float, parameters: list[np.ndarray], quantizer: str = ""
) -> Outcome:
    """The operator on reals that their quantizer gives back exactly, its output with 16 bits."""
    integers = integers.astype(np.float64)
    graph = chain(integers.shape, (operator, parameters))
    config = {"activation": {"bits": bits, "quantizer": quantizer or "symmetric"}}
    return quantize_and_run(
        graph, [{"x": (integers * step).astype(np.float32)}], QuantizationConfig.model_validate(config)
    )


def sqnr(outcome: Outcome) -> float:
    real, found = outcome.real[0][0].astype(np.float64), outcome.approximate[0][0]
    return float(10 * np.log10(np.square(real).sum() / np.square(real - found).sum()))


def integers(bits: int, *shape: int) -> np.ndarray:
    """Normally distributed, the largest at the end of the range."""
    top = 2 ** (bits - 1) - 1
    values = RNG.standard_normal(shape)
    return np.rint(values / np.abs(values).max() * top)


def affine(channels: int) -> list[np.ndarray]:
    return [RNG.standard_normal(channels), RNG.standard_normal(channels)]


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
@pytest.mark.parametrize("length", [2, 3, 64, 100, 1000, 8000])
def test_layer_norm_alone(bits: int, length: int) -> None:
    outcome = run(LayerNorm(), integers(bits, 1, 5, length), bits, 2.0**-5, affine(length))
    assert sqnr(outcome) > 55


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 3, 5, 9), (1, 2, 112, 112), (1, 2, 3, 4, 5)])
def test_instance_norm_alone(bits: int, shape: tuple[int, ...]) -> None:
    outcome = run(InstanceNorm(), integers(bits, *shape), bits, 2.0**-5, affine(shape[1]))
    assert sqnr(outcome) > 55


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("mode", ["instance", "channel", "spatial"])
def test_l2_normalization_alone(bits: int, mode: str) -> None:
    outcome = run(L2Normalization(mode=mode), integers(bits, 2, 30, 7, 8), bits, 2.0**-5, [])
    assert sqnr(outcome) > 55


@pytest.mark.parametrize("operator", [LayerNorm(), LayerNorm(axis=1), InstanceNorm()], ids=str)
def test_zero_points_cancel(operator: Operator) -> None:
    values = np.abs(integers(8, 1, 6, 9)) * 2
    channels = 9 if operator == LayerNorm() else 6
    parameters = affine(channels)
    values.reshape(-1)[:2] = (-1, 254)
    outcome = run(operator, values, 8, 2.0**-5, parameters, "affine")
    assert outcome.integer.inputs[0][1].zero_point == 1
    assert sqnr(outcome) > 55


def hard_rows(length: int, top: int) -> np.ndarray:
    """Rows of few steps beside rows that fill the range."""
    at = np.arange(length)
    return np.stack(
        [
            np.where(at % 2, top, -top),
            np.where(at == 0, top, -top),
            np.where(at == 0, -top, top),
            np.where(at == 0, 1, 0),
            np.where(at % 2, top, top - 1),
            np.full(length, top),
            np.zeros(length),
            np.rint(RNG.standard_normal(length) * top / 200),
            top - np.abs(np.rint(RNG.standard_normal(length) * top / 1000)),
        ]
    )


@pytest.mark.parametrize("bits", [4, 8, 12, 16])
@pytest.mark.parametrize("length", [1, 2, 3, 64, 257])
@pytest.mark.parametrize("eps", [1e-6, 1e-5, 1.0])
def test_error_is_as_stated(bits: int, length: int, eps: float) -> None:
    top = 2 ** (bits - 1) - 1
    step = 2.0 ** -(bits - 3)
    rows = hard_rows(length, top)[None]
    outcome = run(LayerNorm(eps=eps), rows, bits, step, [np.ones(length), np.zeros(length)])
    real, found = outcome.real[0][0].astype(np.float64), outcome.approximate[0][0]
    deviation = np.sqrt((rows * step).var(axis=-1, keepdims=True) + eps)
    share = 2.0**-12 + np.sqrt(length) * 2.0**-15 * 2 * top * step / deviation
    output_step = outcome.integer.outputs[0].step
    assert (np.abs(real - found) <= 2.0**-13 + np.abs(real) * share + output_step).all()


@pytest.mark.parametrize("step", [1e-28, 1e-12, 1e-6, 1e-4, 1e-3, 1e-2, 1e6])
@pytest.mark.parametrize(
    "operator", [LayerNorm(), InstanceNorm(), L2Normalization(), L2Normalization(eps=0.1)], ids=str
)
def test_eps_counts_where_values_are_small(operator: Operator, step: float) -> None:
    parameters = [] if isinstance(operator, L2Normalization) else [np.ones(6), np.zeros(6)]
    outcome = run(operator, integers(8, 1, 6, 6), 8, step, parameters)
    assert sqnr(outcome) > 45


@pytest.mark.parametrize(
    ("gamma", "beta"),
    [
        (np.zeros(8), np.linspace(-2, 2, 8)),
        (np.zeros(8), np.zeros(8)),
        (np.full(8, -3.0), np.zeros(8)),
        (np.linspace(-1, 1, 8), np.full(8, 1000.0)),
        (np.full(8, 1e-9), np.full(8, 1.0)),
        (np.geomspace(1e-6, 1e6, 8), np.zeros(8)),
        (np.full(8, 1e20), np.full(8, -1e20)),
        (np.full(8, 1e-20), np.full(8, 1e-20)),
    ],
)
def test_awkward_gamma_and_beta(gamma: np.ndarray, beta: np.ndarray) -> None:
    outcome = run(LayerNorm(), integers(8, 1, 5, 8), 8, 0.1, [gamma, beta])
    assert outcome.relative_error < 2.0**-12


@pytest.mark.parametrize("step", [1e-28, 1e-9, 1e-6])
def test_beta_beside_values_that_eps_swallows(step: float) -> None:
    outcome = run(LayerNorm(), integers(8, 1, 5, 8), 8, step, [np.full(8, 2.0), np.linspace(-1, 1, 8)])
    assert outcome.relative_error < 2.0**-9


def test_constant_tensors() -> None:
    for value in (0.0, 1.0, -3.0):
        outcome = run(LayerNorm(), np.full((1, 2, 8), value), 8, 1.0, [np.ones(8), np.full(8, 0.5)])
        np.testing.assert_allclose(outcome.approximate[0][0], 0.5, atol=1e-3)
        outcome = run(L2Normalization(), np.full((1, 2, 8), value), 8, 1.0, [])
        np.testing.assert_allclose(outcome.approximate[0][0], outcome.real[0][0], atol=1e-3)
