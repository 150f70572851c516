"""Bounds of every operator hold what it gives, for random intervals of every granularity and inputs at their ends."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from applied import draw, holds, random_interval, run

from mrt.errors import QuantizationError
from mrt.symbol import GraphBuilder, Interval, Operator, TensorType
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.operator import registered_operators
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.arrangement import DepthToSpace, Repeat, SliceLike, SpaceToDepth, SwapAxis, Tile, UpSampling
from mrt.symbol.operators.bitwise import BitwiseAnd
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul, BroadcastSub
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.finite import IsInf, IsNan
from mrt.symbol.operators.functions import (
    Abs,
    Ceil,
    Erf,
    Exp,
    Floor,
    HardSigmoid,
    HardSwish,
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
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.integer import Cast, Dequantize, LeftShift, Quantize, RightShift
from mrt.symbol.operators.integer_math import FloorDivide, FloorMod, IntegerSqrt
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import BatchNorm, Dropout, Identity, LayerNorm, LogSoftmax, Softmax
from mrt.symbol.operators.ordering import TopK
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.periodic import Cos, ModScalar, Sin, Tan
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.region import ElementwiseRegion
from mrt.symbol.operators.round_to_grid import RoundToGrid
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, MulScalar, PlusScalar, RDivScalar, RMinusScalar
from mrt.symbol.operators.selection import (
    ArgMax,
    ArgMin,
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    Embedding,
    MaximumScalar,
    Min,
    MinimumScalar,
    Where,
)
from mrt.symbol.operators.state import Assign
from mrt.symbol.operators.table import TableLookup
from mrt.symbol.operators.transform import (
    Concat,
    ExpandDims,
    Flatten,
    Reshape,
    Slice,
    SliceAxis,
    Squeeze,
    Take,
    Transpose,
)
from mrt.symbol.symbol import Variable

A = (2, 3, 4, 5)


@dataclass(frozen=True)
class Case:
    """An operator, the shapes of its inputs, and the values that some of them keep to."""

    operator: Operator
    shapes: tuple[tuple[int, ...], ...] = (A,)
    limits: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The lowest and the highest value of an input, where not any will do."""

    def __str__(self) -> str:
        return f"{self.operator} {self.shapes}"


