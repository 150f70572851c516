"""Relay operators against NumPy, and against formulas in Python integers: what the printed fixtures do not show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relay_texts import function, metadata, one, random, tensor
from relay_windows import convolved

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.relay import from_relay
from mrt.frontend.relay.declarations import DECLARATIONS
from mrt.frontend.relay.node import find_converter
from mrt.frontend.tvm.folding import is_foldable


@pytest.mark.parametrize("data_layout", ["NCHW", "NHWC", "HWNC"])
@pytest.mark.parametrize("kernel_layout", ["OIHW", "HWIO", "OHWI", "HWOI"])
@pytest.mark.parametrize("out_layout", ["", "NHWC"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution_in_every_layout(data_layout: str, kernel_layout: str, out_layout: str, groups: int) -> None:
    x, w = random(2, 4, 5, 6), random(8, 4 // groups, 3, 2, seed=1)
    expected = convolved(x, w, (2, 1), (1, 0, 0, 2), groups)

    def arranged(array: np.ndarray, source: str, target: str) -> np.ndarray:
        return np.ascontiguousarray(array.transpose([source.index(letter) for letter in target]))

    call = (
        "nn.conv2d(%x, meta[relay.Constant][0], strides=[2, 1], padding=[1, 0, 0, 2], channels=8, kernel_size=[3, 2], "
        f'groups={groups}, data_layout="{data_layout}", kernel_layout="{kernel_layout}", out_layout="{out_layout}")'
    )
    found = one(call, arranged(x, "NCHW", data_layout), constants=(arranged(w, "OIHW", kernel_layout),))
    np.testing.assert_allclose(found, arranged(expected, "NCHW", out_layout or data_layout), rtol=1e-5, atol=1e-5)


def test_convolution_along_one_and_three_axes() -> None:
    x, w = random(1, 2, 9), random(3, 2, 3, seed=1)
    found = one("nn.conv1d(%x, meta[relay.Constant][0], strides=[2], padding=[1])", x, constants=(w,))
    np.testing.assert_allclose(found, convolved(x, w, (2,), (1, 1)), rtol=1e-5, atol=1e-6)
    found = one(
        'nn.conv1d(%x, meta[relay.Constant][0], padding=[2, 0], data_layout="NWC", kernel_layout="WIO")',
        x.transpose(0, 2, 1),
        constants=(w.transpose(2, 1, 0),),
    )
    np.testing.assert_allclose(found, convolved(x, w, (1,), (2, 0)).transpose(0, 2, 1), rtol=1e-5, atol=1e-6)
    x, w = random(1, 2, 4, 4, 4), random(3, 2, 2, 2, 2, seed=1)
    found = one("nn.conv3d(%x, meta[relay.Constant][0], strides=[1, 2, 2], padding=[1, 0, 0])", x, constants=(w,))
    np.testing.assert_allclose(found, convolved(x, w, (1, 2, 2), (1, 0, 0, 1, 0, 0)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_transposed_convolution_is_the_adjoint(layout: str) -> None:
    """<conv(u), x> = <u, deconv(x)>, with one weight and one padding."""
    x, w, u = random(1, 3, 3, 4), random(3, 2, 3, 2, seed=1), random(1, 2, 7, 7, seed=2)
    axes = [layout.index(letter) for letter in "NCHW"]
    call = (
        "nn.conv2d_transpose(%x, meta[relay.Constant][0], strides=[2, 2], padding=[0, 1, 1, 1], "
        f'output_padding=[1, 1], data_layout="{layout}")'
    )
    found = one(call, np.ascontiguousarray(x.transpose(np.argsort(axes))), constants=(w,)).transpose(axes)
    assert found.shape == (1, 2, 7, 7)
    forward = convolved(u, w, (2, 2), (0, 1, 1, 1))[:, :, :3, :4]
    np.testing.assert_allclose((forward * x).sum(), (u.astype("f8") * found).sum(), rtol=1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pools_of_every_kind(layout: str, kind: str) -> None:
    x = random(2, 3, 4, 6)
    axes = [layout.index(letter) for letter in "NCHW"]
    feed = np.ascontiguousarray(x.transpose(np.argsort(axes)))
    reduce: Callable[..., np.ndarray] = np.max if kind == "max" else np.mean
    windows = reduce(x.reshape(2, 3, 2, 2, 3, 2), axis=(3, 5))
    for call, expected in (
        (f'nn.{kind}_pool2d(%x, pool_size=[2, 2], strides=[2, 2], layout="{layout}")', windows),
        (f'nn.adaptive_{kind}_pool2d(%x, output_size=[2, 3], layout="{layout}")', windows),
        (f'nn.adaptive_{kind}_pool2d(%x, output_size=[1], layout="{layout}")', reduce(x, axis=(2, 3), keepdims=True)),
        (f'nn.adaptive_{kind}_pool2d(%x, layout="{layout}")', x),
        (f'nn.global_{kind}_pool2d(%x, layout="{layout}")', reduce(x, axis=(2, 3), keepdims=True)),
    ):
        np.testing.assert_allclose(one(call, feed).transpose(axes), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        one(f"nn.{kind}_pool1d(%x, pool_size=[2], strides=[2])", x[0]),
        reduce(x[0].reshape(3, 4, 3, 2), axis=3),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        one(f"nn.{kind}_pool3d(%x, pool_size=[3, 2, 2], strides=[1, 2, 2])", x[None]),
        reduce(windows, axis=1, keepdims=True)[None],
        rtol=1e-5,
    )


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


X = random(2, 3, 4)
POSITIVE = np.abs(X) + np.float32(0.1)
BORDER = ((0, 0), (1, 0), (0, 2))
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997], "float32")


@pytest.mark.parametrize(
    ("call", "feeds", "expected"),
    [
        ("round(%x)", (HALVES,), [-3, -2, -1, 1, 2, 3, 0]),
        ("erf(%x)", (X,), erf(X)),
        ("rsqrt(%x)", (POSITIVE,), POSITIVE**-0.5),
        ("power(%x, 2f)", (X,), X**2),
        ("negative(%x)", (X,), -X),
        ("clip(nn.relu(%x), a_min=-1f, a_max=1f)", (X,), np.clip(X, 0, 1)),
        ("maximum(%x, 0f)", (X,), np.maximum(X, 0)),
        ("minimum(%x, %y)", (X, -X), np.minimum(X, -X)),
        ("nn.leaky_relu(%x)", (X,), np.where(X > 0, X, 0.25 * X)),
        ("divide(1f, %x)", (POSITIVE,), 1 / POSITIVE),
        ("where(%y, %x, 2f)", (X, (X > 0)), np.where(X > 0, X, 2)),
        ("cast_like(%x, %y)", (X * 10, np.ones(1, "int32")), np.trunc(X * 10)),
        ("sum(%x, axis=[0, -1])", (X,), X.sum(axis=(0, 2))),
        ("mean(%x, axis=[1], exclude=True)", (X,), X.mean(axis=(0, 2))),
        ("max(%x)", (X,), X.max()),
        ("variance(%x, mean(%x, axis=[2], keepdims=True), axis=[2])", (X,), X.var(axis=2)),
        ("argmax(%x, axis=[-1])", (X,), X.argmax(axis=-1)),
        ("argmin(%x, axis=[1], keepdims=True)", (X,), X.argmin(axis=1)[:, None]),
        ("transpose(%x, axes=[-1, 0, 1])", (X,), X.transpose(2, 0, 1)),
        ("transpose(%x, axes=None)", (X,), X.T),
        ("expand_dims(%x, axis=-1)", (X,), X[..., None]),
        ("expand_dims(%x, axis=-2, num_newaxis=2)", (X,), X[:, :, None, None]),
        ("squeeze(%x, axis=[-1])", (X[..., :1],), X[..., 0]),
        ("stack((%x, %y), axis=-1)", (X, -X), np.stack([X, -X], -1)),
        ("concatenate((%x, %y), axis=-1)", (X, -X), np.concatenate([X, -X], -1)),
        ("concatenate((%x,))", (X,), X),
        ("reverse(%x, axis=1)", (X,), X[:, ::-1]),
        ("repeat(%x, repeats=2)", (X,), X.repeat(2)),
        ("reshape_like(%x, %y, lhs_begin=1, rhs_begin=0, rhs_end=2)", (X, random(6, 2, 5)), X.reshape(2, 6, 2)),
        ("slice_like(%x, %y, axes=None)", (X, random(1, 2, 3)), X[:1, :2, :3]),
        ("slice_like(%x, %y, axes=[-1])", (X, random(1, 2, 3)), X[..., :3]),
        ("broadcast_to_like(%x, %y)", (X[:, :1], X), np.broadcast_to(X[:, :1], X.shape)),
        ("add(full_like(%x, 3f), %x)", (X,), X + 3),
        ('layout_transform(%x, src_layout="NCW", dst_layout="WNC")', (X,), X.transpose(2, 0, 1)),
        ('multiply(%x, cast(ndarray_size(%x), dtype="float32"))', (X,), X * 24),
        ('add(%x, cast(shape_of(%x), dtype="float32"))', (X[..., :3],), X[..., :3] + np.array([2, 3, 3])),
        ('add(%x, arange(0f, 8f, 2f, dtype="float32"))', (X,), X + np.array([0, 2, 4, 6])),
        (
            'nn.mirror_pad(%x, mode="REFLECT", pad_width=[[0, 0], [1, 0], [0, 2]])',
            (X,),
            np.pad(X, ((0, 0), (1, 0), (0, 2)), "reflect"),
        ),
        (
            "nn.pad(%x, 1.5f, pad_width=[[0, 0], [1, 0], [0, 2]])",
            (X,),
            np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=1.5),
        ),
        ("take(%x, 5)", (X,), X.ravel()[5]),
        ("take(%x, meta[relay.Constant][0], axis=2)", (X,), X[..., [3, 0, 3]]),
        ('take(%x, meta[relay.Constant][0], axis=1, mode="wrap")', (X,), X[:, [0, 0, 0]]),
        ("strided_slice(%x, begin=[0, -1], end=[2, -4], strides=[1, -1], axes=None)", (X,), X[:, ::-1]),
    ],
)
def test_against_numpy(call: str, feeds: tuple[np.ndarray, ...], expected: Any) -> None:
    found = one(call, *feeds, constants=(np.array([3, 0, 6], "int32"),))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.shape == np.shape(expected)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("scale", [False, True])
def test_layer_norm_along_any_axis(axis: int, scale: bool) -> None:
    gamma = random(X.shape[axis], seed=5)
    centered = X - X.mean(axis=axis, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(axis=axis, keepdims=True) + 1e-5)
    if scale:
        expected = np.moveaxis(np.moveaxis(expected, axis, -1) * gamma, -1, axis)
    weights = "meta[relay.Constant][0], meta[relay.Constant][0]"
    found = one(f"nn.layer_norm(%x, {weights}, axis={axis}, center=False, scale={scale})", X, constants=(gamma,))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["nn.matmul", "nn.batch_matmul"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("flags", [*itertools.product([False, True], repeat=2)])
def test_products_of_transposed_operands(operator: str, known: bool, flags: tuple[bool, bool]) -> None:
    leading = () if operator == "nn.matmul" else (2,)
    lhs, rhs = random(*leading, 3, 4), random(*leading, 4, 5, seed=1)
    given = [np.ascontiguousarray(m.swapaxes(-1, -2)) if flag else m for m, flag in zip((lhs, rhs), flags, strict=True)]
    units = ", units=None" if operator == "nn.matmul" else ""
    right = "meta[relay.Constant][0]" if known else "%y"
    call = f"{operator}(%x, {right}{units}, transpose_a={flags[0]}, transpose_b={flags[1]})"
    found = one(call, *given[: 1 if known else 2], constants=(given[1],))
    np.testing.assert_allclose(found, lhs @ rhs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "rounding", "rule"),
    [
        ("asymmetric", "floor", lambda o, old, new: math.floor(o * old / new)),
        ("asymmetric", "round", lambda o, old, new: math.floor(o * old / new + 0.5)),
        ("half_pixel", "round", lambda o, old, new: math.floor((o + 0.5) * old / new)),
        ("align_corners", "round", lambda o, old, new: math.floor(o * (old - 1) / (new - 1) + 0.5)),
    ],
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_resizing_to_the_nearest(mode: str, rounding: str, rule: Callable[[int, int, int], int], layout: str) -> None:
    """Relay's own rules in exact fractions; halves are rounded up."""
    x = random(1, 2, 4, 3)
    axes = [layout.index(letter) for letter in "NCHW"]
    call = (
        f'image.resize2d(%x, size=[8, 6], layout="{layout}", method="nearest_neighbor", '
        f'coordinate_transformation_mode="{mode}", rounding_method="{rounding}")'
    )
    rows, columns = ([min(max(rule(o, old, 2 * old), 0), old - 1) for o in range(2 * old)] for old in (4, 3))
    found = one(call, np.ascontiguousarray(x.transpose(np.argsort(axes)))).transpose(axes)
    np.testing.assert_array_equal(found, x[:, :, rows][..., columns])


