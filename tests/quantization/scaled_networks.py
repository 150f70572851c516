"""Small networks whose channels may be scaled, one for each way in which factors travel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid
from mrt.symbol.operators.arrangement import SpaceToDepth, UpSampling
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Concat, Flatten, Reshape, SliceAxis, Transpose

BORDER = (0, 0, 0, 0, 1, 1, 1, 1)


class Network:
    """Makes a graph of one input (1, 3, 6, 6), or of `shape`; what reads a layer's output gets a name of its own."""

    def __init__(self, shape: Sequence[int] = (1, 3, 6, 6), seed: int = 5) -> None:
        self.builder, self.rng = GraphBuilder(), np.random.default_rng(seed)
        self.x = self.builder.input("x", TensorType(tuple(shape)))

    def parameter(self, name: str, *shape: int, spread: bool = False) -> Symbol:
        value = self.rng.normal(0.1, 1.0, shape)
        if spread:
            value *= 2.0 ** self.rng.uniform(-4, 1, (shape[0], *(1,) * (len(shape) - 1)))
        return self.builder.parameter(name, value.astype(np.float32))

    def apply(self, operator: Operator, *inputs: Symbol, name: str | None = None) -> Symbol:
        return self.builder.apply(operator, inputs, name)

    def biased(self, source: Symbol, *shape: int) -> Symbol:
        return self.apply(BroadcastAdd(), source, self.parameter(f"b_{source.name}", *shape), name=f"{source.name}_b")

    def conv(
        self, source: Symbol, outputs: int, kernel: int = 1, groups: int = 1, weight: Symbol | None = None
    ) -> Symbol:
        operator = Convolution(kernel=(kernel, kernel), num_filter=outputs, num_group=groups, no_bias=True)
        shape = (outputs, source.shape[1] // groups, kernel, kernel)
        made = self.apply(operator, source, weight or self.parameter("w", *shape, spread=True), name="conv")
        return self.biased(made, 1, outputs, 1, 1)

    def dense(self, source: Symbol, outputs: int, flatten: bool = True) -> Symbol:
        columns = int(np.prod(source.shape[1:])) if flatten else source.shape[-1]
        operator = FullyConnected(num_hidden=outputs, no_bias=True, flatten=flatten)
        made = self.apply(operator, source, self.parameter("wd", outputs, columns, spread=True), name="dense")
        return self.biased(made, 1, outputs)

    def graph(self, *outputs: Symbol) -> Graph:
        return self.builder.graph(outputs)


def behind(*operators: Operator, outputs: int = 4, shape: Sequence[int] = (1, 3, 6, 6)) -> Graph:
    """A convolution, the operators, a convolution or, where the rank is 2, a dense layer."""
    net = Network(shape)
    y = net.conv(net.x, outputs, 3)
    for operator in operators:
        y = net.apply(operator, y)
    return net.graph(net.dense(y, 3) if y.type.rank == 2 else net.conv(y, 3))


def prelu() -> Graph:
    net = Network()
    y = net.apply(LeakyReLU(act_type="prelu"), net.conv(net.x, 4, 3), net.parameter("gamma", 4))
    return net.graph(net.conv(y, 3))


def grouped(groups: int, outputs: int) -> Graph:
    net = Network()
    y = net.apply(Relu(), net.conv(net.x, 4, 3))
    return net.graph(net.conv(net.apply(Relu(), net.conv(y, outputs, 3, groups)), 3))


def deconvolution() -> Graph:
    net = Network()
    y = net.apply(Relu(), net.conv(net.x, 4, 3))
    operator = Deconvolution(kernel=(3, 3), num_filter=6, stride=(2, 2), num_group=2)
    z = net.apply(operator, y, net.parameter("wt", 4, 3, 3, 3))
    return net.graph(net.conv(net.apply(Relu(), z), 3))


def with_own_biases() -> Graph:
    net = Network()
    operator = Convolution(kernel=(3, 3), num_filter=4)
    y = net.apply(operator, net.x, net.parameter("w", 4, 3, 3, 3), net.parameter("b", 4), name="conv")
    return net.graph(net.conv(net.apply(Relu(), y), 3))


def concatenated() -> Graph:
    net = Network()
    left, right = net.apply(Relu(), net.conv(net.x, 4, 3)), net.apply(Clip(0, 2), net.conv(net.x, 2, 3))
    joined = net.apply(Concat(dim=1), left, right)
    part = net.apply(SliceAxis(axis=1, begin=1, end=5), joined)
    return net.graph(net.conv(joined, 3), net.conv(part, 3))


def residual() -> Graph:
    """Two blocks on one stream, of a pooled copy of which a layer reads too."""
    net = Network()
    stream = net.apply(Relu(), net.conv(net.x, 4, 3))
    for _ in range(2):
        inner = net.conv(net.apply(Relu(), net.conv(stream, 5)), 4)
        stream = net.apply(Relu(), net.apply(ElemwiseAdd(), stream, inner))
    pooled = net.apply(Pooling(global_pool=True, pool_type="sum"), stream)
    return net.graph(net.dense(net.apply(Flatten(), pooled), 3), net.conv(stream, 2))


def widened() -> Graph:
    """A shortcut that takes every other position and puts channels of zeros before and behind."""
    net = Network()
    stream = net.apply(Relu(), net.conv(net.x, 4, 3))
    short = net.apply(Pad(pad_width=(0, 0, 1, 2, 0, 0, 0, 0)), stream)
    total = net.apply(ElemwiseAdd(), short, net.conv(stream, 7))
    return net.graph(net.conv(net.apply(Relu(), total), 3))


def shared_weights() -> Graph:
    net = Network()
    y = net.apply(Relu(), net.conv(net.x, 4, 3))
    weight = net.parameter("both", 4, 4, 1, 1)
    first = net.apply(Relu(), net.conv(y, 4, weight=weight))
    return net.graph(net.conv(net.apply(Relu(), net.conv(first, 4, weight=weight)), 3))


def gated() -> Graph:
    """Squeeze and excitation: the sums of channels make factors of them."""
    net = Network()
    y = net.apply(Relu(), net.conv(net.x, 4, 3))
    sums = net.apply(Pooling(global_pool=True, pool_type="sum"), y)
    gate = net.apply(Sigmoid(), net.conv(net.apply(Relu(), net.conv(sums, 2)), 4))
    return net.graph(net.conv(net.apply(BroadcastMul(), gate, y), 3))


def tokens() -> Graph:
    """Layers over the last axis, behind a reshape and a transpose."""
    net = Network((1, 4, 5))
    y = net.apply(Relu(), net.dense(net.x, 6, flatten=False))
    y = net.apply(Transpose(axes=(0, 2, 1)), net.apply(Transpose(axes=(0, 2, 1)), y))
    return net.graph(net.dense(net.apply(Reshape(shape=(0, -1)), net.dense(y, 4, flatten=False)), 3))


def normalized() -> Graph:
    """A layer normalisation and a constant factor with a term, each in front of layers."""
    net = Network((1, 4, 6))
    y = net.apply(LayerNorm(), net.x, net.parameter("gamma", 6), net.parameter("beta", 6), name="norm")
    y = net.dense(y, 5, flatten=False)
    y = net.apply(Sigmoid(), y)
    y = net.apply(BroadcastMul(), y, net.parameter("factor", 5), name="product")
    return net.graph(net.dense(net.biased(y, 5), 3, flatten=False))


def normalized_behind_a_sum() -> Graph:
    """As in BERT: what a normalisation gives is read by a layer and added to what that becomes."""
    net = Network((1, 4, 6))
    y = net.apply(LayerNorm(), net.x, net.parameter("gamma", 6), net.parameter("beta", 6), name="norm")
    z = net.dense(net.apply(Relu(), net.dense(y, 8, flatten=False)), 6, flatten=False)
    z = net.apply(ElemwiseAdd(), y, z, name="stream")
    return net.graph(net.apply(LayerNorm(), z, net.parameter("gamma2", 6), net.parameter("beta2", 6), name="norm2"))


SCALED: dict[str, Callable[[], Graph]] = {
    "relu": lambda: behind(Relu()),
    "relu6": lambda: behind(Clip(0, 6)),
    "both limits": lambda: behind(Clip(-1, 2)),
    "no activation": lambda: behind(),
    "leaky": lambda: behind(LeakyReLU(slope=0.1)),
    "prelu": prelu,
    "own biases": with_own_biases,
    "grouped": lambda: grouped(2, 6),
    "depthwise": lambda: grouped(4, 4),
    "two outputs of each channel": lambda: grouped(4, 8),
    "deconvolution": deconvolution,
    "maximum and border": lambda: behind(Relu(), Pad(pad_width=BORDER), Pooling((2, 2), "max", (2, 2))),
    "average": lambda: behind(Pooling((2, 2), "avg", (2, 2)), Relu()),
    "features": lambda: behind(Relu(), Flatten()),
    "features of channels last": lambda: behind(Transpose(axes=(0, 2, 3, 1)), Relu(), Flatten()),
    "enlarged": lambda: behind(Relu(), UpSampling(scale=2)),
    "space to depth": lambda: behind(Relu(), SpaceToDepth(block_size=2)),
    "concatenated": concatenated,
    "residual": residual,
    "widened": widened,
    "shared weights": shared_weights,
    "gated": gated,
    "tokens": tokens,
}


def feeds(graph: Graph, count: int = 3, seed: int = 1) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{s.name: rng.normal(0.2, 1.5, s.shape).astype(np.float32) for s in graph.inputs} for _ in range(count)]
