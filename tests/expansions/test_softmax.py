"""softmax in integers stays within its stated error of float, for many classes and for extremes."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import QuantizationError
from mrt.quantization.options import QuantizationConfig
from mrt.symbol.operators.normalization import LogSoftmax, Softmax
from tests.quantization.networks import Outcome, chain, quantize_and_run


def random_rows(shape: tuple[int, ...], top: int = 127) -> np.ndarray:
    """Integers from -top to top, the same whichever tests run and in whatever order."""
    return np.random.default_rng(shape).integers(-top, top, shape, endpoint=True)


def on_the_grid(rows: np.ndarray, bits: int, step: float) -> list[dict[str, np.ndarray]]:
    """Integers as reals that their own quantizer gives back exactly: the largest magnitude occurs, and a value
    below 0 (data never below 0 would get a grid of unsigned integers)."""
    rows = rows.astype(np.float64)
    rows.reshape(-1)[0] = 2 ** (bits - 1) - 1
    if rows.min() >= 0:
        rows.reshape(-1)[-1] = -1
    return [{"x": (rows * step).astype(np.float32)}]


def run(
    rows: np.ndarray, bits: int, step: float, operator: Softmax | LogSoftmax, out_bits: int, quantizer: str
) -> Outcome:
    graph = chain(rows.shape, (operator, []))
    config = {"activation": {"bits": bits, "quantizer": quantizer}, "output": {"bits": out_bits}}
    config["overrides"] = {"s0": {"activation": {"bits": out_bits}}}
    samples = on_the_grid(rows, bits, step)
    return quantize_and_run(graph, samples, QuantizationConfig.model_validate(config))


def worst_error(outcome: Outcome) -> float:
    return max(float(np.abs(r[0] - a[0]).max()) for r, a in zip(outcome.real, outcome.approximate, strict=True))


@pytest.mark.parametrize("classes", [1, 2, 3, 12, 99, 1000, 4096, 40_000])
@pytest.mark.parametrize(("bits", "step"), [(8, 2.0**-4), (8, 1.0), (12, 2.0**-8), (16, 2.0**-11)])
@pytest.mark.parametrize("out_bits", [8, 16])
def test_error_for_many_classes(classes: int, bits: int, step: float, out_bits: int) -> None:
    top = 2 ** (bits - 1) - 1
    rows = random_rows((1, 2, classes), top)
    outcome = run(rows, bits, step, Softmax(), out_bits, "symmetric")
    assert worst_error(outcome) <= 2 / 2**out_bits + classes * 2.0**-16


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("classes", [2, 100, 1000])
def test_extremes(classes: int, quantizer: str) -> None:
    """All equal, one above all, one below all, half and half, at either end of the range."""
    rows = np.stack(
        [
            np.full(classes, 127),
            np.full(classes, -127),
            np.zeros(classes),
            np.where(np.arange(classes) == 1, 127, -127),
            np.where(np.arange(classes) == 1, -127, 127),
            np.where(np.arange(classes) % 2, -127, 127),
            np.where(np.arange(classes) % 2, 126, 127),
        ]
    )
    for step in (2.0**-20, 2.0**-6, 2.0**-3, 4.0):
        outcome = run(rows, 8, step, Softmax(), 8, quantizer)
        assert worst_error(outcome) <= 2 / 2**8 + classes * 2.0**-16 + (quantizer == "affine") * step / 255 / 2


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("temperature", [None, 0.25, 8.0])
def test_axes_and_temperature(axis: int, temperature: float | None) -> None:
    rows = random_rows((3, 5, 4))
    outcome = run(rows, 8, 2.0**-4, Softmax(axis=axis, temperature=temperature), 8, "symmetric")
    assert worst_error(outcome) <= 2 / 2**8
    (output,) = outcome.integer.graph.outputs
    powers = next(value for name, value in outcome.integer.graph.parameters.items() if "powers" in name)
    assert powers.size <= 255 and powers.max() == powers[-1] and output.shape == (3, 5, 4)


def test_calibrated_range_below_one_is_used_in_full() -> None:
    rows = random_rows((1, 64, 64))
    outcome = run(rows, 8, 2.0**-7, Softmax(), 16, "symmetric")
    highest = max(float(r[0].max()) for r in outcome.real)
    assert highest < 0.1
    assert worst_error(outcome) <= highest * 2.0**-8


def log_error(outcome: Outcome, classes: int, step: float) -> tuple[float, float]:
    """The worst error, and what is allowed: two halves of the common scale, which is 16 times finer than the output,
    half a step of the output, the sum's roundings, the multiplier's of 14 bits, and what the grid is missed by."""
    allowed = outcome.integer.outputs[0].step * (1 / 2 + 1 / 16) - np.log1p(-classes / 2**17 - classes**2 / 2**32)
    largest = max(float(np.abs(r[0]).max()) for r in outcome.real)
    return worst_error(outcome), allowed + largest * 2.0**-14 + step


@pytest.mark.parametrize("classes", [1, 2, 3, 12, 99, 1000, 16_384])
@pytest.mark.parametrize(("bits", "step"), [(8, 2.0**-4), (8, 1.0), (12, 2.0**-8), (16, 2.0**-11)])
@pytest.mark.parametrize("out_bits", [8, 16])
def test_logarithm_for_many_classes(classes: int, bits: int, step: float, out_bits: int) -> None:
    top = 2 ** (bits - 1) - 1
    rows = random_rows((1, 2, classes), top)
    found, allowed = log_error(run(rows, bits, step, LogSoftmax(), out_bits, "symmetric"), classes, 0.0)
    assert found <= allowed


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("classes", [2, 100, 1000])
@pytest.mark.parametrize("step", [2.0**-20, 2.0**-6, 2.0**-3, 4.0])
def test_logarithm_of_extremes(classes: int, step: float, quantizer: str) -> None:
    """All equal, one above all, one below all, half and half."""
    rows = np.stack(
        [
            np.full(classes, 127),
            np.zeros(classes),
            np.where(np.arange(classes) == 1, 127, -127),
            np.where(np.arange(classes) == 1, -127, 127),
            np.where(np.arange(classes) % 2, -127, 127),
        ]
    )
    # An affine quantizer of 256 integers misses the grid of 255 by half a step on both sides of the difference.
    missed = step if quantizer == "affine" else 0.0
    found, allowed = log_error(run(rows, 8, step, LogSoftmax(), 8, quantizer), classes, missed)
    assert found <= allowed


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("temperature", [None, 0.25, 8.0])
def test_logarithm_of_axes_and_temperature(axis: int, temperature: float | None) -> None:
    rows = random_rows((3, 5, 4))
    outcome = run(rows, 8, 2.0**-4, LogSoftmax(axis=axis, temperature=temperature), 8, "symmetric")
    found, allowed = log_error(outcome, 5, 0.0)
    assert found <= allowed and outcome.integer.graph.outputs[0].shape == (3, 5, 4)


def test_a_logarithm_of_too_many_classes_is_refused_by_name() -> None:
    rows = random_rows((1, 16_385))
    with pytest.raises(QuantizationError, match=r"s0 \(log_softmax\): it has 16385 classes, 16384 are allowed; cut"):
        run(rows, 8, 1.0, LogSoftmax(), 8, "symmetric")
