"""Layers whose input has channels in groups, as the tests of granularity draw them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, Operator, Symbol
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.arrangement import UpSampling
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Flatten
from tests.quantization.networks import chain, observe, random_samples

Step = tuple[Operator, Sequence[Array]]
IMAGE = (1, 6, 5, 4)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def config_of(
    step: int | None = None,
    weight_step: int | None = None,
    pair: tuple[str, str] = ("symmetric", "symmetric"),
    bits: int = 8,
) -> QuantizationConfig:
    granularity = ["layer" if value is None else {"channel": value} for value in (step, weight_step)]
    return QuantizationConfig.model_validate(
        {
            "activation": {"bits": bits, "quantizer": pair[0], "granularity": granularity[0]},
            "weight": {"bits": bits, "quantizer": pair[1], "granularity": granularity[1]},
        }
    )


def times(*constants: float, rank: int = 4) -> Step:
    """A product with one constant for each channel, after which the channels' ranges differ: inputs have one scale."""
    return BroadcastMul(), [np.reshape(np.asarray(constants, np.float32), (1, -1, *(1,) * (rank - 2)))]


def even(*shape: int, seed: int = 1) -> Array:
    """A weight whose every input channel reaches the same at an output channel, and another at each of those."""
    rows = normal(*shape, seed=seed)
    flat = rows.reshape(*shape[:2], -1)
    flat *= 0.9 / np.abs(flat).max(axis=2, keepdims=True)
    flat[:, :, 0] = 1.0
    flat[:, :, -1] = -1.0
    flat *= np.linspace(0.3, 1.7, shape[0])[:, None, None]
    return rows


def conv(filters: int, channels: int, kernel: int = 3, groups: int = 1) -> Step:
    return Convolution((kernel,) * 2, filters, num_group=groups, no_bias=True), [
        even(filters, channels // groups, kernel, kernel)
    ]


def deconv(filters: int, channels: int, groups: int = 1) -> Step:
    operator = Deconvolution((3, 2), filters, stride=(2, 1), num_group=groups)
    return operator, [operator.from_rows(even(filters, channels // groups, 3, 2))]


def dense(units: int, channels: int, each: int) -> Step:
    return FullyConnected(units, no_bias=True), [even(units, channels, each).reshape(units, -1)]


BORDER = (0, 0, 0, 0, 1, 2, 0, 1)
LAYERS: dict[str, tuple[tuple[int, ...], list[Step]]] = {
    "convolution": (IMAGE, [conv(4, 6)]),
    "grouped convolution": (IMAGE, [conv(4, 6, groups=2)]),
    "depthwise convolution": (IMAGE, [conv(12, 6, groups=6)]),
    "deconvolution": (IMAGE, [deconv(4, 6)]),
    "grouped deconvolution": (IMAGE, [deconv(4, 6, groups=2)]),
    "dense": (IMAGE, [dense(3, 6, 20)]),
    "dense, last axis": ((2, 6, 6), [(FullyConnected(4, no_bias=True, flatten=False), [even(4, 6, 1).reshape(4, 6)])]),
    "flattened": (IMAGE, [(Flatten(), []), dense(3, 120, 1)]),
    "maxima": (IMAGE, [(Pooling((2, 2), stride=(2, 1), pad=(1, 1)), []), conv(4, 6)]),
    "sums": (IMAGE, [(Pooling((2, 2), pool_type="sum"), []), conv(4, 6)]),
    "border of zero": (IMAGE, [(Pad(BORDER), []), conv(4, 6)]),
    "border of a constant": (IMAGE, [(Pad(BORDER, constant_value=-0.7), []), conv(4, 6)]),
    "border of neighbours": (IMAGE, [(Pad(BORDER, "edge"), []), conv(4, 6)]),
    "enlarged": (IMAGE, [(UpSampling(2), []), conv(4, 6)]),
    "clipped": (IMAGE, [(Clip(-0.6, 0.9), []), conv(4, 6)]),
    "chain": (IMAGE, [conv(6, 6), (BroadcastAdd(), [normal(1, 6, 1, 1)]), (Relu(), []), conv(4, 6, kernel=2)]),
}


def names_of(graph: Graph, op: str) -> list[str]:
    return [symbol.name for symbol in graph.operators if symbol.op == op]


def of_sixteen_channels(step: int | None) -> IntegerGraph:
    graph = chain((1, 16, 6, 6), times(*np.linspace(1, 9, 16)), conv(4, 16))
    return expand_graph(graph, observe(graph, random_samples(graph)), config_of(step))


def of_op(integer: IntegerGraph, op: str) -> list[Symbol]:
    return [symbol for symbol in integer.graph.operators if symbol.op == op]


SPREAD = (1.0, 0.25, 0.06, 1.0, 0.02, 0.5)
