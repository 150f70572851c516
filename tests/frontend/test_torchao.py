"""Programs of torchao's quantizers: integers of weights stay integers, what is computed at run time is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.ao.quantization.fx._decomposed  # noqa: E402, F811 (registers the library quantized_decomposed)

import mrt  # noqa: E402
from mrt.errors import UnsupportedOperatorError  # noqa: E402
from mrt.frontend.torch import from_torch  # noqa: E402
from mrt.frontend.torch.torchao import know_torchao  # noqa: E402
from mrt.symbol import Graph, NumpyRunner  # noqa: E402
from mrt.symbol.operators.integer import Dequantize, Quantize  # noqa: E402

ROWS, COLUMNS = 6, 8


class Weights(torch.nn.Module):
    """A dense layer whose weight is stored as torchao stores it: one scale for each block of integers."""

    def __init__(self, block: tuple[int, int], has_zero: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.block = block
        scales = (ROWS // block[0], COLUMNS // block[1])
        self.register_buffer("stored", torch.randint(-8, 8, (ROWS, COLUMNS), generator=generator, dtype=torch.int8))
        self.register_buffer("scale", torch.rand(scales, generator=generator) / 10 + 0.01)
        self.register_buffer("zero", torch.randint(-3, 4, scales, generator=generator, dtype=torch.int8))
        self.has_zero = has_zero

    def forward(self, x: Any) -> Any:
        zero = self.zero if self.has_zero else None
        weight = torch.ops.torchao.dequantize_affine(self.stored, self.block, self.scale, zero, torch.int8, -8, 7)
        return torch.nn.functional.linear(x, weight)

    def weight(self) -> np.ndarray:
        """What the integers stand for."""
        zero = self.zero if self.has_zero else torch.zeros_like(self.zero)
        scale, zeros = (np.kron(values.numpy(), np.ones(self.block)) for values in (self.scale, zero))
        return (self.stored.numpy() - zeros) * scale


def exported(model: Any, x: Any, tmp_path: Path) -> list[Graph]:
    """The graphs of a program as an object and as a file."""
    know_torchao()
    program = torch.export.export(model.eval(), (x,))
    torch.export.save(program, tmp_path / "model.pt2")
    return [from_torch(program), mrt.load_model(tmp_path / "model.pt2")]


BLOCKS = [(1, COLUMNS), (ROWS, COLUMNS), (1, 4)]
"""One scale for a row, for all, and for a part of a row."""
ROWS_OF_DATA = torch.randn(3, COLUMNS, generator=torch.Generator().manual_seed(1))


class Layers(torch.nn.Module):
    """Layers of every block, with zero points and without, of the same data."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Weights(block, zero) for block in BLOCKS for zero in (True, False))

    def forward(self, x: Any) -> Any:
        return [layer(x) for layer in self.layers]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> tuple[Layers, list[Graph]]:
    model = Layers()
    return model, exported(model, ROWS_OF_DATA, tmp_path_factory.mktemp("layers"))


@pytest.mark.parametrize("way", [0, 1], ids=["object", "file"])
def test_layers_give_what_their_integers_stand_for(read: tuple[Layers, list[Graph]], way: int) -> None:
    """Scales of blocks become those of elements where no operator has them."""
    (model, graphs), x = read, ROWS_OF_DATA.numpy()
    graph = graphs[way]
    for found, layer in zip(graph.evaluate({graph.inputs[0].name: x}), model.layers, strict=True):
        np.testing.assert_allclose(found, x @ layer.weight().T, rtol=1e-5, atol=1e-6, err_msg=str(layer.block))


@pytest.mark.parametrize("way", [0, 1], ids=["object", "file"])
def test_weights_stay_integers(read: tuple[Layers, list[Graph]], way: int) -> None:
    model, graphs = read
    whole = [pair for pair in zip(graphs[way].outputs, model.layers, strict=True) if pair[1].block[1] == COLUMNS]
    assert len(whole) == 4
    for output, layer in whole:
        weight = output.inputs[1]
        assert isinstance(weight.operator, Dequantize)
        np.testing.assert_array_equal(graphs[way].value(weight.inputs[0]), layer.stored.numpy())
        assert weight.inputs[1].shape == ((ROWS, 1) if layer.block[0] == 1 else ())


def test_static_activations(tmp_path: Path) -> None:
    """One block is one scale; bounds that are narrower than the integers are kept."""

    class Static(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            scale, zero = torch.tensor([0.25]), torch.tensor([3], dtype=torch.int8)
            q = torch.ops.torchao.quantize_affine(x, (4, 5), scale, zero, torch.int8, -7, 7)
            return torch.ops.torchao.dequantize_affine(q, (4, 5), scale, zero, torch.int8, -7, 7)

    x = torch.linspace(-4, 4, 20).reshape(4, 5)
    wanted = (np.clip(np.rint(x.numpy() / 0.25) + 3, -7, 7) - 3) * 0.25
    for graph in exported(Static(), x, tmp_path):
        assert any(isinstance(symbol.operator, Quantize) for symbol in graph.operators)
        np.testing.assert_array_equal(graph.evaluate({graph.inputs[0].name: x.numpy()})[0], wanted)


def test_an_integer_weight_that_is_cast_stays_integers() -> None:
    """As Int8WeightOnlyConfig computes: the product with the integers themselves, times the scales of the rows."""

    class Cast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("stored", torch.arange(-24, 24, dtype=torch.int8).reshape(ROWS, COLUMNS))
            self.register_buffer("scale", torch.linspace(0.1, 0.6, ROWS))

        def forward(self, x: Any) -> Any:
            return torch.mm(x, self.stored.t().to(torch.float32)) * self.scale

    model, x = Cast(), torch.randn(3, COLUMNS, generator=torch.Generator().manual_seed(3))
    graph = from_torch(torch.export.export(model, (x,)))
    np.testing.assert_allclose(graph.evaluate({"x": x.numpy()})[0], model(x).numpy(), rtol=1e-5)
    quantized = mrt.quantize(graph, [x.numpy()], runner=NumpyRunner())
    (weight,) = (value for value in quantized.graph.parameters.values() if value.shape == (ROWS, COLUMNS))
    np.testing.assert_array_equal(weight, model.stored.numpy())


@pytest.mark.parametrize("operator", ["choose_qparams", "per_token"])
def test_scales_computed_at_run_time_are_refused_with_what_to_do(operator: str, tmp_path: Path) -> None:
    decomposed = torch.ops.quantized_decomposed

    class Dynamic(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            if operator == "per_token":
                scale, zero = torch.full((2, 1), 0.1), torch.zeros((2, 1), dtype=torch.int64)
                return decomposed.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
            scale, zero = decomposed.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
            return decomposed.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)

    program = torch.export.export(Dynamic(), (torch.randn(2, 3),))
    torch.export.save(program, tmp_path / "model.pt2")
    for read in (lambda: from_torch(program), lambda: mrt.load_model(tmp_path / "model.pt2")):
        with pytest.raises(UnsupportedOperatorError, match=rf"{operator}.*quantize activations statically"):
            read()
