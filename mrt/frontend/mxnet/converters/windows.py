"""Convolution and pooling, with channels first or last, and the enlarging of images."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.mxnet.node import Node, converter
from mrt.frontend.shared.shaping import bordered
from mrt.symbol import Array, Operator, Symbol
from mrt.symbol.operators.arrangement import UpSampling
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.transform import Concat, Transpose

_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")


@converter("Convolution", "Convolution_v1")
def convolution(node: Node) -> Symbol:
    """With channels last the weight is (O, *kernel, C / num_group)."""
    if not _is_channels_last(node):
        return node.apply(node.record(), node.symbols())
    weight = _channels_second(node, 1, "weight")
    rest = [node.symbol(index) for index in range(2, node.input_count)]
    return _applied_channels_last(node, node.record(layout=None), [weight, *rest])


@converter("Pooling")
def pooling(node: Node) -> Symbol:
    kind, convention = node.text("pool_type", "max"), node.text("pooling_convention", "valid")
    if kind not in ("max", "avg", "sum"):
        raise node.unsupported("attribute pool_type", kind, "max, avg or sum")
    if convention not in ("valid", "full"):
        raise node.unsupported("attribute pooling_convention", convention, "valid or full")
    if _is_channels_last(node):
        return _applied_channels_last(node, node.record(), [])
    return node.apply(node.record(), [node.only_symbol()])


@converter("Pooling_v1")
def first_pooling(node: Node) -> Symbol:
    """The pooling of MXNet's beginnings pads with zeros that count as elements, also for a maximum, and divides an
    average by the kernel's size wherever the window lies.
    """
    data, operator = node.only_symbol(), node.record("Pooling")
    if not isinstance(operator, Pooling) or operator.global_pool:
        return node.apply(operator, [data])
    is_average = operator.pool_type == "avg"
    if any(operator.pad):
        before, after = operator.pads(data.type.rank - 2)
        data = bordered(node, data, before, after, "border")
    kind = "sum" if is_average else operator.pool_type
    pooled = node.apply(node.record("Pooling", pad="()", pool_type=kind), [data], "sum" if is_average else "")
    if not is_average:
        return pooled
    return node.apply(MulScalar(1 / math.prod(operator.kernel)), [pooled])


@converter("UpSampling")
def up_sampling(node: Node) -> Symbol:
    """Nearest: several images get the size that the first gets, one after the other as channels or added.
    Bilinear: a deconvolution with the weight that is the second input.
    """
    kind = node.text("sample_type", "nearest")
    if kind == "bilinear":
        return _bilinear(node)
    if kind != "nearest":
        raise node.unsupported("attribute sample_type", kind, "nearest or bilinear")
    operator, images = node.record(), node.symbols()
    if len(images) == 1:
        return node.apply(operator, images)
    mode = node.text("multi_input_mode", "concat")
    if mode not in ("concat", "sum") or not isinstance(operator, UpSampling) or {x.type.rank for x in images} != {4}:
        raise GraphError(f"{node.label}: multi_input_mode is {mode}; concat or sum of images (N, C, H, W) are needed")
    height = images[0].shape[2] * operator.scale
    parts = [
        node.apply(UpSampling(scale=height // max(x.shape[2], 1)), [x], f"arg{place}") for place, x in enumerate(images)
    ]
    return node.apply(Concat(dim=1) if mode == "concat" else AddN(), parts)


def _bilinear(node: Node) -> Symbol:
    data, scale = node.symbol(0), node.integer("scale")
    if scale < 1 or data.type.rank != 4:
        raise GraphError(f"{node.label}: data is {data.type}, scale {scale}; rank 4 and at least 1 are needed")
    size, pad, channels = 2 * scale - scale % 2, scale // 2, data.shape[1]
    operator = Deconvolution(
        kernel=(size, size), stride=(scale, scale), pad=(pad, pad), num_filter=channels, num_group=channels
    )
    return node.apply(operator, [data, node.symbol(1)])


def _is_channels_last(node: Node) -> bool:
    layout = node.text("layout", "None")
    if layout not in ("None", "NCW", "NCHW", "NCDHW", *_CHANNELS_LAST):
        raise node.unsupported("attribute layout", layout, f"NCW, NCHW, NCDHW or one of {', '.join(_CHANNELS_LAST)}")
    return layout in _CHANNELS_LAST


def _channels_second(node: Node, index: int, role: str) -> Symbol:
    """An input with its last axis in place 1."""
    if node.is_known(index):
        return node.parameter_of(index, role, "channels_first", _moved_last_axis)
    data = node.symbol(index)
    rank = data.type.rank
    if rank < 3:
        raise GraphError(f"{node.label}: {role} is {data.type}; rank 3 or more is needed")
    return node.apply(Transpose(axes=(0, rank - 1, *range(1, rank - 1))), [data], f"{role}_channels_first")


def _moved_last_axis(array: Array) -> Array:
    return array if array.ndim < 2 else np.moveaxis(array, -1, 1)


def _applied_channels_last(node: Node, operator: Operator, others: list[Symbol]) -> Symbol:
    """`operator`, which has its channels first, on data and with a result that have theirs last."""
    result = node.apply(operator, [_channels_second(node, 0, "data"), *others], "channels_first")
    rank = result.type.rank
    return node.apply(Transpose(axes=(0, *range(2, rank), 1)), [result])
