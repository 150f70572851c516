"""Random integer graphs of up to twelve operators: what is compiled equals what the graph means."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_values, op
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrt.backend import TvmRunner
from mrt.backend.schedule import serial
from mrt.compilation import NATIVE, Target
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType

DTYPES = {"uint8": (0, 255), "int8": (-127, 127), "int16": (-3000, 3000)}
TARGETS: dict[str, Target] = {
    "native": NATIVE,
    "two threads": {"threads": 2},
    "without tiles": {"features": ["-amx-int8"]},
    "x86-64": {"kind": "llvm", "mcpu": "x86-64"},
    "tiles": {"kind": "llvm", "mcpu": "sapphirerapids"},
}


class Growing:
    """A graph that grows operator by operator; `pool` holds the tensors that the next one may read."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.builder = GraphBuilder()
        longest = draw(st.sampled_from([(20,), (9, 9), (9, 9), (9, 9), (4, 4, 4)]))
        shape = (draw(st.integers(1, 3)), draw(st.integers(1, 48)), *(draw(st.integers(1, n)) for n in longest))
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
        kinds = ["relu", "add", "self", "scale", "table", "divide", "shift"]
        if data.type.rank > 2:
            kinds += ["convolution", "depthwise", "grouped", "residual", "pad", "pool", "concat", "slice", "shuffle"]
            kinds += ["deconvolution", "rows", "columns", "matrix", "flatten"]
        made = getattr(self, f"_{self.draw(st.sampled_from(kinds))}")(data)
        self.pool.append(self.narrowed(made) if made.dtype == "int32" else made)

    def _relu(self, data: Symbol) -> Symbol:
        return self.apply("relu", [data])

    def _alike(self, data: Symbol) -> Symbol:
        return self.draw(st.sampled_from([s for s in self.pool if s.shape == data.shape]))

    def _add(self, data: Symbol) -> Symbol:
        """Of two to four operands."""
        others = [self._alike(data) for _ in range(self.draw(st.integers(1, 3)))]
        return self.apply("add_n", [self.apply("Cast", [data], dtype="int32"), *others])

    def _divide(self, data: Symbol) -> Symbol:
        divisor = self.apply("clip", [self._alike(data)], a_min=1.0, a_max=float(self.draw(st.integers(1, 120))))
        return self.apply("floor_divide", [self.apply("Cast", [data], dtype="int32"), divisor])

    def _shift(self, data: Symbol) -> Symbol:
        least = self.draw(st.integers(0, 9))
        shift = self.apply(
            "clip", [self._alike(data)], a_min=float(least), a_max=float(least + self.draw(st.integers(0, 9)))
        )
        return self.apply("right_shift", [data, shift])

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
        pad = tuple(self.draw(st.integers(0, 2)) for _ in kernel)
        filters = self.draw(st.integers(1, 40))
        reach = self.draw(st.sampled_from([("int8", 127), ("int16", 500)]))
        weight = self.values((filters, data.shape[1], *kernel), reach[0], -reach[1], reach[1])
        attributes = {"kernel": kernel, "stride": stride, "pad": pad, "num_filter": filters, "no_bias": True}
        return self.apply("Convolution", [data, weight], **attributes)

    def _grouped(self, data: Symbol) -> Symbol:
        channels, kernel = data.shape[1], (1,) * (data.type.rank - 2)
        groups = self.draw(st.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
        filters = groups * self.draw(st.integers(1, max(40 // groups, 1)))
        weight = self.values((filters, channels // groups, *kernel), "int8", -7, 7)
        attributes = {"kernel": kernel, "num_filter": filters, "num_group": groups, "no_bias": True}
        return self.apply("Convolution", [data, weight], **attributes)

    def _depthwise(self, data: Symbol) -> Symbol:
        kernel = tuple(self.draw(st.integers(1, min(3, n))) for n in data.shape[2:])
        filters = data.shape[1]
        weight = self.values((filters, 1, *kernel), "int8", -127, 127)
        attributes = {"kernel": kernel, "num_filter": filters, "num_group": filters, "no_bias": True}
        return self.apply("Convolution", [data, weight], **attributes)

    def _residual(self, data: Symbol) -> Symbol:
        """The sum of the data and of a convolution of it, which may be written over the data."""
        channels, kernel = data.shape[1], (1,) * (data.type.rank - 2)
        weight = self.values((channels, channels, *kernel), "int8", -127, 127)
        made = self.apply("Convolution", [data, weight], kernel=kernel, num_filter=channels, no_bias=True)
        return self.apply("elemwise_add", [self.narrowed(made), data])

    def _deconvolution(self, data: Symbol) -> Symbol:
        groups = 2 if data.shape[1] % 2 == 0 else 1
        axes = data.type.rank - 2
        kernel, stride = (2, 3, 1)[:axes], (2, 3, 1)[:axes]
        pad = tuple(self.draw(st.integers(0, int(min(s, n) > 1))) for s, n in zip(stride, data.shape[2:], strict=True))
        adj = tuple(self.draw(st.integers(0, s - 1)) for s in stride)
        weight = self.values((data.shape[1], 5, *kernel), "int8", -127, 127)
        attributes = {"kernel": kernel, "num_filter": 5 * groups, "num_group": groups}
        return self.apply("Deconvolution", [data, weight], stride=stride, pad=pad, adj=adj, **attributes)

    def _pad(self, data: Symbol) -> Symbol:
        widths = tuple(self.draw(st.integers(0, 2)) for _ in data.shape[2:] * 2)
        if more := self.draw(st.sampled_from([0, 0, 3, 20])):
            widths = (0,) * len(widths)
        return self.apply(
            "Pad", [data], pad_width=(0, 0, 0, more, *widths), constant_value=float(self.draw(st.integers(0, 3)))
        )

    def _pool(self, data: Symbol) -> Symbol:
        kernel = tuple(self.draw(st.integers(1, n)) for n in data.shape[2:])
        kind = self.draw(st.sampled_from(["max", "sum"]))
        return self.apply("Pooling", [data], kernel=kernel, stride=(1, 2, 1)[: len(kernel)], pool_type=kind)

    def _concat(self, data: Symbol) -> Symbol:
        fits = [
            s for s in self.pool if (s.shape[:1], s.shape[2:], s.dtype) == (data.shape[:1], data.shape[2:], data.dtype)
        ]
        joined = self.apply("Concat", [data, self.draw(st.sampled_from(fits))], dim=1)
        return self.apply("Concat", [data, joined], dim=1) if self.draw(st.booleans()) else joined

    def _slice(self, data: Symbol) -> Symbol:
        begin = tuple(self.draw(st.integers(0, n - 1)) for n in data.shape[1:])
        end = tuple(self.draw(st.integers(b + 1, n)) for b, n in zip(begin, data.shape[1:], strict=True))
        step = tuple(self.draw(st.sampled_from([1, 1, 2, 3])) for _ in begin)
        return self.apply("slice", [data], begin=(None, *begin), end=(None, *end), step=(None, *step))

    def _shuffle(self, data: Symbol) -> Symbol:
        batch, channels, *spatial = data.shape
        groups = self.draw(st.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
        apart = self.apply("Reshape", [data], shape=(batch, groups, channels // groups, *spatial))
        turned = self.apply("transpose", [apart], axes=(0, 2, 1, *range(3, 3 + len(spatial))))
        return self.apply("Reshape", [turned], shape=(batch, channels, *spatial))

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
    kept = [s for s in growing.pool if draw(st.booleans())]
    if all(s is growing.input for s in kept):
        kept.append(growing.pool[-1])
    lo, hi = DTYPES[growing.input.dtype]
    fed = growing.random.integers(lo, hi, growing.input.shape, endpoint=True).astype(growing.input.dtype)
    return growing.builder.graph(kept), fed


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_compiled_equals_evaluated(target: str, drawn: tuple[Graph, np.ndarray]) -> None:
    """Threads share every loop that they may."""
    graph, fed = drawn
    runner = TvmRunner(TARGETS[target])
    feeds = {"x": fed}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serial, "WORTH_THREADS", 0)
        assert_same_values(graph, runner.prepare(graph)(feeds), graph.evaluate(feeds))
