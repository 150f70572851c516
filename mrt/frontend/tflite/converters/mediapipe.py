"""MediaPipe's custom operators whose attributes are a C structure: its biased transpose of a convolution."""

from __future__ import annotations

import struct

from mrt.errors import GraphError
from mrt.frontend.shared.deconvolution import deconvolved, reach
from mrt.frontend.tflite.layouts import channels_last, image, weight
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol

_SAME, _VALID = 1, 2


@converter("CUSTOM Convolution2DTransposeBias")
def biased_deconvolution(node: Node) -> Symbol:
    """The inputs are the data, the weight (O, H, W, I) and the bias (O).

    SAME cuts max(0, kernel - 1 - (size - 1) mod stride) positions off an axis, half of them, rounded down, at its
    beginning; VALID cuts none.
    """
    padding, across, down = _attributes(node)
    data, kernel, bias = image(node), weight(node, (3, 0, 1, 2)), node.symbol(2, "bias")
    stride, sizes = (down, across), kernel.shape[2:]
    if bias.shape != (kernel.shape[1],):
        raise GraphError(f"{node.label}: the bias is {bias.type}; one number for each output is needed")
    cut = tuple(
        max(0, size - 1 - (length - 1) % step) if padding == _SAME else 0
        for length, size, step in zip(data.shape[2:], sizes, stride, strict=True)
    )
    whole = reach(data.shape[2:], sizes, stride, (1, 1))
    shape = [total - lost for total, lost in zip(whole, cut, strict=True)]
    begins = tuple(lost // 2 for lost in cut)

    def make(suffix: str) -> Symbol:
        return deconvolved(node, [data, kernel, bias], stride, (1, 1), 1, begins, shape, suffix)

    return channels_last(node, 4, make)


def _attributes(node: Node) -> tuple[int, int, int]:
    """Padding, and the strides along width and height: the first three integers of TfLiteTransposeConvParams."""
    stored = node.stored.custom
    if len(stored) < 12:
        raise GraphError(f"{node.label}: has {len(stored)} bytes of attributes; padding and two strides are needed")
    padding, across, down = struct.unpack_from("<3i", stored)
    if padding not in (_SAME, _VALID):
        raise node.unsupported("padding", padding, f"{_SAME} (SAME) or {_VALID} (VALID)")
    if min(across, down) < 1:
        raise GraphError(f"{node.label}: strides are {(down, across)}; sizes of at least 1 are needed")
    return padding, across, down
