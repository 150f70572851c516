"""Operators that arrange, choose or deconvolve, compiled, against the records."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import THIRDS, Bundle
from layers import Layers, kernel_texts

DTYPES = ["int8", "uint8", "int16", "int32", "float32"]


def values(bundle: Bundle, dtype: str, *shape: int):
    return bundle.floats(*shape) if dtype == "float32" else bundle.integers(shape, dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrangements_agree(dtype: str) -> None:
    bundle = Bundle()
    x = bundle.input(values(bundle, dtype, 2, 8, 4, 6))
    for dims in ((1, 3), (0, -1), (2, 2)):
        bundle.add("SwapAxis", x, dim1=dims[0], dim2=dims[1])
    like = bundle.input(values(bundle, dtype, 1, 5, 4, 2))
    bundle.add("slice_like", x, like)
    bundle.add("slice_like", x, like, axes=(1, -1))
    bundle.add("slice_like", x, bundle.input(values(bundle, dtype, 7, 3)), axes=(-1,))
    for reps in ((2,), (1, 2, 1, 3), (2, 1, 1, 1, 2), ()):
        bundle.add("tile", x, reps=reps)
    for axis in (None, 0, 1, 2, -1):
        bundle.add("repeat", x, repeats=3, axis=axis)
    for scale in (1, 2, 3):
        bundle.add("UpSampling", x, scale=scale)
    bundle.add("depth_to_space", x, block_size=2)
    bundle.add("space_to_depth", x, block_size=2)
    bundle.keep_in_turn(dtype, (*THIRDS, "float32"))
    bundle.check()


@pytest.mark.parametrize("repeats", [2, 3])
def test_positions_are_repeated_by_vectors_of_channels(repeats: int) -> None:
    """Where nothing asks for them: a residual that lies so is added, and sums over all channels follow."""
    layers = Layers()
    data = layers.input(layers.integers((1, 32, 20), "int8"))
    short, long = (
        layers.requantized(layers.convolution(layers.padded(each, 1, 1), 32, (3,)), "int8")
        for each in (data, layers.input(layers.integers((1, 32, 20 * repeats), "int8")))
    )
    repeated = layers.hidden("repeat", short, repeats=repeats, axis=-1)
    added = layers.requantized(layers.hidden("elemwise_add", repeated, long), "int8")
    layers.finish(layers.hidden("Reshape", added, shape=(1, 1, 640 * repeats)))
    (text,) = (text for text in kernel_texts(layers.graph()) if f", {repeats}), v_i1]" in text)
    assert "input0: T.Buffer((20, 32)" in text and "T.vectorized(16)" in text
    layers.check()


@pytest.mark.parametrize("shape, reps", [((1, 4, 6, 1), (1, 13, 2, 1)), ((1, 8, 7, 6), (1, 7, 2, 2))])
def test_channels_are_tiled_to_vectors_that_are_filled_in_part(shape: tuple[int, ...], reps: tuple[int, ...]) -> None:
    bundle = Bundle()
    x = bundle.hidden("Pooling", bundle.input(values(bundle, "int8", *shape)), kernel=(1, 1))
    factor = bundle.parameter(bundle.integers((1, shape[1], 1, 1), "int16", 2, 6))
    shifted = bundle.hidden(
        "right_shift", bundle.hidden("broadcast_mul", x, factor), bundle.parameter(np.int8([[[[1]]]]))
    )
    narrow = bundle.hidden("Cast", bundle.hidden("clip", shifted, a_min=-127, a_max=127), dtype="int8")
    bundle.add("Pooling", bundle.hidden("tile", narrow, reps=reps), kernel=(2, 1))
    bundle.check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_selections_agree(dtype: str) -> None:
    bundle = Bundle()
    x = bundle.input(values(bundle, dtype, 2, 6, 4, 5))
    few = bundle.input((np.abs(values(bundle, dtype, 2, 6, 4, 5)) % 3).astype(dtype))
    for axis in (None, (1,), (0, -1)):
        for keepdims in (False, True):
            bundle.add("min", x, axis=axis, keepdims=keepdims)
    for data, keeps in ((x, True), (few, False)):
        for axis in (None, 0, 1, -1):
            bundle.add("argmax", data, axis=axis, keepdims=keeps)
            bundle.add("argmin", data, axis=axis, keepdims=not keeps)
    y = bundle.input(values(bundle, dtype, 2, 6, 4, 5))
    channels = bundle.input(values(bundle, dtype, 6, 1, 1))
    for name in ("maximum", "minimum"):
        bundle.add(f"_{name}", x, y)
        bundle.add(f"broadcast_{name}", x, channels)
        bundle.add(f"broadcast_{name}", channels, x)
        bundle.add(f"_{name}_scalar", x, scalar=7)
        bundle.add("relu", bundle.hidden(f"_{name}", x, bundle.hidden(f"_{name}_scalar", y, scalar=3)))
    bundle.add("where", few, x, y)
    bundle.add("where", bundle.input(np.array([0, 1]).astype(dtype)), x, y)
    bundle.add("where", bundle.input(np.array([True, False])), x, channels)
    bundle.add("where", bundle.input(np.array([[[[True]], [[False]], [[True]], [[False]], [[True]], [[True]]]])), x, y)
    table = bundle.parameter(values(bundle, dtype, 5, 3))
    for indices in (np.array([[0, 4, 7], [-3, 2, 1]], np.int32), np.array([1.0, 0.9, 9.0], np.float32)):
        bundle.add("Embedding", bundle.input(indices), table, input_dim=5, output_dim=3)
    bundle.add("Embedding", bundle.input(np.array([1, 2**40])), table, input_dim=5, output_dim=3)
    bundle.keep_in_turn(dtype)
    bundle.check()


DECONVOLUTIONS = [
    ((1, 4, 5, 6), {"kernel": (4, 4), "stride": (2, 2), "pad": (1, 1), "num_filter": 6, "num_group": 2}),
    ((2, 3, 5, 6), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "adj": (1, 1), "num_filter": 4}),
    ((1, 3, 5, 6), {"kernel": (4, 4), "stride": (2, 2), "target_shape": (10, 12), "num_filter": 2}),
    ((1, 2, 4, 5), {"kernel": (2, 3), "stride": (3, 2), "dilate": (2, 3), "adj": (2, 0), "num_filter": 3}),
    ((1, 4, 7), {"kernel": (5,), "pad": (4,), "num_filter": 4, "num_group": 4}),
    ((1, 2, 3, 4, 2), {"kernel": (2, 3, 1), "stride": (2, 1, 3), "pad": (0, 1, 0), "num_filter": 2}),
    ((1, 32, 5, 4), {"kernel": (1, 1), "num_filter": 5}),
    ((1, 32, 3, 3), {"kernel": (2, 2), "stride": (2, 2), "num_filter": 5}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("number", range(len(DECONVOLUTIONS)))
def test_deconvolutions_agree(dtype: str, number: int) -> None:
    """By constant weights alone and with a bias, or by computed ones and with a function, in turn."""
    (shape, attributes), bundle = DECONVOLUTIONS[number], Bundle()
    x = bundle.input(values(bundle, dtype, *shape))
    weight_shape = (shape[1], attributes["num_filter"] // attributes.get("num_group", 1), *attributes["kernel"])
    weight = values(bundle, "float32" if dtype == "float32" else "int8", *weight_shape)
    bias = (
        bundle.floats(attributes["num_filter"])
        if dtype == "float32"
        else bundle.integers((attributes["num_filter"],), "int16")
    )
    bundle.add("Deconvolution", x, bundle.parameter(weight), **attributes)
    bundle.add("Deconvolution", x, bundle.input(weight), **attributes)
    bundle.add("Deconvolution", x, bundle.parameter(weight), bundle.parameter(bias), no_bias=False, **attributes)
    hidden = bundle.hidden("Deconvolution", x, bundle.parameter(weight), **attributes)
    bundle.add("relu", hidden)
    bundle.outputs = bundle.outputs[(number + ["int8", "float32", "uint8"].index(dtype)) % 2 :: 2]
    bundle.check(tolerance=1e-5)


def test_bools_are_compared() -> None:
    """TVM has no maximum of them; every one of the four pairs is met."""
    bundle, pairs = Bundle(), np.array([[False, False], [False, True], [True, False], [True, True]])
    x, y = (bundle.input(column) for column in pairs.T)
    for name, expected in (("maximum", pairs.any(axis=1)), ("minimum", pairs.all(axis=1))):
        for op in (f"_{name}", f"broadcast_{name}"):
            made = bundle.add(op, x, y)
            assert bundle.graph().with_outputs([made]).evaluate(bundle.feeds)[0].tolist() == expected.tolist()
        for scalar in (0, 1):
            bundle.add(f"_{name}_scalar", x, scalar=scalar)
    for limits in ((0, 0), (1, 1), (-5, 5), (0.5, 1.5), (-0.5, 0.5)):
        bundle.add("clip", x, a_min=limits[0], a_max=limits[1])
    bundle.add("relu", bundle.hidden("_maximum", x, y))
    bundle.add("Cast", bundle.hidden("_minimum", x, y), dtype="bool")
    table = bundle.input(np.array([[True, False, True], [False, False, True]]))
    for axis in ((), (0,), (1,)):
        bundle.add("max", table, axis=axis)
        bundle.add("min", table, axis=axis, keepdims=True)
    for name in ("argmax", "argmin"):
        bundle.add(name, table)
        bundle.add(name, table, axis=1)
    for shape in ((1, 2, 3, 3), (1, 64, 3, 3)):
        image = bundle.input(bundle.random.random(shape) < 0.1)
        bundle.add("Pooling", image, kernel=(2, 2), pad=(1, 1))
        bundle.add("Pooling", image, global_pool=True, pool_type="sum")
    bundle.check()


@pytest.mark.parametrize("dtype", ["bool", *DTYPES[:-1]])
def test_tensors_of_rank_0_agree(dtype: str) -> None:
    bundle = Bundle()
    x, y = bundle.input(np.array(1, dtype)), bundle.input(np.array(0, dtype))
    for name in SCALAR_OPERATORS:
        bundle.add(name, x)
    for name in ("elemwise_sub", "broadcast_mul", "_maximum", "broadcast_minimum", "right_shift"):
        bundle.add(name, x, y)
    bundle.add("where", x, y, x)
    bundle.add("Pad", x, pad_width=())
    bundle.check()


SCALAR_OPERATORS = ("relu", "negative", "transpose", "max", "min", "sum", "argmax", "argmin", "integer_sqrt", "_copy")
"""Operators without attributes that take a tensor of rank 0."""
