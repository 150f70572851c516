"""Operators that MXNet has under the same name and with the same attributes, exact on integers in float64."""

from __future__ import annotations

from mrt.export.mxnet.node import Node, exporter
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.arrangement import (
    DepthToSpace,
    Repeat,
    SliceLike,
    SpaceToDepth,
    SwapAxis,
    Tile,
    UpSampling,
)
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.functions import Abs, Negative, Square
from mrt.symbol.operators.reduce import Max, Sum
from mrt.symbol.operators.scalar import MinusScalar, MulScalar, PlusScalar, RMinusScalar
from mrt.symbol.operators.selection import (
    ArgMax,
    ArgMin,
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    MaximumScalar,
    Min,
    MinimumScalar,
)
from mrt.symbol.operators.transform import Concat, Slice, SliceAxis, Take, Transpose


@exporter(
    *(ElemwiseAdd, ElemwiseSub, ElemwiseMul, AddN, BroadcastAdd, BroadcastSub, BroadcastMul, Abs, Negative, Square),
    *(ElemwiseMaximum, ElemwiseMinimum, BroadcastMaximum, BroadcastMinimum, Relu),
    *(PlusScalar, MinusScalar, RMinusScalar, MulScalar, MaximumScalar, MinimumScalar),
    *(Convolution, Dot, Sum, Max, Min, ArgMax, ArgMin, Take),
    *(Transpose, SwapAxis, Slice, SliceAxis, SliceLike, Concat, Tile, Repeat),
    *(UpSampling, DepthToSpace, SpaceToDepth),
)
def same(op: Operator, node: Node) -> Symbol:
    return node.reshaped(node.apply(op, node.inputs), node.shape)
