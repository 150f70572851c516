"""The operators with an integer form in all their attributes: CASES, and GROUPED_CASES of them in channel groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

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
from mrt.symbol.operators.hyperbolic import Arcsinh, Arctan, Cosh, Sinh
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import LayerNorm, LogSoftmax, Softmax
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.periodic import Cos, ModScalar, Sin
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
from tests.matrix import STEPS, Case, Data, Weights


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
    for function in (Sin, Arctan, Arcsinh, Sinh, Cosh):
        yield Case(function(), (IMAGE,))
    for function in (Abs, Negative, Square, Sigmoid, Tanh, Exp, Erf, Softsign, HardSigmoid, Softrelu, Silu, HardSwish):
        yield Case(function(), (IMAGE,))
    yield Case(HardSigmoid(alpha=-0.3, beta=0.2), (IMAGE,))
    yield Case(Mish(), (IMAGE,))
    yield Case(PowerScalar(3), (IMAGE,))
    for function in (Log(), Sqrt(), Rsqrt(), Reciprocal(), RDivScalar(-2.0), PowerScalar(-1.5), PowerScalar(0.3)):
        yield Case(function, (positive(1, 4, 7, 6),))
    for operator in (ModScalar(0.7), ModScalar(-0.7), ModScalar(0.7, truncates=True)):
        yield Case(operator, (IMAGE,), is_loose=True)
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
GROUPED_CASES = tuple(replace(case, step=step) for case, step in zip(CASES, itertools.cycle(STEPS), strict=False))
"""The same on tensors in channel groups, of each number of channels in turn."""
