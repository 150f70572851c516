"""Max and average pooling, over windows or over all of the spatial axes."""

from __future__ import annotations

from dataclasses import replace

from mrt.errors import GraphError
from mrt.frontend.onnx.converters.windows import Windows, read_windows
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shaping import unless_default
from mrt.symbol import Symbol
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Slice


@converter("MaxPool", "AveragePool")
def pooling(node: Node) -> Symbol:
    data = node.symbol(0)
    kernel = node.integers("kernel_shape")
    if kernel is None or data.type.rank < 3:
        raise GraphError(
            f"{node.label}: kernel_shape is {kernel}, data {data.type}; a kernel and 3 to 5 axes are needed"
        )
    windows = read_windows(node, data.shape[2:], kernel)
    if max(windows.dilation) > 1:
        raise node.unsupported("attribute dilations", windows.dilation, "1 on every axis")
    convention = "valid"
    if node.integer("ceil_mode", 0):
        data, windows, convention = _rounded_up(node, data, windows)
    operator = Pooling(
        kernel=windows.kernel,
        pool_type="max" if node.operator == "MaxPool" else "avg",
        stride=unless_default(windows.stride, 1),
        pad=unless_default(windows.begins, 0) if windows.is_symmetric else windows.begins + windows.ends,
        pooling_convention=convention,
        count_include_pad=node.operator == "MaxPool" or bool(node.integer("count_include_pad", 0)),
    )
    return node.apply(operator, [data])


@converter("GlobalMaxPool", "GlobalAveragePool")
def global_pooling(node: Node) -> Symbol:
    kind = "max" if node.operator == "GlobalMaxPool" else "avg"
    return node.apply(Pooling(pool_type=kind, global_pool=True), [node.symbol(0)])


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