BOTH = [
    Case(Relu()),
    Case(Clip(a_min=-3, a_max=7)),
    Case(Clip(a_min=-1e30, a_max=2.5)),
    Case(Abs()),
    Case(Negative()),
    Case(Square()),
    Case(ElemwiseAdd(), (A, A)),
    Case(ElemwiseSub(), (A, A)),
    Case(ElemwiseMul(), (A, A)),
    Case(AddN(), (A, A, A)),
    Case(BroadcastAdd(), (A, (3, 1, 1))),
    Case(BroadcastSub(), ((4, 1), A)),
    Case(BroadcastMul(), (A, (1,))),
    Case(BroadcastMul(), ((), A)),
    Case(PlusScalar(3)),
    Case(MinusScalar(3)),
    Case(RMinusScalar(-2)),
    Case(MulScalar(-3)),
    Case(Convolution(kernel=(2, 3), num_filter=6, num_group=3, pad=(1, 0), no_bias=True), (A, (6, 1, 2, 3))),
    Case(Convolution(kernel=(2, 3), num_filter=2, stride=(2, 1)), (A, (2, 3, 2, 3), (2,))),
    Case(FullyConnected(num_hidden=2), (A, (2, 60), (2,))),
    Case(FullyConnected(num_hidden=2, flatten=False, no_bias=True), (A, (2, 5))),
    Case(BatchDot(transpose_b=True), (A, A)),
    Case(Dot(), ((4, 5), (5, 3))),
    Case(Dot(transpose_a=True, transpose_b=True), ((5, 4), (3, 5))),
    Case(Pooling(kernel=(2, 2), pad=(1, 1))),
    Case(Pooling(kernel=(3, 2), pool_type="sum", pad=(1, 0), pooling_convention="full", stride=(2, 2))),
    Case(Pooling(pool_type="sum", global_pool=True)),
    Case(Pad(pad_width=(0, 0, 1, 0, 2, 1, 0, 3), constant_value=-5)),
    Case(Pad(pad_width=(0, 0, 1, 0, 2, 1, 0, 3), mode="edge")),
    Case(Pad(pad_width=(0, 0, 1, 0, 2, 1, 0, 3), mode="reflect")),
    Case(Dropout()),
    Case(Identity()),
    Case(Concat(dim=1), (A, (2, 1, 4, 5), A)),
    Case(Concat(dim=-1), (A, (2, 3, 4, 1))),
    Case(Flatten()),
    Case(Reshape(shape=(0, -1, 6))),
    Case(Reshape(shape=(-3, -2))),
    Case(Transpose(axes=(0, 2, 3, 1))),
    Case(Transpose()),
    Case(ExpandDims(axis=2)),
    Case(Squeeze(axis=(1, -1)), ((2, 1, 4, 1),)),
    Case(Slice(begin=(None, 2, -1), end=(None, None, None), step=(None, None, -2))),
    Case(SliceAxis(axis=1, begin=-2, end=None)),
    Case(Take(axis=2), (A, (2, 2)), {1: (-1, 4)}),
    Case(Take(axis=-1, mode="wrap"), (A, ()), {1: (-9, 9)}),
    Case(Sum(axis=(1, 3))),
    Case(Sum(keepdims=True)),
    Case(Sum()),
    Case(Max(axis=(1,), exclude=True)),
    Case(Max(axis=(-1,), keepdims=True)),
    *(Case(operator) for operator in (Min(axis=(1,), exclude=True), Min(axis=(-1,), keepdims=True))),
    *(Case(operator) for operator in (ArgMax(axis=1), TopK(axis=1, k=2, ret_typ="value"))),
    Case(ArgMin(keepdims=True)),
    *(Case(operator, (A, A)) for operator in (ElemwiseMaximum(), ElemwiseMinimum())),
    Case(BroadcastMaximum(), (A, (3, 1, 1))),
    Case(BroadcastMinimum(), ((4, 1), A)),
    *(Case(MaximumScalar(3)), Case(MinimumScalar(-3))),
    Case(Where(), (A, A, (3, 1, 1)), {0: (0, 1)}),
    Case(Where(), ((2,), A, A), {0: (-1, 1)}),
    Case(Where(), ((4, 5), (3, 1, 1), A), {0: (-1, 0)}),
    Case(Embedding(input_dim=6, output_dim=3), ((2, 4), (6, 3)), {0: (-2, 7)}),
    Case(SwapAxis(dim1=1, dim2=-1)),
    Case(SliceLike(axes=(1, 3)), (A, (9, 2, 9, 4))),
    Case(Assign(), (A, A, (1, 1, 1, 1))),
    Case(Tile(reps=(2, 1, 3)), (A,)),
    Case(Tile(reps=(2, 1, 1, 3)), ((4, 5),)),
    Case(Repeat(repeats=3, axis=2)),
    Case(Repeat(repeats=2)),
    Case(UpSampling(scale=2)),
    Case(DepthToSpace(block_size=2), ((2, 8, 3, 2),)),
    Case(SpaceToDepth(block_size=2), ((2, 3, 4, 6),)),
    Case(Deconvolution(kernel=(2, 3), num_filter=6, num_group=3, pad=(1, 0)), (A, (3, 2, 2, 3))),
    Case(Deconvolution(kernel=(4, 2), num_filter=2, stride=(2, 3), adj=(1, 2), no_bias=False), (A, (3, 2, 4, 2), (2,))),
    Case(Deconvolution(kernel=(3, 2), num_filter=2, dilate=(2, 1), target_shape=(5, 4)), (A, (3, 2, 3, 2))),
]
INTEGER = [
    Case(RightShift(), (A, (3, 1, 1)), {1: (0, 31)}),
    Case(RightShift(), (A, ()), {1: (0, 3)}),
    Case(LeftShift(), (A, (3, 1, 1)), {1: (0, 9)}),
    Case(TableLookup(offset=20), (A, (41,)), {0: (-20, 20)}),
    Case(IntegerSqrt(), (A,), {0: (0, 9999)}),
    Case(IntegerSqrt(fraction_bits=8), (A,), {0: (0, 9999)}),
    Case(FloorDivide(), (A, (4, 5)), {1: (1, 9)}),
    Case(FloorMod(), (A, (4, 5)), {1: (1, 9)}),
    Case(BitwiseAnd(), ((4, 5), A)),
    Case(Cast(dtype="int16")),
    Case(Cast(dtype="bool")),
    Case(Cast(dtype="float32")),
]
FLOAT = [
    Case(RoundToGrid(), (A, (4, 1))),
    Case(LeakyReLU(slope=0.25)),
    Case(LeakyReLU(slope=-2.0)),
    Case(LeakyReLU(act_type="prelu"), (A, (3,))),
    Case(LeakyReLU(act_type="elu", slope=0.5)),
    Case(LeakyReLU(act_type="selu")),
    Case(LeakyReLU(act_type="gelu")),
    Case(LeakyReLU(act_type="gelu_tanh")),
    Case(Tanh()),
    Case(Sigmoid()),
    Case(Exp()),
    Case(Log(), (A,), {0: (1, 99)}),
    Case(Sqrt(), (A,), {0: (0, 99)}),
    Case(Rsqrt(), (A,), {0: (1, 99)}),
    Case(Reciprocal(), (A,), {0: (1, 99)}),
    Case(Reciprocal(), (A,), {0: (-99, -1)}),
    Case(Cos()),
    *map(Case, (Sin(), Tan(), Arctan(), Arcsinh(), Sinh(), Cosh(), ModScalar(7.0), ModScalar(7.0, truncates=True))),
    *(Case(operator, (A,), {0: (-1, 1)}) for operator in (Arcsin(), Arccos())),
    Case(IsNan()),
    Case(IsInf()),
    Case(Arctanh(), (A,), {0: (0, 0)}),
    *(Case(operator, (A,), {0: (least, 9)}) for operator, least in ((Arccosh(), 1), (ModScalar(-7.0), -9))),
    Case(Erf()),
    Case(Floor()),
    Case(Ceil()),
    Case(Trunc()),
    Case(Round()),
    Case(Rint()),
    Case(RoundHalfEven()),
    Case(Sign()),
    Case(Softsign()),
    Case(HardSigmoid(alpha=0.02)),
    Case(Softrelu()),
    Case(Silu()),
    Case(HardSwish()),
    Case(Mish()),
    Case(PowerScalar(3.0)),
    Case(PowerScalar(0.5), (A,), {0: (0, 99)}),
    Case(PowerScalar(-2.0), (A,), {0: (1, 99)}),
    Case(ElementwiseRegion("elemwise_mul(x, sigmoid(_mul_scalar(x, scalar=0.25)))")),
    Case(BroadcastDiv(), (A, (3, 1, 1)), {1: (1, 9)}),
    Case(BroadcastDiv(), (A, (3, 1, 1)), {1: (-9, -1)}),
    Case(DivScalar(-4)),
    Case(RDivScalar(-4), (A,), {0: (1, 9)}),
    Case(Pooling(kernel=(2, 2), pool_type="avg", pad=(1, 1))),
    Case(Pooling(kernel=(2, 2), pool_type="avg", pad=(1, 1), count_include_pad=False)),
    Case(Mean(axis=(1, 2))),
    Case(Mean()),
    Case(BatchNorm(fix_gamma=False), (A, (3,), (3,), (3,), (3,)), {4: (0, 9)}),
    Case(BatchNorm(axis=-1), (A, (5,), (5,), (5,), (5,)), {4: (0, 9)}),
    Case(LayerNorm(), (A, (5,), (5,))),
    Case(InstanceNorm(), (A, (3,), (3,))),
    Case(L2Normalization()),
    Case(L2Normalization(mode="channel")),
    Case(L2Normalization(mode="spatial")),
    Case(Softmax(axis=1)),
    Case(LogSoftmax(axis=1)),
    Case(LogSoftmax(temperature=0.5)),
    Case(Cast(dtype="int8")),
    Case(FakeQuantize(levels=16), (A, *((3, 1, 1),) * 4)),
    Case(FakeQuantize(levels=2), (A, (), (), (3, 1, 1), ()), {1: (-20, -10), 2: (5, 30)}),
]


