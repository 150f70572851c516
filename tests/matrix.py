"""The operators with an integer form, in all their attributes: small float graphs, and data to feed them with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mrt.preparation import AveragePoolingToSum, ScalarsToConstants, SeparateBias, SeparatePad
from mrt.quantization.expand import IntegerGraph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import make_plan
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Operator, Symbol, TensorType, run_passes
from mrt.symbol.bounds import DTYPE_RANGES, analyse_bounds
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.arrangement import DepthToSpace, Repeat, SliceLike, SpaceToDepth, SwapAxis, Tile, UpSampling
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub
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
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import LayerNorm, LogSoftmax, Softmax
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.periodic import Cos
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.region import ElementwiseRegion
from mrt.symbol.operators.scalar import RDivScalar
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
from tests.error_bounds import ErrorAnalysis
from tests.quantization.networks import Outcome, observe, quantize_and_run

QUANTIZERS = ("symmetric", "affine")
PAIRS = tuple(itertools.product(QUANTIZERS, repeat=2))
"""Quantizers of the activation and of the weight: formalizations 1 to 4."""
STEPS = (1, 3)
"""How many channels share a scale: one, and so many that a remainder is left of the matrix' four."""
SPLIT = ((True, True), (False, True), (True, False), (True, True))
"""For each of PAIRS whether the activation and the weight have channel groups."""
NORMAL_FORM = (ScalarsToConstants(), AveragePoolingToSum(), SeparatePad(), SeparateBias())
"""The passes that bring an operator to the form in which it is quantized, and leave it what it is."""


@dataclass(frozen=True)
class Data:
    """An input: real numbers, or positive ones above 0.25, or (given as integers) places below `count`."""

    shape: tuple[int, ...]
    positive: bool = False
    count: int = 0

    @property
    def is_real(self) -> bool:
        return not self.positive and not self.count


