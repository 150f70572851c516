"""batch_dot and dot of two activations, against float."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import QuantizationError
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import GraphBuilder, Operator, TensorType
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.linear import BatchDot
from tests.quantization.networks import quantize_and_run

RNG = np.random.default_rng(9)


def product(operator: Operator, lhs: np.ndarray, rhs: np.ndarray, constants: str = "", **activation: object):
    """The operator on two inputs, or on parameters where `constants` names them."""
    builder = GraphBuilder()
    given = {"lhs": lhs.astype(np.float32), "rhs": rhs.astype(np.float32)}
    operands = [
        builder.parameter(name, value) if name in constants else builder.input(name, TensorType(value.shape))
        for name, value in given.items()
    ]
    graph = builder.graph([builder.apply(operator, operands, "y")])
    feeds = {name: value for name, value in given.items() if name not in constants}
    return quantize_and_run(graph, [feeds], QuantizationConfig.model_validate({"activation": activation}))


@pytest.mark.parametrize("kind", [BatchDot, Dot])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_products(kind: type[Operator], transpose_a: bool, transpose_b: bool, quantizer: str) -> None:
    leading = (2,) if kind is BatchDot else ()
    lhs = RNG.random((*leading, *((7, 4) if transpose_a else (4, 7)))) - 0.2
    rhs = RNG.random((*leading, *((5, 7) if transpose_b else (7, 5)))) * 3 - 2.5
    outcome = product(kind(transpose_a=transpose_a, transpose_b=transpose_b), lhs, rhs, quantizer=quantizer)
    assert outcome.relative_error < 0.02


@pytest.mark.parametrize("depth", [255, 256, 257])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_all_extreme_operands_are_exact(depth: int, quantizer: str) -> None:
    lhs, rhs = np.full((1, 2, depth), 1.0), np.full((1, depth, 2), -1.0)
    outcome = product(BatchDot(), lhs, rhs, quantizer=quantizer)
    np.testing.assert_allclose(outcome.approximate[0][0], -float(depth), rtol=1e-3)


@pytest.mark.parametrize("constants", ["lhs", "rhs"])
def test_a_constant_operand(constants: str) -> None:
    outcome = product(BatchDot(), RNG.standard_normal((1, 4, 7)), RNG.standard_normal((1, 7, 5)), constants)
    assert outcome.relative_error < 0.03


def test_a_tensor_times_itself() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 6, 6)))
    graph = builder.graph([builder.apply(BatchDot(transpose_b=True), [x, x], "y")])
    outcome = quantize_and_run(graph, [{"x": RNG.standard_normal((1, 6, 6)).astype(np.float32)}])
    assert outcome.relative_error < 0.02


def test_too_many_bits_are_refused_by_name() -> None:
    with pytest.raises(QuantizationError, match=r"y \(batch_dot\): the accumulator needs 3\d bits.*lhs or rhs"):
        product(BatchDot(), RNG.standard_normal((1, 2, 64)), RNG.standard_normal((1, 64, 2)), bits=16)
