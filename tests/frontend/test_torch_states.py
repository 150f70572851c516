"""Programs that change their buffers, or their inputs, are read with states: streams of them are PyTorch's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from mrt.api import quantize
from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.torch import from_torch
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, NumpyRunner
from mrt.symbol.states import states_of
from mrt.symbol.stream import stream_of

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

RNG = np.random.default_rng(0)


class Causal(nn.Module):  # type: ignore[misc]
    """A dilated causal convolution that keeps the columns before."""

    def __init__(self, channels: int, filters: int, taps: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, taps, dilation=dilation)
        self.register_buffer("past", torch.zeros(1, channels, (taps - 1) * dilation))

    def forward(self, x: Any) -> Any:
        joined = torch.cat([self.past, x], 2)
        self.past.copy_(joined[:, :, -self.past.shape[2] :])
        return self.conv(joined)


class Denoiser(nn.Module):  # type: ignore[misc]
    """Two streaming convolutions, and a running mean, a buffer without an axis for the batch that begins at 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Causal(4, 8, 3, 1), Causal(8, 8, 3, 2)
        self.register_buffer("level", torch.full((8,), 0.5))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.second(torch.relu(self.first(x)))).mean(2)
        self.level.mul_(0.9).add_(y[0], alpha=0.1)
        return y - self.level


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(6, 16), nn.Linear(16, 4)
        self.register_buffer("h", torch.zeros(1, 16))
        self.register_buffer("c", torch.zeros(1, 16), persistent=False)

    def forward(self, x: Any) -> Any:
        h, c = self.cell(x, (self.h, self.c))
        self.h.copy_(h)
        self.c.copy_(c)
        return self.out(h)


class Decoder(nn.Module):  # type: ignore[misc]
    """One head of attention over a key and value cache of fixed length, written where `place`, a one-hot, says."""

    LENGTH, WIDTH = 8, 8

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Linear(5, 8), nn.Linear(8, 24), nn.Linear(8, 6)
        self.register_buffer("keys", torch.zeros(1, self.LENGTH, self.WIDTH))
        self.register_buffer("values", torch.zeros(1, self.LENGTH, self.WIDTH))
        self.register_buffer("written", torch.zeros(1, self.LENGTH))

    def forward(self, x: Any, place: Any) -> Any:
        h = self.embed(x)
        q, k, v = self.qkv(h)[:, None].chunk(3, 2)
        here = place[:, :, None] > 0.5
        self.keys.copy_(torch.where(here, k, self.keys))
        self.values.copy_(torch.where(here, v, self.values))
        self.written.copy_(torch.maximum(self.written, place))
        scores = q @ self.keys.transpose(1, 2) / self.WIDTH**0.5 + (self.written[:, None] - 1) * 20
        return self.out((scores.softmax(-1) @ self.values)[:, 0] + h)


def drawn(steps: int) -> dict[type[nn.Module], dict[str, np.ndarray]]:
    places = np.eye(Decoder.LENGTH, dtype=np.float32)[np.arange(steps) % Decoder.LENGTH]
    normal = {shape: RNG.uniform(-1, 1, (steps, *shape)).astype(np.float32) for shape in ((4, 2), (6,), (5,))}
    return {
        Denoiser: {"x": normal[4, 2]},
        Recurrent: {"x": normal[(6,)]},
        Decoder: {"x": normal[(5,)], "place": places},
    }


STEPS = 1000
DATA = drawn(STEPS)


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


@cache
def read(kind: type[nn.Module]) -> Graph:
    arguments = tuple(torch.tensor(value[:1]) for value in DATA[kind].values())
    return from_torch(torch.export.export(made(kind), arguments))


def by_torch(model: nn.Module, feeds: Mapping[str, np.ndarray], steps: int) -> np.ndarray:
    with torch.no_grad():
        found = [model(*(torch.tensor(x[step : step + 1]) for x in feeds.values())).numpy() for step in range(steps)]
    return np.concatenate(found)


@pytest.mark.parametrize("kind", DATA, ids=lambda kind: kind.__name__)
def test_streams_are_those_of_torch(kind: type[nn.Module]) -> None:
    model, graph = made(kind), read(kind)
    feeds = {name: x[:20] for name, x in DATA[kind].items()}
    (found,) = stream_of(graph, NumpyRunner()).along(feeds)
    np.testing.assert_allclose(found, by_torch(model, feeds, 20), atol=1e-5)
    assert [symbol.name for symbol in graph.inputs][: len(feeds)] == list(feeds)
    assert {state.name for state in states_of(graph)} == dict(model.named_buffers()).keys()


@pytest.mark.parametrize(("kind", "steps", "least"), [(Denoiser, 200, 37), (Recurrent, STEPS, 43), (Decoder, 200, 33)])
def test_integers_do_not_drift(kind: type[nn.Module], steps: int, least: float) -> None:
    feeds = {name: x[:steps] for name, x in DATA[kind].items()}
    wanted = by_torch(made(kind), feeds, steps)
    calibration = {name: x[-200:] for name, x in DATA[kind].items()}
    model = quantize(read(kind), calibration, QuantizationConfig(preset="fast"), runner=NumpyRunner())
    (found,) = model.compile().stream().along(feeds)
    for end in {10, 100, steps}:
        signal, error = np.square(wanted[:end]).sum(), np.square(wanted[:end] - found[:end]).sum()
        assert 10 * np.log10(signal / error) > least
    first = {name: x[:10] for name, x in feeds.items()}
    np.testing.assert_array_equal(model.stream().along(first)[0], found[:10])


# What is no state


class Counting(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        self.count += 1
        return x + self.count


class Writing(nn.Module):  # type: ignore[misc]
    """Writes where an integer input says."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 4, 3))

    def forward(self, x: Any, place: Any) -> Any:
        self.cache[:, place] = x[:, None]
        return self.cache.sum(1)


def test_what_cannot_be_kept_is_said() -> None:
    with pytest.raises(GraphError, match=r"changes count \(torch.int64\) while it runs, and only real values are kept"):
        from_torch(torch.export.export(Counting().eval(), (torch.randn(2, 3),)))
    writing = torch.export.export(Writing().eval(), (torch.randn(1, 3), torch.tensor([1])))
    with pytest.raises(UnsupportedOperatorError, match=r"torch\.where\(mask, new, cache\)"):
        from_torch(writing)

    class InPlace(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.mul_(2)

    with pytest.raises(GraphError, match=r"forward\(\) writes into x, all that it is given"):
        from_torch(torch.export.export(InPlace().eval(), (torch.randn(2, 3),)))


def test_an_input_that_is_written_is_a_state() -> None:
    class Sum(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, total: Any) -> Any:
            return total.add_(x) * 2

    program = torch.export.export(Sum(), (torch.randn(1, 3), torch.randn(1, 3)))
    stream = stream_of(from_torch(program), NumpyRunner())
    ones = np.ones((1, 3), np.float32)
    assert [float(stream(ones)[0, 0]) for _ in range(3)] == [2, 4, 6]


def test_a_program_that_is_read_stays_as_it_was() -> None:
    torch.manual_seed(0)
    program = torch.export.export(Recurrent().eval(), (torch.randn(1, 6),))
    before = [str(spec) for spec in program.graph_signature.output_specs], list(program.constants)
    assert str(from_torch(program)) == str(from_torch(program))
    assert ([str(spec) for spec in program.graph_signature.output_specs], list(program.constants)) == before
