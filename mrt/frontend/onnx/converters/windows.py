"""Sliding windows of convolution and pooling: kernel, stride, dilation and padding from all forms of attributes."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node
from mrt.frontend.shared.windows import Windows, same_pads, spans


def read_windows(node: Node, spatial: Sequence[int], kernel: Sequence[int]) -> Windows:
    """The windows of a node on data of these spatial sizes.

    Raises GraphError where an attribute has a wrong length or value, UnsupportedOperatorError for negative pads.
    """
    rank = len(spatial)
    if not 1 <= rank <= 3 or len(kernel) != rank:
        raise GraphError(
            f"{node.label}: kernel {tuple(kernel)} on {rank} spatial axes; 1 to 3 axes and a size for each are needed"
        )
    stride = sizes_of(node, "strides", rank)
    dilation = sizes_of(node, "dilations", rank)
    if min(kernel) < 1:
        raise GraphError(f"{node.label}: kernel is {tuple(kernel)}; sizes of at least 1 are needed")
    begins, ends = _pads(node, spatial, stride, spans(kernel, dilation))
    return Windows(tuple(kernel), stride, dilation, begins, ends)


def sizes_of(node: Node, name: str, rank: int) -> tuple[int, ...]:
    values = node.integers(name) or (1,) * rank
    if len(values) != rank or min(values) < 1:
        raise GraphError(f"{node.label}: attribute {name} is {values}; {rank} sizes of at least 1 are needed")
    return values


def _pads(
    node: Node, spatial: Sequence[int], stride: Sequence[int], reached: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements of padding before and after each spatial axis."""
    rank = len(spatial)
    mode = node.text("auto_pad", "NOTSET")
    if mode == "VALID":
        return (0,) * rank, (0,) * rank
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return same_pads(spatial, stride, reached, mode == "SAME_UPPER")
    if mode != "NOTSET":
        raise node.unsupported("attribute auto_pad", mode, "NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    pads = node.integers("pads") or (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise GraphError(f"{node.label}: attribute pads is {pads}; {2 * rank} entries are needed")
    if min(pads) < 0:
        raise node.unsupported("attribute pads", pads, "no negative entry")
    return pads[:rank], pads[rank:]
