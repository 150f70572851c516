"""Quantized PyTorch programs, as PyTorch itself computes them; what is stored in integers stays so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.ao.quantization.fx._decomposed  # noqa: E402, F811 (registers the library quantized_decomposed)

import mrt  # noqa: E402
from mrt.errors import UnsupportedOperatorError  # noqa: E402
from mrt.frontend.torch import from_torch  # noqa: E402
from mrt.symbol import Graph  # noqa: E402
from mrt.symbol.operators.integer import Dequantize, Quantize  # noqa: E402

decomposed = torch.ops.quantized_decomposed
CHANNELS = 4


def rounded(x: Any, scale: float, zero: int, low: int = 0, high: int = 255, dtype: Any = torch.uint8) -> Any:
    q = decomposed.quantize_per_tensor(x, scale, zero, low, high, dtype)
    return decomposed.dequantize_per_tensor(q, scale, zero, low, high, dtype)


class Quantized(torch.nn.Module):
    """As PyTorch's quantization converts a model: a weight of integers, one that is quantized, rounded activations."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.register_buffer(
            "kernel", torch.randint(-127, 128, (CHANNELS, 3, 3, 3), generator=generator, dtype=torch.int8)
        )
        self.register_buffer("scales", torch.rand(CHANNELS, generator=generator) / 100 + 0.001)
        self.register_buffer("zeros", torch.zeros(CHANNELS, dtype=torch.int64))
        self.register_buffer("bias", torch.randn(CHANNELS, generator=generator))
        self.register_buffer("dense", torch.randn(5, CHANNELS * 36, generator=generator))

    def forward(self, x: Any) -> Any:
        x = rounded(x, 0.03, 128)
        kernel = decomposed.dequantize_per_channel(self.kernel, self.scales, self.zeros, 0, -127, 127, torch.int8)
        x = torch.relu(torch.nn.functional.conv2d(x, kernel, self.bias, padding=1))
        x = torch.flatten(rounded(x, 0.01, 0, 0, 127), 1)
        scale, zero = torch.full((5,), 0.02), torch.zeros(5, dtype=torch.int64)
        q = decomposed.quantize_per_channel(self.dense, scale, zero, 0, -127, 127, torch.int8)
        dense = decomposed.dequantize_per_channel(q, scale, zero, 0, -127, 127, torch.int8)
        return rounded(torch.nn.functional.linear(x, dense), 0.2, 10, -128, 127, torch.int8)


class Fake(torch.nn.Module):
    """As a model in quantization-aware training rounds: limits of 4 bits, then of 8 for each channel."""

    def forward(self, x: Any) -> Any:
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7)
        scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2], dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, 0, 255)


def check(model: Any, shape: tuple[int, ...]) -> tuple[Any, Graph]:
    """The program and its graph, which gives what PyTorch does, at every rounding alike."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    program = torch.export.export(model.eval(), (x,))
    graph = from_torch(program)
    (found,) = graph.evaluate({graph.inputs[0].name: x.numpy()})
    np.testing.assert_allclose(found, model(x).numpy(), atol=1e-6)
    return program, graph


def test_a_quantized_program(tmp_path: Path) -> None:
    """Weights are integers in the graph, whether they were stored so or are quantized there; so it is from a file."""
    program, graph = check(Quantized(), (1, 3, 6, 6))
    torch.export.save(program, tmp_path / "model.pt2")
    for each in (graph, mrt.load_model(tmp_path / "model.pt2")):
        layers = [symbol for symbol in each.operators if symbol.op in ("Convolution", "FullyConnected")]
        for layer, scales in zip(layers, ((CHANNELS, 1, 1, 1), ()), strict=True):
            weight = layer.inputs[1]
            assert isinstance(weight.operator, Dequantize)
            assert weight.inputs[0].dtype == "int8"
            assert weight.inputs[1].shape == scales


def test_bounds_that_are_narrower_than_the_integers() -> None:
    """Data is cut where the bounds lie: 127 of uint8 is the largest integer that comes out."""

    class Narrow(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return rounded(x, 0.01, 0, 0, 127)

    _, graph = check(Narrow(), (2, 50))
    (integers,) = (symbol for symbol in graph.operators if isinstance(symbol.operator, Quantize))
    found = Graph(graph.inputs, (integers,), graph.parameters).evaluate({"x": np.linspace(-9, 9, 100).reshape(2, 50)})
    assert (found[0].min(), found[0].max()) == (0, 127)


def test_fake_quantize() -> None:
    check(Fake(), (2, 3, 4))


@pytest.mark.parametrize("kind", ["quantize", "fake"])
def test_scales_that_are_tensors(kind: str) -> None:
    class Tensors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor([0.25]))
            self.register_buffer("zero", torch.tensor([7], dtype=torch.int32))

        def forward(self, x: Any) -> Any:
            if kind == "fake":
                return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, 0, 255)
            q = decomposed.quantize_per_tensor.tensor(x, self.scale, self.zero, 0, 255, torch.uint8)
            return decomposed.dequantize_per_tensor.tensor(q, self.scale, self.zero, 0, 255, torch.uint8)

    check(Tensors(), (3, 4))


def refused(forward: Callable[[Any], Any]) -> str:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return forward(x)

    with pytest.raises(UnsupportedOperatorError) as caught:
        from_torch(torch.export.export(Model(), (torch.randn(2, 3),)))
    return str(caught.value)


def test_scales_that_the_data_decide_are_refused() -> None:
    def forward(x: Any) -> Any:
        scale = x.abs().max() / 127
        zero = torch.zeros((), dtype=torch.int64)
        q = decomposed.quantize_per_tensor.tensor(x, scale, zero, -127, 127, torch.int8)
        return decomposed.dequantize_per_tensor.tensor(q, scale, zero, -127, 127, torch.int8)

    assert "computed from the data; a constant is needed" in refused(forward)
