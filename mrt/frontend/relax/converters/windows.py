"""Operators with sliding windows: convolution, its transpose and pooling."""

from __future__ import annotations

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.tvm import windows
from mrt.frontend.tvm.windows import convolution, deconvolution
from mrt.symbol import Symbol

converter("nn.conv1d", "nn.conv2d", "nn.conv3d")(convolution)
converter("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")(deconvolution)


@converter(*(f"nn.{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)))
def pooling(node: Node) -> Symbol:
    return windows.pooling(node, drops_last=True)


@converter("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
def adaptive_pooling(node: Node) -> Symbol:
    return windows.adaptive_pooling(node, node.integers("output_size"))
