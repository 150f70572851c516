"""Convolution and pooling of ONNX, over every combination of their attributes, against ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx_models import OPSETS, assert_agrees, operators_of, random_feeds, run_onnxruntime, run_reference, single

from mrt.errors import GraphError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(3)


def weights(*shape: int) -> dict[str, np.ndarray]:
    return {"w": RNG.standard_normal(shape).astype(np.float32), "b": RNG.standard_normal(shape[0]).astype(np.float32)}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("opset", OPSETS)
def test_convolution_of_every_rank(rank: int, opset: int) -> None:
    sizes = (7, 6, 5)[:rank]
    model = single("Conv", (2, 3, *sizes), weights(4, 3, *(3, 2, 3)[:rank]), opset)
    assert operators_of(assert_agrees(model)) == ["Convolution"]


@pytest.mark.parametrize(
    ("pads", "records"),
    [((1, 2, 1, 2), ["Convolution"]), ((0, 1, 2, 0), ["Pad", "Convolution"]), ((0, 0, 1, 1), ["Pad", "Convolution"])],
)
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("dilations", [(1, 1), (2, 1)])
def test_convolution_pads_strides_dilations(
    pads: tuple[int, ...], records: list[str], strides: tuple[int, int], dilations: tuple[int, int]
) -> None:
    model = single("Conv", (1, 2, 8, 9), weights(3, 2, 3, 2), pads=pads, strides=strides, dilations=dilations)
    assert operators_of(assert_agrees(model)) == records


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_convolution_auto_pad(auto_pad: str, size: int, kernel: int, stride: int) -> None:
    model = single("Conv", (1, 2, size, 9), weights(3, 2, kernel, 3), auto_pad=auto_pad, strides=[stride, 2])
    assert_agrees(model)


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("with_bias", [True, False])
def test_convolution_groups_and_bias(group: int, with_bias: bool) -> None:
    constants = weights(8, 4 // group, 3, 3)
    if not with_bias:
        del constants["b"]
    graph = assert_agrees(single("Conv", (2, 4, 6, 6), constants, group=group, kernel_shape=[3, 3]))
    assert graph.outputs[0].operator.num_group == group
    assert graph.outputs[0].operator.no_bias is not with_bias


def test_convolution_whose_kernel_shape_contradicts_the_weight() -> None:
    with pytest.raises(GraphError, match=r"kernel_shape is \(3, 3\), but the weight"):
        from_onnx(single("Conv", (1, 2, 6, 6), weights(3, 2, 2, 2), kernel_shape=[3, 3]))


def pooling_cases() -> list[tuple[int, int, int, int, int]]:
    """Size, kernel, stride, begin and end padding of one axis, where ONNX allows them and every window has data."""
    return [
        (size, kernel, stride, begin, end)
        for size, kernel, stride, begin, end in itertools.product((4, 5, 7), (1, 2, 3), (1, 2, 3), (0, 1, 2), (0, 1, 2))
        if begin < kernel and end < kernel
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("size", "kernel", "stride", "begin", "end"), pooling_cases())
def test_pooling_of_every_combination(size: int, kernel: int, stride: int, begin: int, end: int) -> None:
    """The other axis is even or odd in turn."""
    # Of windows beyond the padded data ONNX Runtime 1.23 gets some wrong where the end is padded, ONNX where it is not.
    average = run_reference if end else run_onnxruntime
    for ceil_mode in (0, 1):
        common = {
            "kernel_shape": [kernel, 3],
            "strides": [stride, 2],
            "pads": [begin, 0, end, 1],
            "ceil_mode": ceil_mode,
        }
        width = 5 + (kernel + stride + begin + end + ceil_mode) % 2
        assert_agrees(single("MaxPool", (1, 2, size, width), **common))
        for include in (0, 1):
            model = single("AveragePool", (1, 2, size, width), opset=19, count_include_pad=include, **common)
            assert_agrees(model, run=average)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 1, 0)])
def test_windows_longer_than_the_data_that_rounding_up_counts(op_type: str, pads: tuple[int, ...]) -> None:
    """EfficientNet of transformers pools 7 x 7 so, by windows as long as it has channels."""
    common = {"kernel_shape": [1280, 8], "strides": [1280, 3], "pads": pads, "ceil_mode": 1}
    graph = assert_agrees(single(op_type, (1, 2, 7, 6), opset=19, **common))
    assert graph.outputs[0].shape == (1, 2, 1, 1)
    with pytest.raises(GraphError, match="exceeds axis 3"):
        from_onnx(single(op_type, (1, 2, 7, 5), opset=19, **common))


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (3, 1), (2, 3)])
def test_pooling_auto_pad(op_type: str, auto_pad: str, size: int, kernel: int, stride: int) -> None:
    attributes = {"kernel_shape": [kernel, 3], "strides": [stride, 1], "auto_pad": auto_pad}
    assert_agrees(single(op_type, (1, 2, size, 5), **attributes))


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("opset", OPSETS)
def test_pooling_of_every_rank(op_type: str, rank: int, opset: int) -> None:
    attributes = {} if op_type.startswith("Global") else {"kernel_shape": [2] * rank}
    assert operators_of(assert_agrees(single(op_type, (2, 3, 5, 4, 6)[: rank + 2], opset=opset, **attributes))) == [
        "Pooling"
    ]


def test_pooling_conventions_are_the_simplest() -> None:
    def convention(size: int, **attributes: object) -> str:
        model = single("MaxPool", (1, 1, size, size), kernel_shape=[3, 3], strides=[2, 2], **attributes)
        return str(from_onnx(model).outputs[0].operator.pooling_convention)

    assert convention(8) == "valid"
    assert convention(8, ceil_mode=1) == "full"
    assert convention(7, ceil_mode=1) == "valid"
    # The last of the windows rounded up would lie in the end padding alone.
    assert convention(8, ceil_mode=1, pads=[0, 0, 2, 2]) == "valid"
    model = single("MaxPool", (1, 1, 5, 5), kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1)
    assert assert_agrees(model).outputs[0].operator.pooling_convention == "valid"


@pytest.mark.parametrize("dilations", [(2, 1), (2, 3)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0)])
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_dilated_pooling(
    dilations: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], ceil_mode: int
) -> None:
    common = {"kernel_shape": [2, 3], "dilations": dilations, "strides": strides, "pads": pads, "ceil_mode": ceil_mode}
    for shape in ((1, 2, 8, 9), (2, 1, 7, 8)):
        assert_agrees(single("MaxPool", shape, **common))
        for include in (0, 1):
            assert_agrees(single("AveragePool", shape, opset=19, count_include_pad=include, **common))
        assert_agrees(single("LpPool", shape, opset=18, **common))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_dilated_pooling_auto_pad(auto_pad: str, stride: int, kernel: int) -> None:
    """As with the pads that the specification computes; ONNX Runtime computes them as if there were no dilation."""
    size, common = 9, {"kernel_shape": [kernel], "dilations": [2], "strides": [stride]}
    total = max((-(-size // stride) - 1) * stride + 2 * (kernel - 1) + 1 - size, 0)
    halves = total // 2, total - total // 2
    stated = single("MaxPool", (1, 2, size), pads=halves if auto_pad == "SAME_UPPER" else halves[::-1], **common)
    graph = from_onnx(single("MaxPool", (1, 2, size), auto_pad=auto_pad, **common))
    feeds = random_feeds(graph)
    np.testing.assert_array_equal(graph.evaluate(feeds)[0], run_onnxruntime(stated, feeds)[0])


def test_a_dilated_window_of_padding_only_is_refused() -> None:
    with pytest.raises(GraphError, match="a window along axis 2 .* holds padding only, or none fits"):
        from_onnx(single("MaxPool", (1, 1, 3, 3), kernel_shape=[2, 2], dilations=[4, 1]))


@pytest.mark.parametrize("opset", [9, 11, 18])
@pytest.mark.parametrize("order", [None, 1, 2, 3])
def test_pooling_of_lengths(opset: int, order: int | None) -> None:
    attributes = {} if order is None else {"p": order}
    common = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]}
    assert_agrees(single("LpPool", (1, 2, 5, 6), opset=opset, **common, **attributes))
    assert_agrees(single("GlobalLpPool", (1, 2, 5, 6), opset=opset, **attributes))
