"""Functions as tables: within the stated error of float, for every function, quantizer and width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mrt.calibration import Threshold
from mrt.errors import QuantizationError
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.rewriter import IntegerGraph, expand_graph
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.functions import (
    Abs,
    Erf,
    Exp,
    HardSigmoid,
    HardSwish,
    Log,
    Mish,
    Negative,
    PowerScalar,
    Reciprocal,
    Rsqrt,
    Silu,
    Softrelu,
    Softsign,
    Sqrt,
    Square,
)
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.region import ElementwiseRegion
from mrt.symbol.operators.scalar import RDivScalar
from mrt.symbol.operators.table import TableLookup
from tests.quantization.networks import chain, quantize_and_run, random_samples

SIGNED = (-3.0, 4.5)
POSITIVE = (0.25, 6.0)
CURVE = "elemwise_mul(x, sigmoid(_mul_scalar(x, scalar=1.702)))"

TABLES: list[tuple[Operator, tuple[float, float]]] = [
    (Sigmoid(), SIGNED),
    (Tanh(), SIGNED),
    (Exp(), SIGNED),
    (Erf(), SIGNED),
    (Softsign(), SIGNED),
    (HardSigmoid(), SIGNED),
    (Softrelu(), SIGNED),
    (Silu(), SIGNED),
    (HardSwish(), SIGNED),
    (Mish(), SIGNED),
    (PowerScalar(3), SIGNED),
    (LeakyReLU(act_type="elu", slope=1.0), SIGNED),
    (LeakyReLU(act_type="selu"), SIGNED),
    (LeakyReLU(act_type="gelu"), SIGNED),
    (LeakyReLU(act_type="gelu_tanh"), SIGNED),
    (ElementwiseRegion(CURVE), SIGNED),
    (Log(), POSITIVE),
    (Sqrt(), POSITIVE),
    (Rsqrt(), POSITIVE),
    (Reciprocal(), POSITIVE),
    (RDivScalar(-2.0), POSITIVE),
    (PowerScalar(-1.5), POSITIVE),
]


def named(case: object) -> str:
    return f"{case.op}-{case.attributes()}" if isinstance(case, Operator) else ""


def configured(quantizer: str = "symmetric", bits: int = 8) -> QuantizationConfig:
    return QuantizationConfig.model_validate({"activation": {"quantizer": quantizer, "bits": bits}})


def thresholds(graph: Graph, x: np.ndarray) -> dict[str, Threshold]:
    values = {symbol.name: value for symbol, value in graph.walk({"x": x})}
    return {name: Threshold(float(v.min()), float(v.max())) for name, v in values.items()}


def run(integer: IntegerGraph, x: np.ndarray) -> np.ndarray:
    """The real values that the integer graph gives for real inputs."""
    (symbol, target), output = integer.inputs[0], integer.outputs[0]
    integers = np.clip(np.rint(x / np.float32(target.scale)) + target.zero_point, target.lo, target.hi)
    (found,) = integer.graph.evaluate({"x": integers.astype(symbol.dtype)})
    return output.step * (found.astype(np.float64) - output.zero_point)


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [4, 8, 12, 16])
@pytest.mark.parametrize(("operator", "ends"), TABLES, ids=named)
def test_the_error_is_within_the_stated_bound(
    operator: Operator, ends: tuple[float, float], bits: int, quantizer: str
) -> None:
    """|y - f(x)| <= sy / 2 + L sx / 2, with L from finite differences of f over the calibrated range."""
    x = np.linspace(*ends, 4001).astype(np.float32)[None]
    graph = chain(x.shape, (operator, []))
    integer = expand_graph(graph, thresholds(graph, x), configured(quantizer, bits))
    assert [symbol.op for symbol in integer.graph.operators] == [TableLookup.op]
    dense = np.linspace(*ends, 400_001)
    lipschitz = np.abs(np.diff(operator.evaluate(dense)) / np.diff(dense)).max()
    # Float32 inputs are divided by a float32 scale: the nearest integer is missed by a rounding.
    bound = integer.outputs[0].step / 2 + lipschitz * integer.inputs[0][1].scale * (0.5 + 2.0**-7)
    assert np.abs(run(integer, x) - operator.evaluate(x)).max() <= bound


@pytest.mark.parametrize(("bits", "entries"), [(4, 16), (8, 256), (16, 65536)])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_tables_have_an_entry_for_each_integer(bits: int, entries: int, quantizer: str) -> None:
    x = np.linspace(-4, 4, 101).astype(np.float32)[None]
    graph = chain(x.shape, (Tanh(), []))
    integer = expand_graph(graph, thresholds(graph, x), configured(quantizer, bits))
    (table,) = integer.graph.parameters.values()
    assert table.size == (entries if quantizer == "affine" else entries - 1)


@pytest.mark.parametrize("operator", [Abs(), Negative(), Square()], ids=named)
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [8, 16])
def test_exact_functions(operator: Operator, quantizer: str, bits: int) -> None:
    graph = chain((1, 3, 5), (operator, []))
    samples = random_samples(graph)
    outcome = quantize_and_run(graph, samples, configured(quantizer, bits))
    assert TableLookup.op not in outcome.integer.graph.count_operators()
    assert outcome.relative_error < 4 * 2.0**-bits


def test_a_table_between_layers_is_at_its_own_quantizer() -> None:
    weight = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)
    layer = FullyConnected(num_hidden=6, no_bias=True)
    graph = chain((1, 6), (layer, [weight]), (LeakyReLU(act_type="gelu"), []), (layer, [weight]))
    outcome = quantize_and_run(graph, random_samples(graph, 8))
    (table,) = [s for s in outcome.integer.graph.operators if s.op == TableLookup.op]
    assert table.dtype == "int8" and table.inputs[0].dtype == "int8"
    assert outcome.relative_error < 0.04


def test_a_table_before_a_sum_is_as_fine_as_the_sum() -> None:
    builder = GraphBuilder()
    a, b = (builder.input(name, TensorType((1, 64))) for name in "ab")
    total = builder.apply(ElemwiseAdd(), [builder.apply(Tanh(), [a], "tanh"), b], "sum")
    graph = builder.graph([builder.apply(Relu(), [total], "y")])
    outcome = quantize_and_run(graph, random_samples(graph))
    (table,) = [s for s in outcome.integer.graph.operators if s.op == TableLookup.op]
    assert table.dtype == "int16"
    assert outcome.relative_error < 0.02


def test_infinite_values_saturate_and_values_outside_the_domain_are_the_nearest() -> None:
    """The symmetric input reaches below 0, where log has no value and at 0 minus infinity."""
    x = np.concatenate([np.linspace(-2, -0.1, 20), np.linspace(0.1, 2, 20)]).astype(np.float32)[None]
    graph = chain(x.shape, (Log(), []))
    integer = expand_graph(graph, {"x": Threshold(-2.0, 2.0), "s0": Threshold(-3.0, 0.7)}, configured())
    found = run(integer, x)
    np.testing.assert_allclose(found[0, 20:], np.log(x[0, 20:]), atol=0.1)
    np.testing.assert_allclose(found[0, :20], -3.0, atol=0.05)


def test_a_function_without_any_value_is_refused() -> None:
    graph = chain((1, 4), (ElementwiseRegion("log(_minus_scalar(x, scalar=100))"), []))
    with pytest.raises(QuantizationError, match=r"s0 \(elementwise_region\): the function has no value anywhere"):
        expand_graph(graph, {"x": Threshold(-1.0, 1.0), "s0": Threshold(-1.0, 1.0)}, configured())


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-40, 1e30])
@pytest.mark.parametrize("make", [Sigmoid, Tanh, Exp, Softrelu, Silu])
def test_constant_tensors(value: float, make: Callable[[], Operator]) -> None:
    graph = chain((1, 4), (make(), []))
    x = np.full((1, 4), value, np.float32)
    found = {s.name: v for s, v in graph.walk({"x": x})}["s0"]
    top = float(np.nan_to_num(found, posinf=1e30).max())
    integer = expand_graph(graph, {"x": Threshold(value, value), "s0": Threshold(top, top)}, configured())
    assert np.isfinite(run(integer, x)).all()
    np.testing.assert_allclose(run(integer, x), top, rtol=1e-2, atol=1e-30)


def test_a_table_that_would_be_too_large_is_refused() -> None:
    """An integer input of 32 bits is narrowed to what its own quantizer says first."""
    graph = chain((1, 4), (Tanh(), []))
    config = QuantizationConfig.model_validate({"inputs": {"x": {"scale": 1e-5, "zero_point": 0, "dtype": "int32"}}})
    with pytest.raises(QuantizationError, match=r"s0 \(tanh\): a table of \d+ entries would be needed, 65536 are"):
        expand_graph(graph, {"x": Threshold(-1.0, 1.0), "s0": Threshold(-1.0, 1.0)}, config)