def test_blocks_between_channels_and_space() -> None:
    x = random(1, 8, 2, 3)
    apart = x.reshape(1, 2, 2, 2, 2, 3)
    deep = apart.transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6)
    np.testing.assert_array_equal(one("nn.depth_to_space(%x, block_size=2)", x), deep)
    np.testing.assert_array_equal(one("nn.space_to_depth(%x, block_size=2)", deep), x)
    crd = x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6)
    np.testing.assert_array_equal(one('nn.depth_to_space(%x, block_size=2, mode="CRD")', x), crd)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    found = one('nn.depth_to_space(%x, block_size=2, layout="NHWC")', last)
    np.testing.assert_array_equal(found, deep.transpose(0, 2, 3, 1))
    found = one('nn.upsampling(%x, scale_h=2f, scale_w=3f, layout="NHWC")', last)
    np.testing.assert_array_equal(found, last.repeat(2, 1).repeat(3, 2))


def test_a_channels_last_network_becomes_channels_first() -> None:
    lines = [
        '%0 = nn.conv2d(%x, ones(shape=[3, 3, 2, 4]), padding=[1, 1], data_layout="NHWC", kernel_layout="HWIO")',
        "%1 = nn.bias_add(%0, meta[relay.Constant][0], axis=3)",
        '%2 = nn.max_pool2d(nn.relu(%1), pool_size=[2, 2], strides=[2, 2], layout="NHWC")',
    ]
    graph = from_relay(function("%2", lines, x=(1, 4, 4, 2)) + metadata(random(4)))
    assert graph.count_operators() == {"transpose": 2, "Convolution": 1, "relu": 1, "Pooling": 1}
    convolution = next(symbol for symbol in graph.operators if symbol.operator.op == "Convolution")
    assert len(convolution.inputs) == 3


