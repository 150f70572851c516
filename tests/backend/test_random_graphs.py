"""Random integer graphs of up to twelve operators: what is compiled equals what the graph means."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import compare, op
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrt.backend import TvmRunner
from mrt.compilation import NATIVE, Target
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType

DTYPES = {"uint8": (0, 255), "int8": (-127, 127), "int16": (-3000, 3000)}
TARGETS: dict[str, Target] = {
    "native": NATIVE,
    "without tiles": {"features": ["-amx-int8"]},
    "x86-64": {"kind": "llvm", "mcpu": "x86-64"},
}


class Growing:
    """A graph that grows operator by operator; `pool` holds the tensors that the next one may read."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.builder = GraphBuilder()
        shape = (draw(st.integers(1, 2)), draw(st.integers(1, 48)), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
        self.input = self.builder.input("x", TensorType(shape, draw(st.sampled_from(list(DTYPES)))))
        self.pool = [self.input]

    def values(self, shape: tuple[int, ...], dtype: str, lo: int, hi: int) -> Symbol:
        return self.builder.parameter("p", self.random.integers(lo, hi, shape, endpoint=True).astype(dtype))

    def narrowed(self, data: Symbol) -> Symbol:
        """Requantized by channel, to a dtype that is drawn."""
        dtype = self.draw(st.sampled_from(list(DTYPES)))
        channels = (1, data.shape[1], *(1,) * (data.type.rank - 2))
        lo, hi = DTYPES[dtype]
        shifted = self.apply("right_shift", [data, self.values(channels, "int8", 0, 12)])
        biased = self.apply("broadcast_add", [shifted, self.values(channels, "int16", -99, 99)])
        return self.apply("Cast", [self.apply("clip", [biased], a_min=float(lo), a_max=float(hi))], dtype=dtype)

    def apply(self, name: str, inputs: list[Symbol], **attributes: object) -> Symbol:
        return self.builder.apply(op(name, **attributes), inputs)

    def grow(self) -> None:
        data = self.draw(st.sampled_from(self.pool))
        kinds = ["relu", "add", "self", "scale", "table"]
        if data.type.rank == 4:
            kinds += ["convolution", "depthwise", "residual", "pad", "pool", "concat", "slice", "shuffle", "flatten"]
            kinds += ["deconvolution", "rows", "columns", "matrix"]
        made = getattr(self, f"_{self.draw(st.sampled_from(kinds))}")(data)
        self.pool.append(self.narrowed(made) if made.dtype == "int32" else made)

    def _relu(self, data: Symbol) -> Symbol:
        return self.apply("relu", [data])

    def _add(self, data: Symbol) -> Symbol:
        other = self.draw(st.sampled_from([s for s in self.pool if s.shape == data.shape]))
        return self.apply("elemwise_add", [self.apply("Cast", [data], dtype="int32"), other])

    def _self(self, data: Symbol) -> Symbol:
        return self.apply("elemwise_mul", [self.apply("Cast", [data], dtype="int32"), data])

    def _scale(self, data: Symbol) -> Symbol:
        shape = self.draw(st.sampled_from([(1,), (1, data.shape[1], *(1,) * (data.type.rank - 2)), data.shape[1:]]))
        return self.apply(
            "broadcast_mul", [self.apply("Cast", [data], dtype="int32"), self.values(shape, "int8", -9, 9)]
        )

    def _convolution(self, data: Symbol) -> Symbol:
        kernel = tuple(self.draw(st.integers(1, min(3, n))) for n in data.shape[2:])
        stride = tuple(self.draw(st.integers(1, 3)) for _ in kernel)
        filters = self.draw(st.integers(1, 40))
        reach = self.draw(st.sampled_from([("int8", 127), ("int16", 500)]))
        weight = self.values((filters, data.shape[1], *kernel), reach[0], -reach[1], reach[1])
        return self.apply("Convolution", [data, weight], kernel=kernel, stride=stride, num_filter=filters, no_bias=True)

    def _depthwise(self, data: Symbol) -> Symbol:
        kernel = tuple(self.draw(st.integers(1, min(3, n))) for n in data.shape[2:])
        filters = data.shape[1]
        weight = self.values((filters, 1, *kernel), "int8", -127, 127)
        attributes = {"kernel": kernel, "num_filter": filters, "num_group": filters, "no_bias": True}
        return self.apply("Convolution", [data, weight], **attributes)

    def _residual(self, data: Symbol) -> Symbol:
        """The sum of the data and of a convolution of it, which may be written over the data."""
        channels = data.shape[1]
        weight = self.values((channels, channels, 1, 1), "int8", -127, 127)
        made = self.apply("Convolution", [data, weight], kernel=(1, 1), num_filter=channels, no_bias=True)
        return self.apply("elemwise_add", [self.narrowed(made), data])

    def _deconvolution(self, data: Symbol) -> Symbol:
        groups = 2 if data.shape[1] % 2 == 0 else 1
        weight = self.values((data.shape[1], 5, 2, 3), "int8", -127, 127)
        attributes = {"kernel": (2, 3), "num_filter": 5 * groups, "num_group": groups, "stride": (2, 1)}
        return self.apply("Deconvolution", [data, weight], **attributes)

    def _pad(self, data: Symbol) -> Symbol:
        widths = tuple(self.draw(st.integers(0, 2)) for _ in range(4))
        return self.apply(
            "Pad", [data], pad_width=(0, 0, 0, 0, *widths), constant_value=float(self.draw(st.integers(0, 3)))
        )

    def _pool(self, data: Symbol) -> Symbol:
        kernel = tuple(self.draw(st.integers(1, n)) for n in data.shape[2:])
        kind = self.draw(st.sampled_from(["max", "sum"]))
        return self.apply("Pooling", [data], kernel=kernel, stride=(1, 2), pool_type=kind)

    def _concat(self, data: Symbol) -> Symbol:
        fits = [
            s for s in self.pool if (s.shape[:1], s.shape[2:], s.dtype) == (data.shape[:1], data.shape[2:], data.dtype)
        ]
        return self.apply("Concat", [data, self.draw(st.sampled_from(fits))], dim=1)

    def _slice(self, data: Symbol) -> Symbol:
        axis = self.draw(st.integers(1, 3))
        begin = self.draw(st.integers(0, data.shape[axis] - 1))
        return self.apply("slice_axis", [data], axis=axis, begin=begin, end=data.shape[axis])

    def _shuffle(self, data: Symbol) -> Symbol:
        batch, channels, *spatial = data.shape
        groups = self.draw(st.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
        apart = self.apply("Reshape", [data], shape=(batch, groups, channels // groups, *spatial))
        return self.apply(
            "Reshape", [self.apply("transpose", [apart], axes=(0, 2, 1, 3, 4))], shape=(batch, channels, *spatial)
        )

    def _table(self, data: Symbol) -> Symbol:
        lo, hi = DTYPES[data.dtype]
        return self.apply("table_lookup", [data, self.values((hi - lo + 1,), "int8", -127, 127)], offset=-lo)

    def _columns(self, data: Symbol) -> Symbol:
        """A product along the last axis, whatever axis is innermost in memory."""
        hidden = self.draw(st.integers(1, 20))
        weight = self.values((hidden, data.shape[-1]), "int8", -127, 127)
        return self.apply("FullyConnected", [data, weight], num_hidden=hidden, no_bias=True, flatten=False)

    def _matrix(self, data: Symbol) -> Symbol:
        turned = self.draw(st.booleans())
        return self.apply("batch_dot", [data, data], transpose_a=turned, transpose_b=not turned)

    def _flatten(self, data: Symbol) -> Symbol:
        return self.apply("Flatten", [data])

    def _rows(self, data: Symbol) -> Symbol:
        hidden = self.draw(st.integers(1, 20))
        weight = self.values((hidden, data.type.size // data.shape[0]), "int8", -127, 127)
        return self.apply("FullyConnected", [self.apply("Flatten", [data]), weight], num_hidden=hidden, no_bias=True)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, np.ndarray]:
    growing = Growing(draw)
    for _ in range(draw(st.integers(1, 12))):
        growing.grow()
    unread = [s for s in growing.pool[1:] if draw(st.booleans())] or growing.pool[-1:]
    lo, hi = DTYPES[growing.input.dtype]
    fed = growing.random.integers(lo, hi, growing.input.shape, endpoint=True).astype(growing.input.dtype)
    return growing.builder.graph(unread), fed


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_compiled_equals_evaluated(target: str, drawn: tuple[Graph, np.ndarray]) -> None:
    graph, fed = drawn
    runner = TvmRunner(TARGETS[target])
    feeds = {"x": fed}
    compare(graph, runner.prepare(graph)(feeds), graph.evaluate(feeds))
