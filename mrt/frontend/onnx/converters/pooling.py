"""Max, average and Lp pooling, over windows or over all of the spatial axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mrt.errors import GraphError
from mrt.frontend.onnx.converters.windows import Windows, read_windows
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.pooling import dilated_windows, pooled
from mrt.frontend.shaping import unless_default
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.functions import Abs, PowerScalar, Sqrt, Square
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Slice

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
    if max(windows.dilation) > 1:
        return _dilated(node, data, windows, kind, rounds_up, counts_padding, suffix)
    convention = "valid"
    if rounds_up:
        data, windows, convention = _rounded_up(node, data, windows)
    operator = Pooling(
        kernel=windows.kernel,
        pool_type=kind,
        stride=unless_default(windows.stride, 1),
        pad=unless_default(windows.begins, 0) if windows.is_symmetric else windows.begins + windows.ends,
        pooling_convention=convention,
        count_include_pad=counts_padding,
    )
    return node.apply(operator, [data], suffix)


def _dilated(
    node: Node, data: Symbol, windows: Windows, kind: str, rounds_up: bool, counts_padding: bool, suffix: str
) -> Symbol:
    """Windows with gaps, of which one that would start in the end padding is dropped."""
    along = {}
    for axis, (size, kernel, stride, dilation, begin, end, span) in enumerate(
        zip(
            data.shape[2:],
            windows.kernel,
            windows.stride,
            windows.dilation,
            windows.begins,
            windows.ends,
            windows.spans,
            strict=True,
        ),
        start=2,
    ):
        free = size + begin + end - span
        node.made((kernel, max(free // stride + 2, 1)))
        count = (-(-free // stride) if rounds_up else free // stride) + 1
        if rounds_up and (count - 1) * stride >= size + begin:
            count -= 1
        along[axis] = dilated_windows(size, kernel, stride, dilation, begin, end, count)
    return pooled(node, data, along, kind, counts_padding, suffix)


def _rounded_up(node: Node, data: Symbol, windows: Windows) -> tuple[Symbol, Windows, str]:
    """Data, windows and convention that give ONNX's ceil_mode.

    Both round the number of windows up, but ONNX then drops a last window that starts in the end padding, and the
    convention "full" does not. On an axis whose last window is dropped the elements that only that window reaches are
    taken away, first from the end padding, then from the data (no other window reads those): nothing is left to round.
    """
    sizes = data.shape[2:]
    padded = [n + b + e for n, b, e in zip(sizes, windows.begins, windows.ends, strict=True)]
    rest = [(n - k) % s for n, k, s in zip(padded, windows.kernel, windows.stride, strict=True)]
    dropped = [
        r > 0 and n - k - r + s >= size + b
        for r, n, k, s, size, b in zip(rest, padded, windows.kernel, windows.stride, sizes, windows.begins, strict=True)
    ]
    if all(gone or not r for gone, r in zip(dropped, rest, strict=True)):
        return data, windows, "valid"
    excess = [r if gone else 0 for gone, r in zip(dropped, rest, strict=True)]
    ends = tuple(max(e - x, 0) for e, x in zip(windows.ends, excess, strict=True))
    unread = [max(x - e, 0) for e, x in zip(windows.ends, excess, strict=True)]
    if any(unread):
        stops = tuple(size - n if n else None for size, n in zip(sizes, unread, strict=True))
        data = node.apply(Slice(begin=(None,) * data.type.rank, end=(None, None, *stops)), [data], "read")
    return data, replace(windows, ends=ends), "full"
