"""Operators that move, select, reduce and normalize, compiled, against the records."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import THIRDS, Bundle
from layers import Layers


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "float32"])
def test_transforms_agree(dtype: str) -> None:
    bundle = Bundle()

    def values(*shape: int):
        return bundle.floats(*shape) if dtype == "float32" else bundle.integers(shape, dtype)

    x = bundle.input(values(2, 6, 4, 5))
    bundle.add("Flatten", x)
    for shape in ((0, -1), (-2,), (0, -3, 0), (0, -4, 2, -1, -2), (20, 12), (-1, 5, 4)):
        bundle.add("Reshape", x, shape=shape)
    bundle.add("Reshape", x, shape=(-1, 0), reverse=True)
    for axes in ((), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 0, 1), (0, 1, 3, 2)):
        bundle.add("transpose", x, axes=axes)
    for axis in (0, 2, -1):
        bundle.add("expand_dims", x, axis=axis)
    thin = bundle.input(values(2, 1, 4, 1))
    bundle.add("squeeze", thin)
    bundle.add("squeeze", thin, axis=(1,))
    bundle.add("slice", x, begin=(0, 1), end=(2, 5))
    bundle.add("slice", x, begin=(None, 5, None, -2), end=(None, 0, None, None), step=(1, -2, -1, None))
    bundle.add("slice_axis", x, axis=1, begin=2, end=None)
    bundle.add("slice_axis", x, axis=-1, begin=-3, end=-1)
    for dim in (0, 1, 3):
        shapes = [tuple(3 + i if a == dim else n for a, n in enumerate((2, 6, 4, 5))) for i in range(3)]
        bundle.add("Concat", *(bundle.input(values(*shape)) for shape in shapes), dim=dim)
    bundle.add("Concat", x, x)
    bundle.add("Concat", x)
    for axis in (0, 1, 3):
        indices = bundle.parameter(np.array([[0, 1, 7], [-3, 2, 1]], np.int32))
        bundle.add("take", x, indices, axis=axis)
        bundle.add("take", x, bundle.input(np.array([1.0, 0.0, 9.0], np.float32)), axis=axis, mode="clip")
        bundle.add("take", x, bundle.input(np.array([-1, 13], np.int64)), axis=axis, mode="wrap")
    for mode in ("constant", "edge", "reflect"):
        bundle.add("Pad", x, pad_width=(0, 0, 0, 0, 1, 2, 3, 0), mode=mode)
    bundle.add("Pad", x, pad_width=(0, 0, 1, 0, 0, 2, 3, 0), mode="constant", constant_value=7.0)
    bundle.add("Pad", x, pad_width=(0,) * 8, mode="constant")
    bundle.keep_in_turn(dtype, (*THIRDS, "float32"))
    bundle.check()


SHORTCUTS = ((24, 4), (36, 6), (80, 8), (3, 2), (16, 40))
"""Channels of a residual branch, and how many more the other one has."""


@pytest.mark.parametrize(
    ("channels", "more", "dtype"),
    [
        (*shortcut, dtype)
        for place, shortcut in enumerate(SHORTCUTS)
        for number, dtype in enumerate(("int8", "uint8", "int16"))
        if (place + number) % 3
    ],
)
def test_channels_behind_others_agree(channels: int, more: int, dtype: str) -> None:
    """What a narrower residual branch gets, as its memory lies: within its padding, or in vectors of their own."""
    layers = Layers()
    data = layers.input(layers.integers((2, 4, 5, 6), "int8"))
    narrow = layers.requantized(layers.convolution(data, channels, (1, 1)), dtype)
    wide = layers.requantized(layers.convolution(data, channels + more, (3, 3), pad=(1, 1)), dtype)
    padded = layers.hidden("Pad", narrow, pad_width=(0, 0, 0, more, 0, 0, 0, 0), constant_value=3.0)
    total = layers.requantized(layers.hidden("elemwise_add", padded, wide), dtype)
    layers.finish(layers.requantized(layers.convolution(total, 16, (1, 1))))
    layers.check()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32"])
def test_reductions_agree(dtype: str) -> None:
    bundle = Bundle()
    x = bundle.input(bundle.floats(2, 6, 4, 5) if dtype == "float32" else bundle.integers((2, 6, 4, 5), dtype))
    for number, name in enumerate(("sum", "max", "mean")[: 3 if dtype == "float32" else 2]):
        for place, axis in enumerate((None, (1,), (2, 3), (-1,), (0, 2), (0, 1, 2, 3))):
            bundle.add(name, x, axis=axis, keepdims=(number + place) % 2 == 0)
        bundle.add(name, x, axis=(1,), exclude=True)
    bundle.keep_in_turn(dtype)
    bundle.check(tolerance=1e-5)


ROWS, ROW_DTYPES = (320, 112, 66), ("int8", "uint8", "float32")


@pytest.mark.parametrize("dtype", ROW_DTYPES)
@pytest.mark.parametrize("row", ROWS)
def test_reductions_along_rows_of_vectors_agree(dtype: str, row: int) -> None:
    """Groups of vectors make up a row, single ones, or none: of each half of the reductions, in turn."""
    bundle, shape = Bundle(), (2, 3, 4, row)
    x = bundle.input(bundle.floats(*shape) if dtype == "float32" else bundle.integers(shape, dtype))
    for name in ("sum", "max"):
        for axis in ((1,), (2,), (1, 2)):
            bundle.add(name, x, axis=axis, keepdims=False)
    bundle.outputs = bundle.outputs[(ROWS.index(row) + ROW_DTYPES.index(dtype)) % 2 :: 2]
    bundle.check(tolerance=1e-5)


def test_normalizations_agree() -> None:
    bundle = Bundle()
    x = bundle.input(bundle.floats(3, 6, 4, 5) * 4)
    for axis in (-1, 1):
        bundle.add("softmax", x, axis=axis)
        bundle.add("softmax", x, axis=axis, temperature=2.5)
        bundle.add("log_softmax", x, axis=axis)
        bundle.add("log_softmax", x, axis=axis, temperature=2.5)
        n = x.shape[axis]
        bundle.add("LayerNorm", x, bundle.parameter(bundle.floats(n)), bundle.parameter(bundle.floats(n)), axis=axis)
    for axis in (1, 3):
        gamma, beta, mean = (bundle.parameter(bundle.floats(x.shape[axis])) for _ in range(3))
        variance = bundle.parameter(np.abs(bundle.floats(x.shape[axis])))
        for fix_gamma in (False, True):
            bundle.add("BatchNorm", x, gamma, beta, mean, variance, axis=axis, fix_gamma=fix_gamma)
    far = bundle.input(np.array([[1e30, -1e30, 0], [88, 89, 90]], np.float32))
    bundle.add("softmax", far)
    bundle.add("log_softmax", far)
    bundle.check(tolerance=1e-5)
