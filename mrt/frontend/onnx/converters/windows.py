"""Sliding windows of convolution and pooling: kernel, stride, dilation and padding from all forms of attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node


@dataclass(frozen=True)
class Windows:
    """How windows lie over the spatial axes; every field has one entry per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def is_symmetric(self) -> bool:
        return self.begins == self.ends

    @property
    def spans(self) -> tuple[int, ...]:
        """How many elements a window reaches over, dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))


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
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    begins, ends = _pads(node, spatial, stride, spans)
    return Windows(tuple(kernel), stride, dilation, begins, ends)


def sizes_of(node: Node, name: str, rank: int) -> tuple[int, ...]:
    values = node.integers(name) or (1,) * rank
    if len(values) != rank or min(values) < 1:
        raise GraphError(f"{node.label}: attribute {name} is {values}; {rank} sizes of at least 1 are needed")
    return values


def _pads(
    node: Node, spatial: Sequence[int], stride: Sequence[int], spans: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements of padding before and after each spatial axis."""
    rank = len(spatial)
    mode = node.text("auto_pad", "NOTSET")
    if mode == "VALID":
        return (0,) * rank, (0,) * rank
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-size // step) - 1) * step + span - size, 0)
            for size, step, span in zip(spatial, stride, spans, strict=True)
        ]
        halves, rests = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        return (halves, rests) if mode == "SAME_UPPER" else (rests, halves)
    if mode != "NOTSET":
        raise node.unsupported("attribute auto_pad", mode, "NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    pads = node.integers("pads") or (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise GraphError(f"{node.label}: attribute pads is {pads}; {2 * rank} entries are needed")
    if min(pads) < 0:
        raise node.unsupported("attribute pads", pads, "no negative entry")
    return pads[:rank], pads[rank:]
