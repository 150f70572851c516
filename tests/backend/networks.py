"""A small convolutional network in integers, with what its integers stand for."""

from __future__ import annotations

import numpy as np
from compiled import op

from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.quantized_tensor import TensorQuantization


class IntegerNetwork:
    """Convolutions (dense, strided, depthwise, pointwise), a residual, pooling and a fully connected layer."""

    def __init__(self, batch: int, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._builder = builder = GraphBuilder()
        x = builder.input("image", TensorType((batch, 3, 18, 18), "int8"))
        first = self._convolution(x, 24, (3, 3), 5)
        wide = self._convolution(first, 24, (3, 3), 4, pad=(1, 1), num_group=24)
        wide = self._convolution(wide, 24, (1, 1), 6)
        total = builder.apply(op("elemwise_add"), [first, wide])
        total = self._store(builder.apply(op("relu"), [total]), 1, 24)
        down = self._convolution(total, 40, (3, 3), 8, stride=(2, 2))
        pooled = builder.apply(op("Pooling", kernel=(2, 2), stride=(2, 2), pooling_convention="full"), [down])
        sums = builder.apply(op("Pooling", global_pool=True, pool_type="sum"), [pooled])
        flat = builder.apply(op("Flatten"), [sums])
        weight = builder.parameter("weight", self._random.integers(-127, 128, (10, 40)).astype(np.int8))
        logits = builder.apply(op("FullyConnected", num_hidden=10, no_bias=True), [flat, weight], "logits")
        self.graph: Graph = builder.graph([logits, down])
        self.inputs = (TensorQuantization("image", x.shape, "int8", 0.05, 0, -127, 127),)
        self.outputs = (
            TensorQuantization("logits", logits.shape, "int32", 0.125, 0, -(2**31), 2**31 - 1),
            TensorQuantization(down.name, down.shape, "int8", self._random.random((1, 40, 1, 1)) + 0.1, 0, -127, 127),
        )

    def images(self, count: int) -> np.ndarray:
        """Real images of any number."""
        return (self._random.standard_normal((count, 3, 18, 18)) * 2).astype(np.float32)

    def _convolution(self, x: Symbol, filters: int, kernel: tuple[int, int], shift: int, **attributes) -> Symbol:
        shape = (filters, x.shape[1] // attributes.get("num_group", 1), *kernel)
        weight = self._builder.parameter("weight", self._random.integers(-127, 128, shape).astype(np.int8))
        bias = self._builder.parameter("bias", self._random.integers(-(2**12), 2**12, (filters,)).astype(np.int32))
        result = self._builder.apply(
            op("Convolution", kernel=kernel, num_filter=filters, **attributes), [x, weight, bias]
        )
        return self._store(result, shift, filters)

    def _store(self, x: Symbol, shift: int, channels: int) -> Symbol:
        """Requantized per channel into int8."""
        factor = self._builder.parameter("frac", self._random.integers(1, 4, (1, channels, 1, 1)).astype(np.int32))
        shifts = (shift + self._random.integers(0, 3, (1, channels, 1, 1))).astype(np.int32)
        shifts[0, 0] = 0 if shift == 1 else shifts[0, 0]
        scaled = self._builder.apply(op("broadcast_mul"), [x, factor])
        scaled = self._builder.apply(op("right_shift"), [scaled, self._builder.parameter("shift", shifts)])
        clipped = self._builder.apply(op("clip", a_min=-127, a_max=127), [scaled])
        return self._builder.apply(op("Cast", dtype="int8"), [clipped])
