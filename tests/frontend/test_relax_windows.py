"""Relax' convolutions and poolings, read and evaluated, give what TVM computes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from relax_modules import build, check, constant, operators, random, run
from tvm import relax
from tvm.relax import op

from mrt.frontend.relax import from_relax

# Convolution


@pytest.mark.parametrize(
    ("channels", "filters", "attributes"),
    [
        (4, 6, {"padding": (1, 1), "strides": (2, 1)}),
        (4, 6, {"padding": (1, 0, 2, 3)}),
        (4, 8, {"groups": 2, "dilation": (2, 1)}),
        (4, 4, {"groups": 4, "padding": (2, 2, 2, 2), "dilation": (2, 2)}),
        (3, 6, {"groups": 3}),
    ],
)
def test_conv2d(channels: int, filters: int, attributes: dict[str, Any]) -> None:
    weight = random(filters, channels // attributes.get("groups", 1), 3, 2, seed=5)
    check(lambda x: op.nn.conv2d(x, constant(weight), **attributes), x=(1, channels, 9, 8))


def test_padding_that_differs_becomes_a_pad() -> None:
    weight = random(2, 3, 3, 3)
    graph = check(lambda x: op.nn.conv2d(x, constant(weight), padding=(0, 1, 1, 0)), x=(1, 3, 6, 6))
    assert operators(graph) == ["Pad", "Convolution"]


@pytest.mark.parametrize("layout", ["NCW", "NWC"])
def test_conv1d(layout: str) -> None:
    kernel = "OIW" if layout == "NCW" else "WIO"
    weight = random(*(6, 4, 3) if layout == "NCW" else (3, 4, 6))
    shape = (1, 4, 10) if layout == "NCW" else (1, 10, 4)
    check(
        lambda x: op.nn.conv1d(
            x, constant(weight), strides=2, padding=(1, 2), data_layout=layout, kernel_layout=kernel
        ),
        x=shape,
    )


def test_conv3d() -> None:
    weight = random(4, 2, 2, 3, 2)
    check(lambda x: op.nn.conv3d(x, constant(weight), padding=1, strides=(1, 2, 1)), x=(1, 2, 4, 5, 4))


@pytest.mark.parametrize("kernel", ["HWIO", "OHWI", "OIHW"])
def test_conv2d_channels_last(kernel: str) -> None:
    sizes = {"O": 6, "I": 2, "H": 3, "W": 2}
    weight = random(*(sizes[letter] for letter in kernel))
    graph = check(
        lambda x: op.nn.conv2d(
            x, constant(weight), padding=(1, 0, 0, 1), groups=2, data_layout="NHWC", kernel_layout=kernel
        ),
        x=(1, 5, 6, 4),
    )
    assert operators(graph) == ["Pad", "transpose", "Convolution", "transpose"]


def test_bias_behind_a_channels_last_convolution_with_a_border() -> None:
    weight, bias = random(3, 2, 4, 6), random(6)
    graph = check(
        lambda x: op.add(
            op.nn.conv2d(x, constant(weight), padding=(1, 0, 0, 1), data_layout="NHWC", kernel_layout="HWIO"),
            constant(bias),
        ),
        x=(1, 5, 6, 4),
    )
    assert operators(graph) == ["Pad", "transpose", "Convolution", "transpose"]


def test_transposes_between_channels_last_operators_undo_each_other() -> None:
    first, second = random(3, 3, 2, 4), random(1, 1, 4, 5)

    def body(x: Any) -> Any:
        y = op.nn.conv2d(x, constant(first), data_layout="NHWC", kernel_layout="HWIO")
        y = op.nn.conv2d(y, constant(second), data_layout="NHWC", kernel_layout="HWIO")
        return op.nn.max_pool2d(y, (2, 2), layout="NHWC")

    assert operators(check(body, x=(1, 7, 6, 2))) == [
        "transpose",
        "Convolution",
        "Convolution",
        "Pooling",
        "transpose",
    ]


def test_channels_last_network_becomes_channels_first() -> None:
    first, second, bias = random(3, 3, 2, 4), random(1, 1, 8, 4), random(4)
    vectors = [constant(np.abs(random(4, seed=seed)) + 0.1) for seed in range(4)]

    def body(x: Any) -> Any:
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        y = op.add(op.nn.conv2d(x, constant(first), **layouts), constant(bias))
        y = op.nn.relu(relax.TupleGetItem(op.nn.batch_norm(y, *vectors, axis=3, training=False), 0))
        z = op.nn.pad(op.nn.leakyrelu(y), [0, 0, 0, 1, 2, 0, 0, 0])
        y = op.concat([op.nn.pad(y, [0, 0, 1, 0, 0, 2, 0, 0]), z], 3)
        y = op.nn.softmax(op.nn.conv2d(y, constant(second), **layouts), 3)
        y = op.multiply(y, constant(random(1, 6, 1, 4)))
        return [op.mean(y, [1, 2]), op.max(y, [1], keepdims=True), op.sum(y, [0, 3])]

    graph = check(body, x=(1, 7, 6, 2))
    transposes = [symbol.name for symbol in graph.operators if symbol.op == "transpose"]
    assert len(transposes) == 2, "one for the input, one for the output that keeps every axis"
    assert "broadcast_add" not in operators(graph)


def test_transposes_of_a_channels_first_network_stay() -> None:
    mod = build(lambda x: op.nn.relu(op.permute_dims(op.nn.max_pool1d(x, 2, 2), (0, 2, 1))), x=(1, 2, 4))
    assert operators(from_relax(mod)) == ["Pooling", "transpose", "relu"]


def test_out_layout_is_brought_about() -> None:
    weight, data = random(4, 3, 3, 3), random(1, 3, 6, 6)
    mod = build(lambda x: op.nn.conv2d(x, constant(weight), out_layout="NHWC"), x=(1, 3, 6, 6))
    plain = build(lambda x: op.nn.conv2d(x, constant(weight)), x=(1, 3, 6, 6))
    # TVM does not compile a convolution whose layouts differ.
    expected = np.transpose(run(plain, {"x": data})[0], (0, 2, 3, 1))
    np.testing.assert_allclose(from_relax(mod).evaluate({"x": data})[0], expected, rtol=1e-5, atol=1e-5)


def test_weight_that_is_computed() -> None:
    check(
        lambda x, w: op.nn.conv2d(x, op.nn.relu(w), data_layout="NHWC", kernel_layout="HWIO"),
        x=(1, 5, 5, 2),
        w=(3, 3, 2, 4),
    )


def test_constant_added_to_a_product_becomes_its_bias() -> None:
    weight, matrix = random(4, 3, 3, 3), random(4, 5)
    bias, other = random(4, 1, 1, seed=1), random(5, seed=2)

    def body(x: Any) -> Any:
        y = op.add(constant(bias), op.nn.conv2d(x, constant(weight)))
        y = op.mean(y, (2, 3))
        return op.add(op.matmul(y, constant(matrix)), constant(other))

    graph = check(body, x=(1, 3, 5, 5))
    assert operators(graph) == ["Convolution", "mean", "FullyConnected"]
    assert all(not getattr(symbol.operator, "no_bias", False) for symbol in graph.operators)


def test_constant_added_to_a_product_that_is_read_twice_stays() -> None:
    weight, bias = random(4, 3, 1, 1), random(1, 4, 1, 1)

    def body(x: Any) -> Any:
        y = op.nn.conv2d(x, constant(weight))
        return op.multiply(op.add(y, constant(bias)), op.nn.relu(y))

    mod = build_in_steps(body, x=(1, 3, 2, 2))
    assert sorted(operators(from_relax(mod))) == ["Convolution", "broadcast_add", "elemwise_mul", "relu"]


def build_in_steps(body: Any, **inputs: Any) -> Any:
    """`build`, where expressions used twice are bound once."""
    return relax.transform.EliminateCommonSubexpr()(build(body, **inputs))


# Pooling

_WINDOWS = [
    {"pool_size": (2, 2), "strides": (2, 2)},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)},
    {"pool_size": (3, 3), "strides": (2, 3), "padding": (0, 1, 1, 0), "ceil_mode": True},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1), "ceil_mode": True},
    {"pool_size": (2, 3), "strides": (3, 2), "ceil_mode": True},
]


@pytest.mark.parametrize("attributes", _WINDOWS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_max_pool2d(attributes: dict[str, Any], layout: str) -> None:
    check(lambda x: op.nn.max_pool2d(x, **attributes, layout=layout), x=(1, 8, 7, 8))


@pytest.mark.parametrize("attributes", _WINDOWS)
@pytest.mark.parametrize("count_include_pad", [False, True])
def test_avg_pool2d(attributes: dict[str, Any], count_include_pad: bool) -> None:
    check(lambda x: op.nn.avg_pool2d(x, **attributes, count_include_pad=count_include_pad), x=(1, 3, 8, 7))


_PADDED = [(1, 1, (2, 3)), (2, 3, (0, 2)), (2, 3, (4, 3)), (3, 2, (3, 4)), (1, 4, (1, 3)), (2, 2, (0, 1))]
"""Kernels, strides and pads, with windows that hold padding only at either end or both."""


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_windows_that_hold_padding_only(kind: str) -> None:
    """With ceil_mode the last one is left out where it starts behind the data. Averages of integers are cut."""

    def body(x: Any, i: Any) -> list[Any]:
        pool = getattr(op.nn, f"{kind}_pool1d")
        more = [{}] if kind == "max" else [{"count_include_pad": counts} for counts in (False, True)]
        cases = itertools.product((x, i), more, (False, True), _PADDED)
        return [pool(data, *window, ceil_mode=ceil, **options) for data, options, ceil, window in cases]

    mod = build(body, x=(1, 2, 7), i=((1, 2, 7), "int32"))
    feeds = {"x": random(1, 2, 7), "i": np.arange(-9, 5, dtype=np.int32).reshape(1, 2, 7)}
    # TVM gives averages of integers in int64, against what its module states.
    for found, expected in zip(from_relax(mod).evaluate(feeds), run(mod, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6 if found.dtype.kind == "f" else 0)


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling_of_one_and_three_axes(ceil_mode: bool) -> None:
    def body(x: Any, y: Any) -> list[Any]:
        options = {"ceil_mode": ceil_mode}
        return [
            op.nn.max_pool1d(x, 3, 2, (1, 0), **options),
            op.nn.avg_pool1d(x, 3, 2, 1, count_include_pad=False, **options),
            op.nn.max_pool3d(y, (2, 3, 2), 2, 0, **options),
            op.nn.avg_pool3d(y, 2, 1, 1, count_include_pad=False, **options),
        ]

    check(body, x=(1, 3, 8), y=(1, 2, 5, 6, 4))


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("padding", [0, (1, 0, 0, 1)])
def test_pooling_of_windows_with_gaps(ceil_mode: bool, padding: Any) -> None:
    def body(x: Any) -> list[Any]:
        options = {"ceil_mode": ceil_mode, "padding": padding}
        return [
            op.nn.max_pool2d(x, (2, 3), (1, 2), dilation=(2, 1), **options),
            op.nn.max_pool2d(x, (2, 2), (2, 1), dilation=(1, 3), layout="NHWC", **options),
            op.nn.avg_pool2d(x, (2, 2), (1, 1), dilation=(2, 2), count_include_pad=True, **options),
            op.nn.avg_pool2d(x, (2, 2), (2, 2), dilation=(3, 1), count_include_pad=False, **options),
        ]

    check(body, x=(1, 6, 7, 5))


@pytest.mark.parametrize("name", ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"])
def test_comparisons(name: str) -> None:
    """Of tensors, of a tensor and a number on either side, of integers, and where they choose."""
    compare = getattr(op, name)

    def body(x: Any, y: Any, i: Any) -> list[Any]:
        floats = [compare(x, y), compare(x, constant(0.5)), compare(constant(0.5), x)]
        choice = op.where(compare(x, y), x, constant(9.0))
        places = compare(i, constant(1, "int32"))
        return [*(op.astype(item, "float32") for item in floats), choice, op.astype(places, "float32")]

    x = np.array([[0.5, -1, 2], [0, 0.5, 1]], "float32")
    i = np.array([0, 1, 2], "int32")
    graph = from_relax(build(body, x=(2, 3), y=(2, 3), i=((3,), "int32")))
    feeds = {"x": x, "y": x[::-1], "i": i}
    expected = run(build(body, x=(2, 3), y=(2, 3), i=((3,), "int32")), feeds)
    for found, wanted in zip(graph.evaluate(feeds), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_logic() -> None:
    def body(a: Any, b: Any) -> list[Any]:
        results = [op.logical_and(a, b), op.logical_or(a, b), op.logical_xor(a, b), op.logical_not(a)]
        return [op.astype(item, "float32") for item in results]

    pairs = np.array([[False, False, True, True], [False, True, False, True]])
    mod = build(body, a=((4,), "bool"), b=((4,), "bool"))
    feeds = {"a": pairs[0], "b": pairs[1]}
    for found, wanted in zip(from_relax(mod).evaluate(feeds), run(mod, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("axis", [None, 0, [1, 2]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_products_of_elements(axis: Any, keepdims: bool) -> None:
    check(lambda x: op.prod(x, axis=axis, keepdims=keepdims), x=(2, 3, 5))


def test_adaptive_pooling() -> None:
    def body(x: Any, y: Any, z: Any) -> list[Any]:
        return [
            op.nn.adaptive_avg_pool2d(x, (1, 1)),
            op.nn.adaptive_avg_pool2d(x, (3, 2)),
            op.nn.adaptive_avg_pool2d(x, (4, 5)),
            op.nn.adaptive_avg_pool2d(x, (5, 3), layout="NHWC"),
            op.nn.adaptive_avg_pool1d(y, 3),
            op.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"),
            op.nn.adaptive_avg_pool1d(y, 1),
            op.nn.adaptive_avg_pool3d(z, 1),
        ]

    check(body, x=(1, 6, 6, 4), y=(1, 3, 5), z=(1, 2, 3, 2, 4))