def test_every_operator_is_tested() -> None:
    tested = {type(case.operator) for case in (*BOTH, *INTEGER, *FLOAT)}
    own = {record for record in registered_operators() if record.__module__.startswith("mrt.")}
    assert own - tested == {Variable, Quantize, Dequantize}


@pytest.mark.parametrize("case", [*BOTH, *INTEGER], ids=str)
def test_integer_bounds_hold(case: Case) -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        intervals = _intervals(case, rng)
        bounds = case.operator.bounds(*intervals)
        for _ in range(3):
            value = run(case.operator, *(draw(rng, interval).astype(np.int32) for interval in intervals))
            assert holds(bounds, value)
        for partial in case.operator.intermediates(*intervals):
            assert (partial.min <= bounds.min and partial.max >= bounds.max) or isinstance(case.operator, RightShift)


@pytest.mark.parametrize("case", [*BOTH, *FLOAT], ids=str)
def test_float_bounds_hold(case: Case) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        intervals = [_as_float(interval) for interval in _intervals(case, rng)]
        bounds = case.operator.bounds(*intervals)
        inputs = [draw(rng, _as_integer(interval)).astype(np.float64) for interval in intervals]
        value = case.operator.evaluate(*inputs)
        rounding = 1e-9 * (1 + np.abs(value))
        assert holds(Interval(bounds.lo - rounding, bounds.hi + rounding, bounds.shape), value)