def test_every_converter_is_declared_and_the_reverse() -> None:
    assert len(DECLARATIONS) > 130
    for name in (*DECLARATIONS, "sin", "qnn.sigmoid"):
        read = find_converter(name) is not None or is_foldable(name)
        assert read == (name in DECLARATIONS), name


def test_attributes_that_are_tensors() -> None:
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)

    def call(text: str, *constants: object) -> np.ndarray:
        return one(text, x, constants=tuple(np.asarray(value) for value in constants))

    def place(index: int) -> str:
        return f"meta[relay.Constant][{index}]"

    slices = f"dyn.strided_slice(%x, {place(0)}, {place(1)}, {place(2)}, begin=None, end=None, strides=None, axes=None)"
    found = call(slices, np.array([0, -1, 3]), np.array([2, -9, 0]), np.array([1, -1, -2]))
    np.testing.assert_array_equal(found, x[0:2, -1:-9:-1, 3:0:-2])
    np.testing.assert_array_equal(call(f"dyn.reshape(%x, {place(0)})", np.array([0, -1])), x.reshape(2, 12))
    np.testing.assert_array_equal(call(f"dyn.tile(%x, {place(0)})", np.array([1, 2, 1])), np.tile(x, (1, 2, 1)))
    wide = call(f"dyn.broadcast_to(%x, {place(0)})", np.array([5, 2, 3, 4]))
    np.testing.assert_array_equal(wide, np.broadcast_to(x, (5, 2, 3, 4)))
    widths = np.array([[0, 0], [1, 2], [0, 1]])
    bordered = call(f"dyn.nn.pad(%x, {place(0)}, 0.5f)", widths)
    np.testing.assert_array_equal(bordered, np.pad(x, widths.tolist(), constant_values=0.5))
    with pytest.raises(UnsupportedOperatorError, match="input newshape is computed from the data"):
        from_relay(function("dyn.reshape(%x, %s)", x=(2, 3), s=tensor((1,), "int64")))


