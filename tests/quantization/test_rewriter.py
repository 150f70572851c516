"""The integer graph in its text form, and the rules by which the plan chooses scales."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.calibration import Range
from mrt.errors import ConfigError, QuantizationError
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import make_plan
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from tests.quantization.networks import chain

WEIGHT = np.array([[[[1.0]], [[-0.5]]], [[[0.25]], [[0.0]]]])
BIAS = np.array([0.5, -0.25]).reshape(1, 2, 1, 1)
GRAPH = chain(
    (1, 2, 2, 2),
    (Convolution(kernel=(1, 1), num_filter=2, no_bias=True), [WEIGHT]),
    (BroadcastAdd(), [BIAS]),
    (Relu(), []),
    (Convolution(kernel=(2, 2), num_filter=1, no_bias=True), [np.ones((1, 2, 2, 2))]),
)
RANGES = {
    "x": Range(-2.0, 1.0),
    "s0": Range(-3.0, 3.0),
    "s1": Range(-2.5, 3.5),
    "s2": Range(0.0, 3.1875),
    "s3": Range(0.0, 12.0),
}
GOLDEN = """\
graph(%x : int8[1, 2, 2, 2]) {
  @p0_0 : int8[2, 2, 1, 1] = [[[[127]], [[-63]]], [[[127]], [[0]]]] from s0
  @p1_0 : int16[1, 2, 1, 1] = [[[[4032]], [[-8064]]]] from s1
  @s2_frac : int16[1, 2, 1, 1] = [[[[20804]], [[20804]]]] from s2
  @s2_shifted_by : int8[1, 2, 1, 1] = [[[[21]], [[23]]]] from s2
  @p3_0 : int8[1, 2, 2, 2] from s3
  @s3_frac : int16[1, 1, 1, 1] = [[[[8807]]]] from s3
  @s3_shifted_by : int8[1, 1, 1, 1] = [[[[15]]]] from s3
  %s0 : int32[1, 2, 2, 2] = Convolution(%x, @p0_0) {kernel = (1, 1), num_filter = 2, no_bias = True}
  %s1 : int32[1, 2, 2, 2] = broadcast_add(%s0, @p1_0)
  %s2 : int32[1, 2, 2, 2] = relu(%s1)
  %s2_scaled : int32[1, 2, 2, 2] = broadcast_mul(%s2, @s2_frac) from s2
  %s2_shifted : int32[1, 2, 2, 2] = right_shift(%s2_scaled, @s2_shifted_by) from s2
  %s2_clip : int32[1, 2, 2, 2] = clip(%s2_shifted) {a_min = 0.0, a_max = 255.0} from s2
  %s2_uint8 : uint8[1, 2, 2, 2] = Cast(%s2_clip) {dtype = 'uint8'} from s2
  %s3 : int32[1, 1, 1, 1] = Convolution(%s2_uint8, @p3_0) {kernel = (2, 2), num_filter = 1, no_bias = True}
  %s3_scaled : int32[1, 1, 1, 1] = broadcast_mul(%s3, @s3_frac) from s3
  %s3_shifted : int32[1, 1, 1, 1] = right_shift(%s3_scaled, @s3_shifted_by) from s3
  %s3_clip : int32[1, 1, 1, 1] = clip(%s3_shifted) {a_min = 0.0, a_max = 32767.0} from s3
  %s3_int16 : int16[1, 1, 1, 1] = Cast(%s3_clip) {dtype = 'int16'} from s3
  return %s3_int16
}"""


def test_an_accumulator_stays_wide_until_it_is_rescaled_once() -> None:
    integer = expand_graph(GRAPH, RANGES, QuantizationConfig())
    assert str(integer.graph) == GOLDEN


def test_the_multiplier_is_exact() -> None:
    """The weight's scale absorbs the rounding: accumulator scale over activation scale is frac * 2^-shift."""
    integer = expand_graph(GRAPH, RANGES, QuantizationConfig())
    ratio = integer.scales["s0"] / integer.scales["s2_uint8"]
    frac, shift = (integer.graph.parameters[name].astype(np.float64) for name in ("s2_frac", "s2_shifted_by"))
    np.testing.assert_allclose(ratio, frac * 2.0**-shift, rtol=1e-12)


def test_a_tensor_that_is_never_negative_uses_one_bit_more() -> None:
    plan = make_plan(GRAPH, RANGES, QuantizationConfig())
    assert (plan.tensors["s2"].own.lo, plan.tensors["s2"].own.hi) == (0, 255)
    assert (plan.tensors["s1"].own.lo, plan.tensors["s1"].own.hi) == (-127, 127)
    assert plan.tensors["s2"].own.scale == pytest.approx(3.1875 / 255)


def test_a_residual_sum_is_four_bits_finer_than_what_reads_it() -> None:
    builder = GraphBuilder()
    a, b = (builder.input(name, TensorType((1, 4))) for name in "ab")
    total = builder.apply(ElemwiseAdd(), [a, b], "total")
    weight = builder.parameter("w", np.eye(4, dtype=np.float32))
    graph = builder.graph([builder.apply(FullyConnected(4, no_bias=True), [total, weight], "y")])
    ranges = {name: Range(-4.0, 4.0) for name in ("a", "b", "total", "y")}
    plan = make_plan(graph, ranges, QuantizationConfig())
    assert plan.tensors["total"].common_scale * 16 == pytest.approx(plan.tensors["total"].own.scale)
    integer = expand_graph(graph, ranges, QuantizationConfig())
    assert integer.graph.parameters["total_shifted_by"].tolist() == [[4]]
    assert "total_frac" not in integer.graph.parameters


def test_a_missing_range_is_named() -> None:
    with pytest.raises(QuantizationError, match=r"x \(null\) has no range; calibrate it first"):
        expand_graph(GRAPH, {k: v for k, v in RANGES.items() if k != "x"}, QuantizationConfig())


def test_an_infinite_range_is_named() -> None:
    with pytest.raises(QuantizationError, match="s1"):
        expand_graph(GRAPH, RANGES | {"s1": Range(0.0, float("inf"))}, QuantizationConfig())


def test_an_override_that_matches_nothing_is_named() -> None:
    config = QuantizationConfig.model_validate({"overrides": {"no_such": {"activation": {"bits": 4}}}})
    with pytest.raises(ConfigError, match=r"quantize.overrides.no_such matches no symbol"):
        expand_graph(GRAPH, RANGES, config)