@pytest.mark.parametrize("case", [*BOTH, *FLOAT], ids=str)
@pytest.mark.parametrize(
    "ends", [(-np.inf, np.inf), (0.0, np.inf), (-np.inf, 0.0), (-1e30, 1e30), (0.0, 1e300)], ids=str
)
def test_float_bounds_hold_no_nan(case: Case, ends: tuple[float, float]) -> None:
    bounds = case.operator.bounds(*(Interval.of(*ends, shape) for shape in case.shapes))
    assert not np.isnan(np.asarray(bounds.lo, float)).any()
    assert not np.isnan(np.asarray(bounds.hi, float)).any()
    assert bounds.min <= bounds.max


def _intervals(case: Case, rng: np.random.Generator) -> list[Interval]:
    limits = [case.limits.get(index, (-100, 100)) for index in range(len(case.shapes))]
    return [random_interval(rng, shape, *limit) for shape, limit in zip(case.shapes, limits, strict=True)]


def _as_float(interval: Interval) -> Interval:
    return interval.map(lambda bound: bound.astype(np.float64))


def _as_integer(interval: Interval) -> Interval:
    return interval.map(lambda bound: bound.astype(np.int64))


def test_dequantized_bounds_hold() -> None:
    scale = np.array([0.5, -0.25, 0.0], np.float32).reshape(3, 1, 1)
    rng = np.random.default_rng(2)
    interval = random_interval(rng, A, -128, 127)
    for zero_point in (np.int8(-3), np.array([[[5]], [[0]], [[-200]]], np.int32)):
        operator = Dequantize()
        value = run(operator, draw(rng, interval).astype(np.int8), scale, np.asarray(zero_point))
        bounds = operator.bounds(interval, Interval.constant(scale), Interval.constant(np.asarray(zero_point)))
        assert holds(bounds, value)


def test_quantized_bounds_hold() -> None:
    operator, rng = Quantize(a_min=-7, a_max=7, dtype="int8"), np.random.default_rng(3)
    value = run(operator, rng.normal(0, 50, A).astype(np.float32), np.float32([3]), np.int32([2]))
    bounds = operator.bounds(Interval.of(-np.inf, np.inf, A), Interval.of(3.0, 3.0, (1,)), Interval.of(2, 2, (1,)))
    assert holds(bounds, value) and (bounds.min, bounds.max) == (-7, 7)