def test_normalization_over_neighbours_along_any_axis() -> None:
    x = random(2, 5, 3)
    for axis in (1, 2, -1):
        squares = np.apply_along_axis(lambda v: np.convolve(np.square(v), np.ones(3), "same"), axis, x.astype("f8"))
        expected = x / (1.5 + 0.3 / 3 * squares) ** 0.6
        found = one(f"nn.lrn(%x, size=3, axis={axis}, bias=1.5f, alpha=0.3f, beta=0.6f)", x)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_blocked_layouts_and_methods_are_refused_by_name() -> None:
    for call, said in (
        ('nn.max_pool2d(%x, pool_size=[2, 2], layout="NCHW4c")', "attribute layout is NCHW4c"),
        ('nn.upsampling(%x, scale_h=2f, scale_w=2f, method="bicubic")', "nn.upsampling: attribute method is bicubic"),
        ("nn.upsampling(%x, scale_h=1.5f, scale_w=2f)", "whole numbers"),
        ('image.resize2d(%x, size=[8, 8], method="area")', "attribute method is area"),
        ("nn.lrn(%x, size=4)", r"attributes size and axis is \(4, 1\); an odd size"),
        ("argmax(%x, axis=[1, 2])", "attribute axis is"),
        ("nn.l2_normalize(%x, eps=1f, axis=[1])", "attribute eps is 1.0"),
        ("qnn.sigmoid(%x)", "qnn.sigmoid ×1"),
        ("isfinite(%x)", "isfinite ×1"),
    ):
        with pytest.raises(UnsupportedOperatorError, match=said):
            from_relay(function(call, x=(1, 2, 4, 4)))
