"""batch_dot and dot of two activations, against float."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mrt.calibration import Range
from mrt.errors import QuantizationError
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import GraphBuilder, Operator, TensorType
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.interval import Interval
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.linear import BatchDot
from tests.compiled_integers import assert_compiled_alike
from tests.quantization.networks import Outcome, quantize_and_run, random_samples

RNG = np.random.default_rng(9)


def product(
    operator: Operator,
    lhs: np.ndarray,
    rhs: np.ndarray,
    constants: str = "",
    weight: dict[str, object] | None = None,
    **activation: object,
) -> Outcome:
    """The operator on two inputs, or on parameters where `constants` names them."""
    builder = GraphBuilder()
    given = {"lhs": lhs.astype(np.float32), "rhs": rhs.astype(np.float32)}
    operands = [
        builder.parameter(name, value) if name in constants else builder.input(name, TensorType(value.shape))
        for name, value in given.items()
    ]
    graph = builder.graph([builder.apply(operator, operands, "y")])
    feeds = {name: value for name, value in given.items() if name not in constants}
    return quantize_and_run(
        graph, [feeds], QuantizationConfig.model_validate({"activation": activation, "weight": weight or {}})
    )


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


def stated_error(outcome: Outcome, depth: int) -> tuple[float, float]:
    """The worst error, and what is allowed for operands within +-1 that lost bits.

    Each is off by half the step of its own quantizer and half that of what was left of it; sums of `depth` products by
    as many of these, to first order, and the product of both; then half a step of the output, a multiplier of 8 bits.
    """
    found = max(float(np.abs(r[0] - a[0]).max()) for r, a in zip(outcome.real, outcome.approximate, strict=True))
    largest = max(float(np.abs(r[0]).max()) for r in outcome.real)
    halves = [target.scale / 2 for _, target in outcome.integer.inputs]
    for note in outcome.integer.notes:
        halves[int("rhs in" in note)] += float(note.rsplit("by at most ")[1].split()[0]) * 1.01
    products = depth * (sum(halves) + halves[0] * halves[-1])
    return found, products + outcome.integer.outputs[0].step / 2 + largest * 2.0**-8


@pytest.mark.parametrize("depth", [1, 2, 64, 4096])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [14, 16])
def test_operands_lose_the_bits_that_32_cannot_hold(depth: int, quantizer: str, bits: int) -> None:
    lhs, rhs = RNG.uniform(-1, 1, (2, 3, depth)), RNG.uniform(-1, 1, (2, depth, 3))
    lhs[0, 0, 0], rhs[0, 0, 0] = 1.0, -1.0
    outcome = product(BatchDot(), lhs, rhs, quantizer=quantizer, bits=bits)
    found, allowed = stated_error(outcome, depth)
    assert found <= allowed
    most = depth * math.prod(target.reach for _, target in outcome.integer.inputs)
    assert len(outcome.integer.notes) == (2 if most > 2**31 - 1 else 0)


def factors_of(outcome: Outcome) -> list[int]:
    """The largest integers of the two operands of the product, by their bounds."""
    graph = outcome.integer.graph
    intervals = {s.name: Interval.of(t.lo, t.hi, s.shape) for s, t in outcome.integer.inputs}
    bounds = analyse_bounds(graph, intervals)
    return [int(bounds[source.name].magnitude) for source in graph.by_name["z"].inputs]


@pytest.mark.parametrize(("lhs_bits", "rhs_bits", "depth"), [(16, 16, 2), (16, 16, 64), (16, 8, 1000), (8, 16, 4096)])
def test_no_more_is_lost_than_32_bits_need(lhs_bits: int, rhs_bits: int, depth: int) -> None:
    """The factors fill 32 bits but for one step; the narrower one loses nothing while it has fewer bits."""
    builder = GraphBuilder()
    shapes = {"lhs": (1, 2, depth), "rhs": (1, depth, 2)}
    operands = [builder.input(name, TensorType(shape)) for name, shape in shapes.items()]
    graph = builder.graph([builder.apply(BatchDot(), operands, "z")])
    overrides = {"lhs": {"activation": {"bits": lhs_bits}}, "rhs": {"activation": {"bits": rhs_bits}}}
    config = QuantizationConfig.model_validate({"overrides": overrides})
    left, right = factors_of(quantize_and_run(graph, random_samples(graph), config))
    assert depth * left * right <= 2**31 - 1 < depth * (left + 1) * (right + 1)
    if lhs_bits == rhs_bits:
        assert left == right
    else:
        assert min(left, right) == 127


@pytest.mark.parametrize("constants", ["lhs", "rhs"])
def test_a_constant_operand_loses_bits_before_it_is_stored(constants: str) -> None:
    lhs, rhs = RNG.standard_normal((1, 4, 64)), RNG.standard_normal((1, 64, 5))
    outcome = product(BatchDot(), lhs, rhs, constants, weight={"bits": 16}, bits=16)
    assert outcome.relative_error < 2.0**-8
    assert len(outcome.integer.notes) == 2
    (accumulator,) = [s for s in outcome.integer.graph.operators if s.op == "batch_dot"]
    stored = outcome.integer.graph.parameters[accumulator.inputs[["lhs", "rhs"].index(constants)].name]
    assert np.abs(stored).max() == math.isqrt((2**31 - 1) // 64)


def test_all_extreme_operands_that_lose_bits_are_exact() -> None:
    """The sums come to the most that 32 bits hold, and not beyond: `quantize_and_run` checks the bounds."""
    for depth in (2, 3, 4, 255, 256, 257):
        lhs, rhs = np.full((1, 2, depth), 1.0), np.full((1, depth, 2), -1.0)
        outcome = product(BatchDot(), lhs, rhs, bits=16)
        np.testing.assert_allclose(outcome.approximate[0][0], -float(depth), rtol=1e-2)


@pytest.mark.parametrize("operator", [ElemwiseMul(), BroadcastMul()], ids=lambda operator: operator.op)
def test_single_products_of_17_bits(operator: Operator) -> None:
    """Tensors that are never negative reach 65,535, whose square needs 33 bits."""
    builder = GraphBuilder()
    x, y = (builder.input(name, TensorType((2, 50))) for name in "xy")
    graph = builder.graph([builder.apply(operator, [x, y], "z")])
    samples = [{name: np.abs(value) for name, value in feeds.items()} for feeds in random_samples(graph)]
    outcome = quantize_and_run(graph, samples, QuantizationConfig.model_validate({"activation": {"bits": 16}}))
    assert outcome.relative_error < 2.0**-14
    assert factors_of(outcome) == pytest.approx([46340, 46340], abs=1)
    assert any(
        note.startswith(f"z ({operator.op}): x in 46340 steps instead of 65535") for note in outcome.integer.notes
    )


def test_compiled_products_of_rounded_operands_are_the_evaluated_ones() -> None:
    outcome = product(BatchDot(), RNG.standard_normal((2, 5, 64)), RNG.standard_normal((2, 64, 6)), bits=16)
    assert_compiled_alike(outcome.integer)


def test_what_fits_in_no_way_is_refused_by_name() -> None:
    """2^31 products of -1, 0 and 1."""
    depth = 2**31
    builder = GraphBuilder()
    operands = [
        builder.input("lhs", TensorType((1, 1, depth))),
        builder.input("rhs", TensorType((1, depth, 1))),
    ]
    graph = builder.graph([builder.apply(BatchDot(), operands, "y")])
    ranges = dict.fromkeys(("lhs", "rhs", "y"), Range(-1.0, 1.0))
    with pytest.raises(QuantizationError, match=r"y \(batch_dot\): its sums of 2147483648 products .* lhs and rhs"):
        expand_graph(graph, ranges, QuantizationConfig())