@pytest.mark.parametrize("operator", [ElemwiseAdd(), ElemwiseSub(), ElemwiseMul()])
def test_bounds_of_two_small_operands_are_exact(operator: Operator) -> None:
    ends = [(a, b) for a in range(-2, 3) for b in range(a, 3)]
    for (a, b), (c, d) in itertools.product(ends, repeat=2):
        bounds = operator.bounds(Interval.of(a, b, (1,)), Interval.of(c, d, (1,)))
        reached = [
            int(operator.evaluate(np.array([x]), np.array([y]))[0]) for x in range(a, b + 1) for y in range(c, d + 1)
        ]
        assert (bounds.min, bounds.max) == (min(reached), max(reached))


def test_relu_signs_survive_a_product() -> None:
    positive = Relu().bounds(Interval.of(-np.inf, np.inf, (1, 2)))
    zero = Interval.constant(np.array([[0.0, 2.0]]))
    assert str(BroadcastMul().bounds(positive, zero)) == "[0.0, inf]"


def test_bounds_per_channel_survive_transforms() -> None:
    x = Interval(np.zeros((1, 2, 1, 1), int), np.array([1, 9]).reshape(1, 2, 1, 1), (4, 2, 3, 3))
    assert Transpose(axes=(0, 2, 3, 1)).bounds(x).hi.shape == (1, 1, 1, 2)
    np.testing.assert_array_equal(Flatten().bounds(x).hi, [[1] * 9 + [9] * 9])
    np.testing.assert_array_equal(SliceAxis(axis=1, begin=1, end=2).bounds(x).hi, [[[[9]]]])
    np.testing.assert_array_equal(Concat(dim=1).bounds(x, x).hi.ravel(), [1, 9, 1, 9])
    np.testing.assert_array_equal(Pad(pad_width=(0, 0, 1, 0, 0, 0, 0, 0)).bounds(x).hi.ravel(), [0, 1, 9])
    assert str(Reshape(shape=(-1,)).bounds(Interval(x.lo, x.hi, (4, 2, 1024, 1024)))) == "[0, 9]"


def test_max_takes_the_highest_lower_bound() -> None:
    x = Interval(np.array([[-5, 2]]), np.array([[9, 3]]), (1, 2))
    assert str(Max(axis=(1,)).bounds(x)) == "[2, 9]"


def test_accumulators_grow_past_32_bits_only_with_an_error() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3), "int32"))
    graph = builder.graph([builder.apply(Sum(axis=(1,)), [x], "total")])
    ok = analyse_bounds(graph, {"x": Interval.of(-(2**29), 2**29, (1, 3))})
    assert str(ok["total"]) == f"[{-3 * 2**29}, {3 * 2**29}]"
    with pytest.raises(Exception, match=r"total \(sum\): the accumulator needs 33 bits"):
        analyse_bounds(graph, {"x": Interval.of(0, 2**30, (1, 3))})


@pytest.mark.parametrize("sign", [1, -1])
def test_a_quotient_of_numbers_whose_inverse_overflows(sign: int) -> None:
    tiny = Interval.of(sign * 5e-324, sign * 5e-324, (1,))
    assert holds(BroadcastDiv().bounds(tiny, tiny), np.array([1.0]))


def test_bounds_of_rank_0_are_exact_beyond_64_bits() -> None:
    """NumPy makes no array of the product of two object arrays of rank 0, and one without a sign of 2^63."""
    x = Interval.of(-(2**31), 2**31 - 1, ())
    square = BroadcastMul().bounds(x, x)
    assert (square.min, square.max) == (-(2**62) + 2**31, 2**62)
    assert BroadcastAdd().bounds(square, square).max == 2**63


def test_int64_is_no_dtype_of_integer_graphs() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2,), "int64"))
    graph = builder.graph([builder.apply(Relu(), [x], "y")])
    with pytest.raises(QuantizationError, match=r"y \(relu\): it is int64"):
        analyse_bounds(graph, {"x": Interval.of(0, 5, (2,))})
