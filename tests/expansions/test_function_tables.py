"""Functions as tables: within the stated error of float, for every function, quantizer and width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from expansions.table import FEW_ENTRIES
from mrt.calibration import Range
from mrt.errors import QuantizationError
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.functions import (
    Abs,
    Ceil,
    Erf,
    Exp,
    Floor,
    HardSigmoid,
    Log,
    Mish,
    Negative,
    PowerScalar,
    Reciprocal,
    Rint,
    Round,
    RoundHalfEven,
    Rsqrt,
    Sign,
    Silu,
    Softrelu,
    Softsign,
    Sqrt,
    Square,
    Trunc,
)
from mrt.symbol.operators.hyperbolic import Arccos, Arccosh, Arcsin, Arcsinh, Arctan, Arctanh, Cosh, Sinh
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.periodic import Cos, Sin, Tan
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.region import ElementwiseRegion
from mrt.symbol.operators.scalar import RDivScalar
from mrt.symbol.operators.table import TableLookup
from mrt.symbol.operators.transform import Reshape, SliceAxis, Transpose
from mrt.symbol.parabolas import parabolas_of
from tests.compiled_integers import assert_compiled_alike
from tests.expansions.one_function import configured, ranges, run, steepest
from tests.expansions.trained_graphs import fake_quantize
from tests.matrix import QUANTIZERS
from tests.quantization.networks import Outcome, chain, quantize_and_run, random_samples

SIGNED = (-3.0, 4.5)
POSITIVE = (0.25, 6.0)
CURVE = "elemwise_mul(x, sigmoid(_mul_scalar(x, scalar=1.702)))"

TABLES: list[tuple[Operator, tuple[float, float]]] = [
    (Sigmoid(), SIGNED),
    (Tanh(), SIGNED),
    (Exp(), SIGNED),
    (Cos(), SIGNED),
    (Sin(), SIGNED),
    (Tan(), (-0.8, 0.9)),
    (Arcsin(), (-1.0, 1.0)),
    (Arccos(), (-1.0, 1.0)),
    (Arctan(), SIGNED),
    (Arcsinh(), SIGNED),
    (Arccosh(), (1.0, 6.0)),
    (Arctanh(), (-0.6, 0.7)),
    (Sinh(), SIGNED),
    (Cosh(), SIGNED),
    (Erf(), SIGNED),
    (Softsign(), SIGNED),
    (HardSigmoid(), SIGNED),
    (Softrelu(), SIGNED),
    (Silu(), SIGNED),
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


def rounding_of(integer: IntegerGraph) -> float:
    """e, by how much an entry may be off: sy / 2, and of long tables 2^-14 of what they span."""
    (table,) = integer.graph.parameters.values()
    moved = (int(table.max()) - int(table.min()) + 1) * 2.0**-14 if table.size > FEW_ENTRIES else 0.0
    return integer.outputs[0].step * (0.5 + moved)


@pytest.mark.parametrize("bits", [4, 8, 12, 16])
@pytest.mark.parametrize(("operator", "ends"), TABLES, ids=named)
def test_the_error_is_within_the_stated_bound(operator: Operator, ends: tuple[float, float], bits: int) -> None:
    """|y - f(x)| <= e + L sx / 2, with L from finite differences of f over the calibrated range.

    Quantizers serve in turn, each at two widths of a function.
    """
    quantizer = QUANTIZERS[(TABLES.index((operator, ends)) + bits // 4) % 2]
    x = np.linspace(*ends, 4001).astype(np.float32)[None]
    graph = chain(x.shape, (operator, []))
    integer = expand_graph(graph, ranges(graph, x), configured(quantizer, bits))
    assert [symbol.op for symbol in integer.graph.operators] == [TableLookup.op]
    lipschitz = steepest(operator, ends)
    # Float32 inputs are divided by a float32 scale: the nearest integer is missed by a rounding.
    bound = rounding_of(integer) + lipschitz * integer.inputs[0][1].scale * (0.5 + 2.0**-7)
    assert np.abs(run(integer, x) - operator.evaluate(x)).max() <= bound


def test_long_tables_lie_on_parabolas_but_where_the_network_rounds() -> None:
    """What reads a sigmoid of 16 bits rounds it to 4,096 levels itself, in one network of two."""
    x = np.linspace(-6, 6, 4001).astype(np.float32)[None]
    for is_rounded in (False, True):
        builder = GraphBuilder()
        data = fake_quantize(builder, builder.input("x", TensorType(x.shape)), (-6.0, 6 - 6 * 2.0**-15), 2**16, "x_q")
        value = builder.apply(Sigmoid(), [data], "sigmoid")
        graph = builder.graph([fake_quantize(builder, value, (0.0, 1.0), 2**12, "y") if is_rounded else value])
        integer = expand_graph(graph, ranges(graph, x), configured("symmetric", 16))
        (table,) = (value for value in integer.graph.parameters.values() if value.size > 2**15)
        assert (parabolas_of(table) is None) is is_rounded
        if is_rounded:
            reals = 6 * 2.0**-15 * np.arange(-(2**15), 2**15)
            assert len(np.unique(table - np.rint(4095 * Sigmoid().evaluate(reals)))) == 1


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("operator", [Floor(), Ceil(), Trunc(), Round(), Rint(), RoundHalfEven(), Sign()], ids=named)
def test_functions_that_jump_have_a_value_from_nearby(operator: Operator, bits: int, quantizer: str) -> None:
    """Between the function at x - sx / 2 and at x + sx / 2, but for half a step of the output."""
    x = np.concatenate([np.linspace(-6, 7, 2001), np.arange(-12, 15) / 2]).astype(np.float32)[None]
    graph = chain(x.shape, (operator, []))
    integer = expand_graph(graph, ranges(graph, x), configured(quantizer, bits))
    assert [symbol.op for symbol in integer.graph.operators] == [TableLookup.op]
    half = integer.inputs[0][1].scale * (0.5 + 2.0**-7)
    found, rounding = run(integer, x), integer.outputs[0].step * (0.5 + 2.0**-10)
    assert (operator.evaluate(x - half) - rounding <= found).all()
    assert (found <= operator.evaluate(x + half) + rounding).all()


@pytest.mark.parametrize(("bits", "entries"), [(4, 16), (8, 256), (16, 65536)])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_tables_have_an_entry_for_each_integer(bits: int, entries: int, quantizer: str) -> None:
    x = np.linspace(-4, 4, 101).astype(np.float32)[None]
    graph = chain(x.shape, (Tanh(), []))
    integer = expand_graph(graph, ranges(graph, x), configured(quantizer, bits))
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
    integer = expand_graph(graph, {"x": Range(-2.0, 2.0), "s0": Range(-3.0, 0.7)}, configured())
    found = run(integer, x)
    np.testing.assert_allclose(found[0, 20:], np.log(x[0, 20:]), atol=0.1)
    np.testing.assert_allclose(found[0, :20], -3.0, atol=0.05)


def test_a_function_without_any_value_is_refused() -> None:
    graph = chain((1, 4), (ElementwiseRegion("log(_minus_scalar(x, scalar=100))"), []))
    with pytest.raises(QuantizationError, match=r"s0 \(elementwise_region\): the function has no value anywhere"):
        expand_graph(graph, {"x": Range(-1.0, 1.0), "s0": Range(-1.0, 1.0)}, configured())


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-40, 1e30])
@pytest.mark.parametrize("make", [Sigmoid, Tanh, Exp, Softrelu, Silu])
def test_constant_tensors(value: float, make: Callable[[], Operator]) -> None:
    graph = chain((1, 4), (make(), []))
    x = np.full((1, 4), value, np.float32)
    found = {s.name: v for s, v in graph.walk({"x": x})}["s0"]
    top = float(np.nan_to_num(found, posinf=1e30).max())
    integer = expand_graph(graph, {"x": Range(value, value), "s0": Range(top, top)}, configured())
    assert np.isfinite(run(integer, x)).all()
    np.testing.assert_allclose(run(integer, x), top, rtol=1e-2, atol=1e-30)


FLAT: list[tuple[Operator, tuple[float, float], tuple[float, float]]] = [
    # The function, the calibrated range, and between which values it has not yet come within half a step of its ends.
    (Tanh(), (-80.0, 80.0), (-math.atanh(1 - 1 / 254), math.atanh(1 - 1 / 254))),
    (Sigmoid(), (-80.0, 60.0), (-math.log(509), math.log(509))),
    (Erf(), (-80.0, 1.0), (-2.04, 1.0)),
    (HardSigmoid(), (-80.0, 80.0), (-2.5, 2.5)),
    (HardSigmoid(alpha=-2.0), (-80.0, 80.0), (-0.25, 0.25)),
    (LeakyReLU(act_type="gelu"), (-80.0, 2.0), (-3.0, 2.0)),
    (ElementwiseRegion("_plus_scalar(_mul_scalar(tanh(x), scalar=0.5), scalar=0.5)"), (-80.0, 80.0), (-2.8, 3.2)),
]


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize(("operator", "ends", "varies"), FLAT, ids=named)
def test_the_input_covers_only_where_the_function_varies(
    operator: Operator, ends: tuple[float, float], varies: tuple[float, float], bits: int, quantizer: str
) -> None:
    """The error keeps to e + L sx / 2 over the whole range, with the step of the part that is covered."""
    x = np.concatenate([np.linspace(*ends, 4001), np.linspace(*varies, 4001)]).astype(np.float32)[None]
    graph = chain(x.shape, (operator, []))
    integer = expand_graph(graph, ranges(graph, x), configured(quantizer, bits, bits))
    lipschitz = steepest(operator, ends)
    step = integer.inputs[0][1].scale
    bound = rounding_of(integer) + lipschitz * step * (0.5 + 2.0**-7)
    assert np.abs(run(integer, x) - operator.evaluate(x)).max() <= bound
    whole = 2 * max(map(abs, ends)) if quantizer == "symmetric" else ends[1] - ends[0]
    assert step < whole / 2**bits / 3
    if bits == 8:
        covered = 2 * max(map(abs, varies)) if quantizer == "symmetric" else varies[1] - varies[0]
        assert step < 1.2 * covered / 2**bits


@pytest.mark.parametrize("operator", [Exp(), Log(), Sqrt(), Softrelu(), PowerScalar(3), Silu()], ids=named)
def test_functions_that_vary_everywhere_cover_everything(operator: Operator) -> None:
    ends = (0.25, 6.0)
    x = np.linspace(*ends, 1001).astype(np.float32)[None]
    graph = chain(x.shape, (operator, []))
    integer = expand_graph(graph, ranges(graph, x), configured("symmetric"))
    assert integer.inputs[0][1].scale == pytest.approx(6.0 / 255, 0.02)


def wide_layer(*readers: Operator, arrange: Sequence[Operator] = ()) -> Graph:
    """A layer of values up to about 100 in 32 units, rearranged, which all of `readers` read."""
    builder = GraphBuilder()
    weight = builder.parameter("weight", (20 * np.random.default_rng(1).standard_normal((32, 8))).astype(np.float32))
    x = builder.input("x", TensorType((1, 8)))
    layer = builder.apply(FullyConnected(num_hidden=32, no_bias=True), [x, weight], "layer")
    for operator in arrange:
        layer = builder.apply(operator, [layer])
    return builder.graph([builder.apply(operator, [layer]) for operator in readers])


CENTRED_16 = {"overrides": {"x": {"activation": {"bits": 16}}, "layer": {"weight": {"bits": 16}}}}


def worst_errors(graph: Graph) -> tuple[Outcome, list[float]]:
    """The largest error of each output, the layer itself being all but exact."""
    outcome = quantize_and_run(graph, random_samples(graph, 40), QuantizationConfig.model_validate(CENTRED_16))
    errors = np.array(
        [
            [np.abs(a - r).max() for r, a in zip(*outputs, strict=True)]
            for outputs in zip(outcome.real, outcome.approximate, strict=True)
        ]
    )
    return outcome, list(errors.max(axis=0))


@pytest.mark.parametrize(
    "arrange",
    [(), (Reshape(shape=(1, 4, 8)), Transpose(axes=(0, 2, 1))), (SliceAxis(axis=1, begin=3, end=20),), (Relu(),)],
    ids=str,
)
def test_accumulators_saturate_where_a_function_is_flat(arrange: Sequence[Operator]) -> None:
    """Over the whole range 8 bits would leave steps of about 1, and errors of about 1/2."""
    _, errors = worst_errors(wide_layer(Tanh(), arrange=arrange))
    assert errors[0] < 1 / 254 + 6 / 127 / 2 + 0.004


def test_a_sign_is_told_from_the_accumulator() -> None:
    """All but the smallest values have their own sign, which 8 bits over the whole range would not tell."""
    outcome, _ = worst_errors(wide_layer(Sign()))
    real = np.concatenate([sample[0] for sample in outcome.real])
    found = np.concatenate([sample[0] for sample in outcome.approximate])
    assert np.mean(np.abs(found - real) > 1e-3) < 0.002


def test_each_reader_of_a_tensor_gets_what_it_tells_apart() -> None:
    """relu and the output read the layer in full, tanh and sigmoid where either of them varies:
    within +-12 at the 16 bits of the outputs."""
    graph = wide_layer(Tanh(), Relu(), Sigmoid())
    graph = graph.with_outputs([*graph.outputs, graph.by_name["layer"]])
    outcome, errors = worst_errors(graph)
    largest = max(float(np.abs(sample[3]).max()) for sample in outcome.real)
    assert largest > 80
    assert max(errors[0], errors[2]) < 1 / 254 + 12 / 127 / 2 + 0.004
    # A second form of an accumulator takes a multiplier of 8 bits, which is off by 2^-9 at most.
    assert max(errors[1], errors[3]) < largest * 2.0**-9


def test_a_reader_that_needs_all_gets_all() -> None:
    """The mean reads at 8 bits as well, and one form serves both."""
    graph = wide_layer(Tanh(), Sum(axis=(1,)))
    outcome, errors = worst_errors(graph)
    largest = max(float(np.abs(sample[1]).max()) for sample in outcome.real)
    assert errors[1] < 32 * 0.6 and largest > 100


def test_sums_keep_room_before_a_function_that_is_all_but_a_jump() -> None:
    """The quantizer of the sum is not made so fine that the operands, which all but cancel, saturate before it."""
    builder = GraphBuilder()
    a, b = (builder.input(name, TensorType((1, 500))) for name in "ab")
    total = builder.apply(ElemwiseAdd(), [a, b], "sum")
    graph = builder.graph([builder.apply(HardSigmoid(alpha=1e6), [total], "y")])
    random = np.random.default_rng(4)
    x = random.uniform(-80, 80, (1, 500)).astype(np.float32)
    samples = [{"a": x, "b": (-x + random.choice([-3, 3], (1, 500))).astype(np.float32)}]
    config = QuantizationConfig.model_validate({"activation": {"bits": 8}})
    outcome = quantize_and_run(graph, samples, config)
    assert outcome.relative_error < 0.01


def test_compiled_tables_behind_saturation_are_the_evaluated_ones() -> None:
    outcome, _ = worst_errors(wide_layer(Tanh(), Relu(), Sigmoid()))
    assert_compiled_alike(outcome.integer)


def test_a_table_that_would_be_too_large_is_refused() -> None:
    """An integer input of 32 bits is narrowed to what its own quantizer says first."""
    graph = chain((1, 4), (Tanh(), []))
    config = QuantizationConfig.model_validate({"inputs": {"x": {"scale": 1e-5, "zero_point": 0, "dtype": "int32"}}})
    with pytest.raises(QuantizationError, match=r"s0 \(tanh\): a table of \d+ entries would be needed, 65536 are"):
        expand_graph(graph, {"x": Range(-1.0, 1.0), "s0": Range(-1.0, 1.0)}, config)
