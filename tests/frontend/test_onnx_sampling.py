"""ONNX's images at constant places, windows laid into images and Fourier transforms, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_models import assert_agrees, make_model, run_reference, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grids(mode: str, padding: str, aligned: int) -> None:
    grid = np.repeat(RNG.uniform(-1.3, 1.3, (1, 3, 4, 2)), 2, 0).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    assert_agrees(single("GridSample", (2, 3, 5, 6), {"grid": grid}, 16, **attributes))


def test_grids_that_are_no_constants_are_refused() -> None:
    node = helper.make_node("GridSample", ["x", "grid"], ["y"])
    model = make_model([node], {"x": (1, 2, 5, 6), "grid": (1, 3, 4, 2)})
    with pytest.raises(UnsupportedOperatorError, match="input grid is computed from the data; a constant"):
        from_onnx(model)
    with pytest.raises(UnsupportedOperatorError, match="not the same for all images"):
        from_onnx(single("GridSample", (2, 3, 5, 6), {"grid": RNG.uniform(-1, 1, (2, 3, 4, 2)).astype(np.float32)}))
    with pytest.raises(UnsupportedOperatorError, match="outside of the image everywhere"):
        from_onnx(single("GridSample", (1, 3, 5, 6), {"grid": np.full((1, 3, 4, 2), 9, np.float32)}))


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("sizes", [(4, 3), (2, 5, 3)])
def test_places_of_affine_maps(aligned: int, sizes: tuple[int, ...]) -> None:
    rank = len(sizes)
    size = {"size": np.array([2, 3, *sizes], np.int64)}
    assert_agrees(single("AffineGrid", (2, rank, rank + 1), size, 20, align_corners=aligned), run=run_reference)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"strides": [2, 1]}, {"dilations": [1, 2]}, {"pads": [1, 0, 1, 1]}, {"pads": [0, 1, 0, 1], "strides": [1, 3]}],
)
def test_windows_laid_into_an_image(attributes: dict[str, list[int]]) -> None:
    strides, gaps = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    pads = attributes.get("pads", [0] * 4)
    counts = [
        (size + pads[i] + pads[2 + i] - gaps[i] * (n - 1) - 1) // strides[i] + 1
        for i, (size, n) in enumerate(((5, 2), (6, 3)))
    ]
    shapes = {"image": np.array([5, 6]), "block": np.array([2, 3])}
    model = single("Col2Im", (2, 3 * 6, counts[0] * counts[1]), shapes, 18, **attributes)
    assert_agrees(model, run=run_reference)


@pytest.mark.parametrize("shape", [(2, 8, 1), (2, 7, 2)])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [None, 5, 10])
def test_fourier(shape: tuple[int, ...], inverse: int, length: int | None) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    inputs = {"length": np.int64(length)} if length else {}
    values = x[..., 0] + 1j * x[..., 1] if shape[-1] == 2 else x[..., 0]
    wanted = (np.fft.ifft if inverse else np.fft.fft)(values, length, axis=1)
    (found,) = from_onnx(single("DFT", shape, inputs, 17, axis=1, inverse=inverse)).evaluate({"x": x})
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=1e-4, atol=1e-5)
    if not inverse and shape[-1] == 1:
        (half,) = from_onnx(single("DFT", shape, inputs, 17, axis=1, onesided=1)).evaluate({"x": x})
        np.testing.assert_allclose(half, found[:, : half.shape[1]], rtol=1e-5, atol=1e-5)
        assert half.shape[1] == (length or 8) // 2 + 1


def test_fourier_along_the_features_is_refused() -> None:
    with pytest.raises(GraphError, match="along which real and imaginary parts lie"):
        from_onnx(single("DFT", (2, 8, 1), {}, 17, axis=2))


@pytest.mark.parametrize("windowed", [False, True])
def test_short_time_fourier(windowed: bool) -> None:
    x, window = RNG.standard_normal((2, 20, 1)).astype(np.float32), np.hanning(8).astype(np.float32)
    given = {"step": np.int64(3), **({"window": window} if windowed else {}), "length": np.int64(8)}
    names = ["x", "step", "window" if windowed else "", "length"]
    (found,) = from_onnx(single("STFT", x.shape, given, 17, names)).evaluate({"x": x})
    frames = np.stack([x[:, start : start + 8, 0] for start in range(0, 13, 3)], 1)
    wanted = np.fft.rfft(frames * (window if windowed else 1), axis=-1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=1e-4, atol=1e-5)
