"""PyTorch's images at places, windows, Fourier transforms and elements put at constant places, as PyTorch gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_programs import Each, check, check_each, export, random

from mrt.errors import MRTError, UnsupportedOperatorError
from mrt.frontend.torch import from_torch
from mrt.preparation import prepare
from tests.compiled_integers import assert_compiled_alike
from tests.quantization.networks import quantize_and_run, random_samples

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

IMAGES = random(2, 4, 6, 8)
GRID = random(1, 3, 5, 2, seed=3).expand(2, -1, -1, -1) * 0.4
PAIR = torch.tensor([0, 2, 2])


def test_grids() -> None:
    parts: dict[str, Any] = {}
    for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):
        options = {"mode": mode, "padding_mode": padding, "align_corners": mode == "nearest"}
        parts[mode] = lambda x, options=options: F.grid_sample(x, GRID, **options)
    theta = torch.tensor([[[0.7, 0.2, 0.1], [-0.2, 0.8, 0.0]]]).expand(2, -1, -1)
    parts["affine"] = lambda x: F.grid_sample(x, F.affine_grid(theta, (2, 4, 5, 3), False), align_corners=False)
    check_each(parts, IMAGES)
    volumes = random(1, 3, 2, 3, 4, seed=4) * 0.4
    check(lambda x: F.grid_sample(x, volumes[..., :3], align_corners=True), random(1, 2, 4, 5, 3))
    with pytest.raises(UnsupportedOperatorError, match="input grid is computed from the data; a constant"):
        from_torch(export(lambda x, grid: F.grid_sample(x, grid, align_corners=True), IMAGES, GRID.clone()))


def test_windows_and_views() -> None:
    check_each(
        {
            "unfold": lambda x: x.unfold(2, 3, 2).unfold(3, 2, 1),
            "unfold and fold": lambda x: F.fold(F.unfold(x, 2, stride=2), (6, 8), 2, stride=2),
            "overlapping": lambda x: F.fold(F.unfold(x, 3, padding=1), (6, 8), 3, padding=1),
            "dilated": lambda x: F.fold(F.unfold(x, 2, 2, 1, 2), (6, 8), 2, 2, 1, 2),
            "one image": lambda x: F.fold(F.unfold(x[0], 2), (6, 8), 2),
            "diagonal": lambda x: (x.diagonal(1, 2, 3), x.diagonal(-2, 3, 1)),
            "einsum": lambda x: torch.einsum("bchh->bh", x[..., :6]),
            "as_strided": lambda x: x.as_strided((2, 3, 2), (192, 8, 5), 1),
            "several indices": lambda x: (x[:, [0, 1], :, [2, 3]], x[:, :, torch.arange(6), torch.ones(6).long()]),
        },
        IMAGES,
    )


def test_what_is_put_at_places() -> None:
    rows = torch.tensor([0, 1, 1, 3]).reshape(1, 4, 1, 1).expand(2, 4, 6, 8)

    def assigned(place: Any, value: Any) -> Any:
        def body(x: Any) -> Any:
            y = x.clone()
            y[place] = value(x) if callable(value) else value
            return y

        return body

    every = slice(None)
    check_each(
        {
            "indices": assigned((every, PAIR), 1.5),
            "indices of two axes": assigned((every, PAIR[:2], PAIR[1:]), lambda x: x[:, 0, :2]),
            "steps": assigned((every, every, slice(None, None, 2)), 0),
            "mask": lambda x: assigned(x < 0, 0.5)(x),
            "accumulated": lambda x: x.index_put((PAIR.clamp(max=1),), x[0, 0, 0], accumulate=True),
            "index_add": lambda x: x.index_add(1, PAIR, x[:, :3], alpha=2),
            "index_copy": lambda x: x.index_copy(1, torch.tensor([3, 0]), x[:, 1:3]),
            "index_fill": lambda x: x.index_fill(1, PAIR, 0.5),
            "scatter_add": lambda x: torch.zeros(2, 4, 6, 8).scatter_add(1, rows, x),
            **{f"{kind}": lambda x, kind=kind: x.scatter_reduce(1, rows, x * 2, kind) for kind in ("prod", "amax")},
        },
        IMAGES,
    )
    with pytest.raises(UnsupportedOperatorError, match="argument include_self is False"):
        from_torch(export(lambda x: x.scatter_reduce(1, rows, x, "sum", include_self=False), IMAGES))


def test_fourier_transforms() -> None:
    weight = random(4, 6, 5, 2, seed=5)

    def filtered(x: Any) -> Any:
        spectrum = torch.fft.rfft2(x, dim=(2, 3), norm="ortho") * torch.view_as_complex(weight)
        return torch.fft.irfft2(spectrum, s=(6, 8), dim=(2, 3), norm="ortho")

    def parts(x: Any) -> Any:
        spectrum = torch.fft.rfftn(x, dim=(-2, -1), norm="forward")
        return torch.cat([spectrum.real, spectrum.imag], 1), spectrum.abs(), torch.view_as_real(spectrum.conj() / 2)

    def rotated(x: Any) -> Any:
        turns = torch.polar(torch.ones(6, 4), weight[0, :, :4, 0])
        return torch.view_as_real(torch.view_as_complex(x.reshape(2, 4, 6, 4, 2)) * turns).flatten(3)

    check_each(
        {
            "filter": filtered,
            "parts": parts,
            "rotation": rotated,
            "both axes": lambda x: torch.fft.fft(torch.fft.fft(x), dim=-2).real,
            "there and back": lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real,
            "odd": lambda x: torch.fft.irfft(1 - torch.fft.rfft(x[..., :7]) + x[:, :1, :1, :4], 7),
            "real beside complex": lambda x: torch.cat([torch.fft.rfft(x), x[..., :5]], 1).imag,
            "spectrogram": lambda x: torch.stft(
                x.reshape(2, -1), 16, 4, window=torch.hann_window(16), return_complex=True
            ).abs(),
        },
        IMAGES,
    )
    with pytest.raises(MRTError, match="fft_rfft are complex; let the model take, hold and give real tensors"):
        from_torch(export(lambda x: torch.fft.rfft(x), IMAGES))
    with pytest.raises(UnsupportedOperatorError, match="the data is complex; a real tensor"):
        from_torch(export(lambda x: torch.fft.rfft(x).sin().real, IMAGES))


def test_functions_of_two_tensors_and_norms() -> None:
    exponents = torch.tensor([0.5, 2.0, -1.0, 3.0]).reshape(4, 1, 1)
    check_each(
        {
            "atan2": lambda x: torch.atan2(x, x.flip(3)),
            "hypot": lambda x: torch.hypot(x, x.flip(3)),
            "logaddexp": lambda x: torch.logaddexp(x, x.flip(3)),
            "pow": lambda x: (torch.pow(x.abs() + 0.5, exponents), torch.pow(1.5, x), torch.exp2(x)),
            "remainder": lambda x: torch.remainder(x, x.flip(3).abs() + 0.5),
            "cumprod": lambda x: x.cumprod(2),
            "norms": lambda x: (torch.norm(x, 3, 1), *(torch.linalg.vector_norm(x, p, 1) for p in (0, -np.inf))),
            "cdist": lambda x: tuple(torch.cdist(x[0], x[1, :, :3], p) for p in (1.0, 2.0, np.inf)),
            "any": lambda x: ((x > 2.9).any(1) * 1.0, (x > -2).all(3) * 1.0, (x > 3).any() * 1.0),
            "others": lambda x: (torch.special.erfc(x), torch.round(x, decimals=1), F.rrelu(x)),
        },
        IMAGES,
    )


@pytest.mark.slow
def test_they_become_integers_that_compiled_code_gives() -> None:
    """What is left after 8 bits is at least 20 dB above the error of each output."""
    exponents = torch.tensor([0.5, 2.0, 1.0, 3.0]).reshape(4, 1, 1)
    parts = {
        "bicubic": lambda x: F.interpolate(x, size=(5, 9), mode="bicubic"),
        "grid": lambda x: F.grid_sample(x, GRID[:1], align_corners=False),
        "fold": lambda x: F.fold(F.unfold(x, 3, padding=1), (6, 8), 3, padding=1),
        "pow": lambda x: torch.pow(x.abs(), exponents),
        "atan2": lambda x: torch.atan2(x, x.flip(3) + 2),
        "cumprod": lambda x: x.abs().cumprod(2),
        "fourier": lambda x: torch.view_as_real(torch.fft.rfft(x)),
        "index_add": lambda x: x.index_add(1, PAIR, x[:, :3]),
    }
    graph = from_torch(export(Each(parts), IMAGES[:1]))
    prepared = prepare(graph).graph
    outcome = quantize_and_run(prepared, random_samples(prepared))
    assert_compiled_alike(outcome.integer)
    for name, found, real in zip(parts, outcome.approximate[0], outcome.real[0], strict=True):
        assert 10 * np.log10(np.square(real).mean() / np.square(found - real).mean()) > 20, name
