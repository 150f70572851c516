"""Max, average and Lp pooling, over windows or over all of the spatial axes."""

from __future__ import annotations

from collections.abc import Callable

from mrt.errors import GraphError
from mrt.frontend.onnx.converters.windows import read_windows
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.windows import pooled_over
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.functions import Abs, PowerScalar, Sqrt, Square
from mrt.symbol.operators.pooling import Pooling

_KINDS = {"MaxPool": "max", "AveragePool": "avg", "LpPool": "sum"}
_GLOBAL_KINDS = {"GlobalMaxPool": "max", "GlobalAveragePool": "avg", "GlobalLpPool": "sum"}


@converter("MaxPool", "AveragePool")
def pooling(node: Node) -> Symbol:
    return _over_windows(node, node.symbol(0), "")


@converter("GlobalMaxPool", "GlobalAveragePool")
def global_pooling(node: Node) -> Symbol:
    return _over_everything(node, node.symbol(0), "")


@converter("LpPool")
def lp_pooling(node: Node) -> Symbol:
    return _length(node, _over_windows)


@converter("GlobalLpPool")
def global_lp_pooling(node: Node) -> Symbol:
    return _length(node, _over_everything)


def _length(node: Node, pool: Callable[[Node, Symbol, str], Symbol]) -> Symbol:
    """(Σ |x|^p)^(1/p), the sum by `pool`."""
    order = node.integer("p", 2)
    if order < 1:
        raise node.unsupported("attribute p", order, "1 or more")
    magnitudes = node.apply(Square() if order == 2 else Abs(), [node.symbol(0)], "magnitudes")
    if order == 1:
        return pool(node, magnitudes, "")
    if order > 2:
        magnitudes = node.apply(PowerScalar(float(order)), [magnitudes], "powers")
    root: Operator = Sqrt() if order == 2 else PowerScalar(1 / order)
    return node.apply(root, [pool(node, magnitudes, "sum")])


def _over_everything(node: Node, data: Symbol, suffix: str) -> Symbol:
    return node.apply(Pooling(pool_type=_GLOBAL_KINDS[node.operator], global_pool=True), [data], suffix)


def _over_windows(node: Node, data: Symbol, suffix: str) -> Symbol:
    kernel = node.integers("kernel_shape")
    if kernel is None or data.type.rank < 3:
        raise GraphError(
            f"{node.label}: kernel_shape is {kernel}, data {data.type}; a kernel and 3 to 5 axes are needed"
        )
    windows = read_windows(node, data.shape[2:], kernel)
    kind, rounds_up = _KINDS[node.operator], bool(node.integer("ceil_mode", 0))
    counts_padding = kind == "max" or bool(node.integer("count_include_pad", 0))
    return pooled_over(node, data, windows, kind, rounds_up, counts_padding, suffix)