@dataclass(frozen=True)
class Weights:
    """A parameter drawn at random."""

    shape: tuple[int, ...]
    scale: float = 1.0

    def draw(self, seed: int) -> Array:
        return (self.scale * np.random.default_rng(seed).standard_normal(self.shape)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Case:
    """An operator on inputs and parameters; more operators may follow, each with its parameters.

    is_loose: whether a bound may be as large as the output: where terms of either sign cancel, where a function jumps,
    where the output is a place. step: how many channels of what the operator reads share a scale, None for all; since
    inputs have one scale, a constant for each channel and, where there is space, a maximum of single elements stand in
    front of it, and the opposite of what it gives behind one that only moves values.
    """

    operator: Operator
    operands: tuple[Data | Weights | Array, ...]
    then: tuple[tuple[Operator, tuple[Weights | Array, ...]], ...] = ()
    is_loose: bool = False
    step: int | None = None

    def __str__(self) -> str:
        attributes = ",".join(f"{k}={v}" for k, v in self.operator.attributes().items()).replace(" ", "")
        shapes = "x".join(str(operand.shape).replace(" ", "") for operand in self.operands)
        groups = "" if self.step is None else f"groups of {self.step}"
        parts = [self.operator.op, attributes, shapes, *(op.op for op, _ in self.then), groups]
        return "-".join(filter(None, parts))

    @property
    def has_weight(self) -> bool:
        """Whether the weight's quantizer and granularity matter."""
        return self.operator.weight_channel_axis is not None

    @cached_property
    def graph(self) -> Graph:
        builder = GraphBuilder()
        names = iter("abcd")

        def parameter(value: Weights | Array, seed: int) -> Array:
            return value.draw(seed) if isinstance(value, Weights) else value

        inputs = [
            self._in_groups(builder.input(next(names), TensorType(operand.shape)), operand, builder)
            if isinstance(operand, Data)
            else builder.parameter(f"p{index}", parameter(operand, index))
            for index, operand in enumerate(self.operands)
        ]
        symbol = builder.apply(self.operator, inputs, "y")
        for place, (operator, values) in enumerate(self.then):
            extra = [builder.parameter(f"q{place}", parameter(value, 10 + place)) for value in values]
            symbol = builder.apply(operator, [symbol, *extra], f"z{place}")
        if self.step is not None and symbol.operator.keeps_scale:
            # What only moves values to an output takes them at the output's one scale.
            symbol = builder.apply(Negative(), [symbol], "opposite")
        return run_passes(builder.graph([symbol]), NORMAL_FORM).graph

    def _in_groups(self, symbol: Symbol, data: Data, builder: GraphBuilder) -> Symbol:
        """`symbol` with channels that differ in range, in channel groups if there are any."""
        rank = symbol.type.rank
        if self.step is None or data.count or rank < 2:
            return symbol
        spread = (0.25 ** (np.arange(data.shape[1]) % 3)).reshape(-1, *(1,) * (rank - 2))
        constant = builder.parameter(f"{symbol.name}_spread", spread.astype(np.float32))
        product = builder.apply(BroadcastMul(), [symbol, constant], f"{symbol.name}_product")
        if rank == 2:
            return product
        return builder.apply(Pooling((1,) * (rank - 2)), [product], f"{symbol.name}_groups")

    @property
    def inputs(self) -> dict[str, Data]:
        return dict(zip("abcd", (operand for operand in self.operands if isinstance(operand, Data)), strict=False))

    def config(
        self,
        activation: str,
        weight: str = "symmetric",
        scales: str = "output_channel",
        bits: int = 8,
    ) -> QuantizationConfig:
        """The quantizers and the granularity of the weight; the case's channel groups, if any, follow from those."""
        split = SPLIT[PAIRS.index((activation, weight))] if self.has_weight else (True, False)
        granularity = ["layer" if self.step is None or not is_split else {"channel": self.step} for is_split in split]
        given = {name: data for name, data in self.inputs.items() if data.count}
        return QuantizationConfig.model_validate(
            {
                "activation": {"quantizer": activation, "bits": bits, "granularity": granularity[0]},
                "weight": {"quantizer": weight, "scales": scales, "bits": bits, "granularity": granularity[1]},
                "inputs": {name: {"dtype": "int16", "range": [0, data.count - 1]} for name, data in given.items()},
            }
        )

    def configs(self, bits: int = 8) -> Iterator[QuantizationConfig]:
        """Every pair of quantizers and granularity that matters; with channel groups one granularity for each pair."""
        every = ("output_channel", "layer") if self.has_weight else ("output_channel",)
        for turn, (activation, weight) in enumerate(PAIRS):
            if self.has_weight or activation == weight:
                for scales in every if self.step is None else every[turn % len(every) :][:1]:
                    yield self.config(activation, weight if self.has_weight else QUANTIZERS[0], scales, bits)

    def draw(self, seed: int, kind: str = "normal") -> dict[str, Array]:
        """One array for each input, of the kind that DRAWS names."""
        rng = np.random.default_rng(seed)
        feeds = {}
        for name, data in self.inputs.items():
            if data.count:
                feeds[name] = rng.integers(0, data.count, data.shape).astype(np.float32)
                continue
            values = DRAWS[kind](rng, data.shape)
            feeds[name] = (np.abs(values) + 0.25 if data.positive else values).astype(np.float32)
        return feeds


def _ties(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Half-way between two integers of 8 bits symmetric, where float32 divides exactly; the largest at the end."""
    values = rng.integers(-126, 126, shape) + 0.5
    values.reshape(-1)[0] = 127.0
    return values * 2.0**-5


DRAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "not negative": lambda rng, shape: np.abs(rng.standard_normal(shape)),
    "not positive": lambda rng, shape: -np.abs(rng.standard_normal(shape)),
    "far above zero": lambda rng, shape: 9.0 + rng.standard_normal(shape),
    "far below zero": lambda rng, shape: rng.standard_normal(shape) - 9.0,
    "all extreme": lambda rng, shape: rng.choice([-3.0, 3.0], shape),
    "ties": _ties,
    "constant": lambda rng, shape: np.full(shape, rng.choice([-2.5, 0.0, 1.0])),
    "one channel zero": lambda rng, shape: rng.standard_normal(shape) * (np.arange(shape[-1]) != 1),
    "one outlier": lambda rng, shape: rng.standard_normal(shape) * np.where(rng.random(shape) < 0.02, 50.0, 1.0),
}
"""How a tensor is filled: the ranges put an affine zero point inside, at either end, and where most integers idle."""


def run(
    graph: Graph, samples: Sequence[dict[str, Array]], config: QuantizationConfig
) -> tuple[Outcome, list[list[Array]]]:
    """`graph` quantized and run on samples that calibrate it, with the bound of each sample's outputs."""
    outcome = quantize_and_run(graph, samples, config)
    analysis = ErrorAnalysis(outcome.integer, make_plan(graph, observe(graph, samples), config))
    return outcome, [analysis.errors(feeds) for feeds in samples]


def extreme_feeds(integer: IntegerGraph, seed: int = 0) -> list[dict[str, Array]]:
    """Integers all at either end of the inputs' ranges, at both in turn, and anywhere."""
    rng = np.random.default_rng(seed)
    found = []
    for pick in ("low", "high", "either", "any"):
        feeds = {}
        for symbol, target in integer.inputs:
            values = {
                "low": np.full(symbol.shape, target.lo),
                "high": np.full(symbol.shape, target.hi),
                "either": rng.choice([target.lo, target.hi], symbol.shape),
                "any": rng.integers(target.lo, target.hi, symbol.shape, endpoint=True),
            }
            feeds[symbol.name] = values[pick].astype(symbol.dtype)
        found.append(feeds)
    return found


def assert_within_bounds(
    graph: Graph, samples: list[dict[str, Array]], config: QuantizationConfig, useful: float = np.inf
) -> IntegerGraph:
    """The integers of `graph` are within the analytic bound of float, which is a `useful` share of the output."""
    outcome, bounds = run(graph, samples, config)
    for real, found, bound in zip(outcome.real, outcome.approximate, bounds, strict=True):
        for index, output in enumerate(graph.outputs):
            excess = np.abs(found[index] - real[index]) - bound[index]
            worst = np.unravel_index(np.argmax(excess), excess.shape)
            assert excess[worst] <= 0, f"{output.name} at {worst}: {found[index][worst]} for {real[index][worst]}"
            assert bound[index].max() <= useful * np.abs(real[index]).max(initial=1e-30)
    return outcome.integer


def assert_proven_at_extremes(integer: IntegerGraph) -> None:
    """Every tensor stays within its proven bounds and 32 bits for the extremes of the inputs."""
    intervals = {s.name: Interval.of(t.lo, t.hi, s.shape) for s, t in integer.inputs}
    bounds = analyse_bounds(integer.graph, intervals)
    for feeds in extreme_feeds(integer):
        for symbol, value in integer.graph.walk(feeds):
            interval = bounds[symbol.name]
            assert interval.bits <= 32 and symbol.dtype in DTYPE_RANGES
            assert (value >= interval.lo).all() and (value <= interval.hi).all(), f"{symbol.name} leaves {interval}"


def real(*shape: int) -> Data:
    return Data(shape)


def positive(*shape: int) -> Data:
    return Data(shape, positive=True)


def weights(*shape: int, scale: float = 1.0) -> Weights:
    return Weights(shape, scale)


IMAGE = real(1, 4, 7, 6)


def _convolutions() -> Iterator[Case]:
    def conv(data: Data, kernel: tuple[int, ...], filters: int, groups: int = 1, **attributes: object) -> Case:
        weight = weights(filters, data.shape[1] // groups, *kernel)
        bias = () if attributes.pop("no_bias", False) else (weights(filters),)
        operator = Convolution(kernel, filters, num_group=groups, no_bias=not bias, **attributes)
        return Case(operator, (data, weight, *bias))

    yield conv(IMAGE, (3, 3), 5)
    yield conv(IMAGE, (3, 3), 5, no_bias=True, pad=(1, 2), stride=(2, 1))
    yield conv(IMAGE, (2, 4), 3, pad=(1, 0), stride=(3, 2))
    yield conv(IMAGE, (3, 2), 3, dilate=(2, 3), no_bias=True)
    yield conv(IMAGE, (1, 1), 6, groups=2)
    yield conv(IMAGE, (3, 3), 6, groups=2, pad=(1, 1), no_bias=True)
    yield conv(IMAGE, (3, 3), 4, groups=4, pad=(1, 1))
    yield conv(IMAGE, (3, 2), 8, groups=4, stride=(1, 2), no_bias=True)
    yield conv(IMAGE, (7, 6), 2)
    yield conv(real(2, 3, 9), (3,), 4, pad=(1,), stride=(2,), dilate=(2,))
    yield conv(real(1, 4, 9), (4,), 6, groups=2, no_bias=True)
    yield conv(real(1, 2, 4, 5, 4), (2, 3, 2), 3, stride=(1, 2, 1), pad=(1, 0, 1))
    yield conv(real(1, 4, 3, 4, 3), (2, 2, 2), 4, groups=4, dilate=(1, 2, 1), no_bias=True)


def _deconvolutions() -> Iterator[Case]:
    def deconv(data: Data, kernel: tuple[int, ...], filters: int, groups: int = 1, **attributes: object) -> Case:
        bias = (weights(filters),) if attributes.get("no_bias") is False else ()
        operator = Deconvolution(kernel, filters, num_group=groups, **attributes)
        return Case(operator, (data, weights(data.shape[1], filters // groups, *kernel), *bias))

    small = real(1, 4, 4, 5)
    yield deconv(small, (3, 3), 5)
    yield deconv(small, (3, 3), 3, stride=(2, 2), pad=(1, 1), adj=(1, 1), no_bias=False)
    yield deconv(small, (4, 2), 6, groups=2, stride=(2, 3), pad=(1, 0), no_bias=False)
    yield deconv(small, (3, 2), 4, groups=4, stride=(3, 1), dilate=(1, 2))
    yield deconv(small, (4, 4), 2, stride=(3, 2), target_shape=(10, 9))
    yield deconv(small, (2, 2), 2, stride=(3, 3), adj=(2, 2))
    yield deconv(real(1, 4, 6), (3,), 4, groups=2, stride=(2,), pad=(1,), dilate=(2,))
    yield deconv(real(1, 2, 3, 2, 3), (2, 3, 2), 2, stride=(2, 1, 2), pad=(0, 1, 1), adj=(1, 0, 0))


def _products() -> Iterator[Case]:
    yield Case(FullyConnected(5), (IMAGE, weights(5, 168), weights(5)))
    yield Case(FullyConnected(5, no_bias=True), (real(3, 17), weights(5, 17)))
    yield Case(FullyConnected(5, no_bias=True, flatten=False), (real(2, 3, 6), weights(5, 6)))
    yield Case(FullyConnected(5, flatten=False), (IMAGE, weights(5, 6), weights(5)))
    yield Case(FullyConnected(3, no_bias=True), (real(1, 9), weights(3, 9)), ((Relu(), ()),))
    for a, b in itertools.product((False, True), repeat=2):
        shapes = ((5, 4) if a else (4, 5), (3, 5) if b else (5, 3))
        yield Case(BatchDot(a, b), (real(2, *shapes[0]), real(2, *shapes[1])))
        yield Case(Dot(a, b), (real(*shapes[0]), real(*shapes[1])))
    yield Case(BatchDot(), (real(1, 2, 4, 5), weights(1, 2, 5, 3)))
    yield Case(Dot(), (weights(3, 5), real(5, 4)))


def _windows() -> Iterator[Case]:
    shapes = [
        {"kernel": (2, 2), "stride": (2, 2)},
        {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pooling_convention": "full"},
        {"kernel": (3, 2), "stride": (2, 1), "pad": (0, 1, 2, 0)},
        {"kernel": (2, 3), "stride": (3, 2), "pad": (1, 0, 0, 1), "pooling_convention": "full"},
        {"global_pool": True},
    ]
    for shape, kind in itertools.product(shapes, ("max", "sum", "avg")):
        for counts in (True, False) if kind == "avg" and "pad" in shape else (True,):
            yield Case(Pooling(pool_type=kind, count_include_pad=counts, **shape), (IMAGE,))
    yield Case(Pooling((3,), stride=(2,), pad=(1,)), (real(1, 2, 7),))
    yield Case(Pooling((2, 2, 3), pool_type="avg", pad=(1, 0, 1), count_include_pad=False), (real(1, 2, 3, 4, 4),))
    width = (0, 0, 0, 0, 1, 2, 0, 3)
    for mode in ("constant", "edge", "reflect"):
        yield Case(Pad(width, mode), (IMAGE,))
    yield Case(Pad(width, constant_value=-1.3), (IMAGE,))
    yield Case(Pad((0, 0, 1, 0, 0, 0, 2, 0), constant_value=20.0), (IMAGE,))


def _functions() -> Iterator[Case]:
    yield Case(Relu(), (IMAGE,))
    for limits in ((0.0, 6.0), (-0.5, 1.5), (0.25, 0.75), (-90.0, 90.0)):
        yield Case(Clip(*limits), (IMAGE,))
    for slope in (0.1, 0.0, 1.0, 2.5, -0.3):
        yield Case(LeakyReLU(slope=slope), (IMAGE,))
    yield Case(LeakyReLU(act_type="prelu"), (IMAGE, weights(4)))
    yield Case(LeakyReLU(act_type="prelu"), (IMAGE, weights(1)))
    for kind in ("elu", "selu", "gelu", "gelu_tanh"):
        yield Case(LeakyReLU(act_type=kind, slope=0.7), (IMAGE,))
    yield Case(Cos(), (IMAGE,))
    for function in (Abs, Negative, Square, Sigmoid, Tanh, Exp, Erf, Softsign, HardSigmoid, Softrelu, Silu, HardSwish):
        yield Case(function(), (IMAGE,))
    yield Case(HardSigmoid(alpha=-0.3, beta=0.2), (IMAGE,))
    yield Case(Mish(), (IMAGE,))
    yield Case(PowerScalar(3), (IMAGE,))
    for function in (Log(), Sqrt(), Rsqrt(), Reciprocal(), RDivScalar(-2.0), PowerScalar(-1.5), PowerScalar(0.3)):
        yield Case(function, (positive(1, 4, 7, 6),))
    for function in (Floor, Ceil, Trunc, Round, Rint, RoundHalfEven, Sign):
        yield Case(function(), (IMAGE,), is_loose=True)
    yield Case(ElementwiseRegion("elemwise_mul(x, sigmoid(_mul_scalar(x, scalar=1.702)))"), (IMAGE,))


def _arithmetic() -> Iterator[Case]:
    for operator in (ElemwiseAdd(), ElemwiseSub(), ElemwiseMul(), AddN(), ElemwiseMaximum(), ElemwiseMinimum()):
        yield Case(operator, (IMAGE, IMAGE))
        if not isinstance(operator, ElemwiseMul):
            yield Case(operator, (IMAGE, weights(1, 4, 7, 6, scale=7.0)))
    yield Case(AddN(), (IMAGE,) * 4)
    for operator in (BroadcastAdd(), BroadcastSub(), BroadcastMul(), BroadcastMaximum(), BroadcastMinimum()):
        yield Case(operator, (IMAGE, real(4, 1, 6)))
        yield Case(operator, (real(7, 1), IMAGE))
        for shape in ((), (1,), (4, 1, 1), (1, 4, 1, 1), (7, 1), (1, 4, 7, 6)):
            yield Case(operator, (IMAGE, weights(*shape, scale=3.0)))
        yield Case(operator, (weights(1, 4, 1, 1), IMAGE))
    yield Case(BroadcastMul(), (real(1, 4, 1, 6), weights(4, 7, 1)))
    for constant in (0.0, -1.0, 1e-3, 1e4):
        yield Case(BroadcastMul(), (IMAGE, np.full((1, 4, 1, 1), constant, np.float32)))
        yield Case(BroadcastAdd(), (IMAGE, np.full((1,), constant, np.float32)))


def _reductions() -> Iterator[Case]:
    axes: list[dict[str, object]] = [
        {},
        {"axis": (1,)},
        {"axis": (-1, 1), "keepdims": True},
        {"axis": (2,), "exclude": True},
    ]
    for kind, attributes in itertools.product((Sum, Mean, Max, Min), axes):
        yield Case(kind(**attributes), (IMAGE,), is_loose=kind in (Sum, Mean) and not attributes)
    for place, axis, keeps in itertools.product((ArgMax, ArgMin), (None, 1, -1), (False, True)):
        yield Case(place(axis, keeps), (IMAGE,), is_loose=True)


def _normalizations() -> Iterator[Case]:
    for axis, temperature in ((-1, None), (1, 2.5), (2, 0.5)):
        yield Case(Softmax(axis=axis, temperature=temperature), (IMAGE,))
        yield Case(LogSoftmax(axis=axis, temperature=temperature), (IMAGE,))
    for axis, eps in ((-1, 1e-5), (1, 1e-2), (-2, 1.0)):
        length = IMAGE.shape[axis]
        yield Case(LayerNorm(axis, eps), (IMAGE, weights(length), weights(length)))
    yield Case(LayerNorm(), (IMAGE, np.ones(6, np.float32), np.zeros(6, np.float32)))
    yield Case(InstanceNorm(), (IMAGE, weights(4), weights(4)))
    yield Case(InstanceNorm(eps=0.1), (real(2, 3, 8), weights(3), weights(3)))
    for mode in ("instance", "channel", "spatial"):
        yield Case(L2Normalization(mode=mode), (IMAGE,))
    yield Case(L2Normalization(eps=0.5), (IMAGE,))


def _arrangements() -> Iterator[Case]:
    for operator in (
        *(
            Flatten(),
            Reshape((0, -1)),
            Reshape((0, -3, 0)),
            Reshape((0, -4, 2, -1, -2)),
            Reshape((-1, 0), reverse=True),
        ),
        *(Transpose(), Transpose((0, 2, 3, 1)), Transpose((0, -1, 1, 2)), SwapAxis(1, 3), SwapAxis(-1, -2)),
        *(ExpandDims(0), ExpandDims(2), ExpandDims(-1)),
        *(Slice((None, 1, None, 5), (None, 3, None, 0), (1, 1, 2, -2)), Slice((0, -3), (None, -1))),
        *(SliceAxis(1, 1, None), SliceAxis(-1, -4, -1)),
        *(Tile((1, 2, 1, 2)), Tile((2,)), Repeat(2, 1), Repeat(2, -1), Repeat(3), UpSampling(2), DepthToSpace(2)),
    ):
        yield Case(operator, (IMAGE,))
    yield Case(SpaceToDepth(2), (real(1, 3, 4, 6),))
    for axis in (None, (1,), (-1,), (1, 3)):
        yield Case(Squeeze(axis), (real(2, 1, 4, 1),))
    for axes in ((), (1, -1)):
        yield Case(SliceLike(axes), (IMAGE, real(1, 3, 7, 2)))
    for dim in (1, 0, -1):
        yield Case(Concat(dim), (IMAGE, IMAGE, weights(1, 4, 7, 6, scale=5.0)))


def _choices() -> Iterator[Case]:
    for scalar in (0.4, -1.3, 9.0, -9.0):
        yield Case(MaximumScalar(scalar), (IMAGE,))
        yield Case(MinimumScalar(scalar), (IMAGE,))
    yield Case(Where(), (Data((1, 4, 7, 6), count=2), IMAGE, real(4, 1, 1)))
    yield Case(Where(), (Data((1, 4, 7, 6), count=2), weights(6), weights(1, scale=4.0)))
    yield Case(Where(), (np.array([1, 0, 1, 1], bool), real(4, 3, 2), weights(3, 2, scale=4.0)))
    for axis, mode in itertools.product((0, 1, -1), ("clip", "wrap")):
        yield Case(Take(axis, mode), (real(5, 4, 3), np.array([[0, 2], [-1, 7]], np.int32)))
    yield Case(Take(1), (real(5, 4, 3), Data((2, 3), count=4)))
    yield Case(Take(), (weights(9, 3), Data((6,), count=9)))
    yield Case(Embedding(12, 5), (Data((2, 6), count=12), weights(12, 5)))


CASES: tuple[Case, ...] = (
    *_convolutions(),
    *_deconvolutions(),
    *_products(),
    *_windows(),
    *_functions(),
    *_arithmetic(),
    *_reductions(),
    *_normalizations(),
    *_arrangements(),
    *_choices(),
)
GROUPED_CASES = tuple(replace(case, step=step) for case in CASES for step in STEPS)
"""The same on tensors in channel groups."""
