"""A network for benchmarks that take any file: a convolution of each kind, in a few kernels that are soon compiled."""

from __future__ import annotations

from pathlib import Path

import onnx
from loaded import load_benchmark

CONVOLUTIONS = 3


def save_small_network(path: Path) -> Path:
    """The file; images of 3 channels, of 16 x 16 pixels, to scores of 5 classes."""
    b = load_benchmark("network_builder").Builder((3, 16, 16), 0)
    x = b.relu(b.convolution(b.input, 16, 3))
    x = b.relu(b.convolution(x, 16, 3, depthwise=True))
    x = b.relu(b.convolution(x, 32, 1))
    onnx.save(b.model("small", b.classifier(b.global_average(x), 5)), path)
    return path
