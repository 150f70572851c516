"""Convolutions of samples that SPACE_TO_BATCH_ND dealt out are dilated ones, as NumPy and TensorFlow have it."""

from __future__ import annotations

import numpy as np
import pytest
from tflite_files import File, interpreted, random

from mrt.frontend import from_tflite

SAME, VALID = 0, 1
DEPTHWISE = "DEPTHWISE_CONV_2D"


def dilated(data: np.ndarray, kernel: np.ndarray, steps: tuple[int, int]) -> np.ndarray:
    """A depthwise convolution (N, H, W, C) without padding, its elements `steps` apart."""
    rows, columns, _ = kernel.shape
    height, width = data.shape[1] - (rows - 1) * steps[0], data.shape[2] - (columns - 1) * steps[1]
    total = np.zeros((len(data), height, width, data.shape[3]))
    for row, column in np.ndindex(rows, columns):
        top, left = row * steps[0], column * steps[1]
        total += data[:, top : top + height, left : left + width] * kernel[row, column]
    return total


def network(blocks: tuple[int, int], pads: list[list[int]], crops: list[list[int]], padding: int, stride: int = 1):
    """A depthwise convolution 3x2 with a relu between the two, on an image (1, 8, 9, 4) that `pads` make fit."""
    file = File()
    height, width = 8 + sum(pads[0]), 9 + sum(pads[1])
    inner = (blocks[0] * blocks[1], height // blocks[0], width // blocks[1], 4)
    lost = (0, 0) if padding == SAME else (2, 1)
    sizes = [(size - cut + stride - 1) // stride for size, cut in zip(inner[1:3], lost, strict=True)]
    data, dealt, made = file.input((1, 8, 9, 4)), file.tensor(inner), file.tensor((inner[0], *sizes, 4))
    whole = [size * block - sum(crop) for size, block, crop in zip(sizes, blocks, crops, strict=True)]
    result = file.tensor((1, *whole, 4))
    block = file.constant(np.int32(blocks))
    kernel, bias = random(1, 3, 2, 4, seed=3), random(4, seed=4)
    file.operator("SPACE_TO_BATCH_ND", [data, block, file.constant(np.int32(pads))], [dealt])
    options = {"Padding": padding, "StrideH": stride, "StrideW": stride, "DepthMultiplier": 1}
    options |= {"DilationHFactor": 1, "DilationWFactor": 1, "FusedActivationFunction": 1}
    inputs = [dealt, file.constant(kernel), file.constant(bias)]
    file.operator(DEPTHWISE, inputs, [made], "DepthwiseConv2DOptions", **options)
    file.operator("BATCH_TO_SPACE_ND", [made, block, file.constant(np.int32(crops))], [result])
    return file.write([result]), kernel[0], bias


CASES = {
    "as converters write it": ((2, 3), [[2, 2], [0, 0]], [[0, 0], [0, 0]], VALID),
    "cropped": ((4, 2), [[4, 4], [1, 2]], [[1, 0], [0, 1]], VALID),
    "one axis": ((1, 3), [[1, 1], [3, 0]], [[0, 0], [0, 0]], VALID),
    "padded in between": ((2, 3), [[0, 0], [0, 0]], [[0, 0], [0, 0]], SAME),
}
X = random(1, 8, 9, 4)


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_dilated_convolution(name: str) -> None:
    blocks, pads, crops, padding = CASES[name]
    content, kernel, bias = network(*CASES[name])
    graph = from_tflite(content)
    (layer,) = (symbol for symbol in graph.operators if symbol.op == "Convolution")
    assert layer.operator.dilate == blocks
    assert not {"Reshape", "Flatten"} & set(graph.count_operators())
    borders = [tuple(pair) for pair in pads]
    if padding == SAME:
        # Of a kernel of 3 and 2 elements: one before and one after, and one after.
        borders = [(blocks[0], blocks[0]), (0, blocks[1])]
    padded = np.pad(X, [(0, 0), *borders, (0, 0)])
    expected = np.maximum(dilated(padded, kernel, blocks) + bias, 0)
    (top, bottom), (left, right) = crops
    expected = expected[:, top : expected.shape[1] - bottom, left : expected.shape[2] - right]
    (found,) = graph.evaluate({graph.inputs[0].name: X})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_gives_the_same(name: str, stride: int) -> None:
    """With a stride of 2 the samples stay dealt out."""
    content, _, _ = network(*CASES[name], stride)
    (expected,) = interpreted(content, [X])
    graph = from_tflite(content)
    (found,) = graph.evaluate({graph.inputs[0].name: X})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    (layer,) = (symbol for symbol in graph.operators if symbol.op == "Convolution")
    assert bool(layer.operator.dilate) == (stride == 1)


def test_what_lies_between_may_be_anything() -> None:
    """Dealt out rows in reverse are no reversed rows: the elements are moved there and back."""
    file = File()
    data, dealt, made, result = (
        file.input((1, 4, 6, 2)),
        *(file.tensor(s) for s in [(6, 2, 2, 2)] * 2),
        file.tensor((1, 4, 6, 2)),
    )
    block, none = file.constant(np.int32([2, 3])), file.constant(np.int32([[0, 0], [0, 0]]))
    file.operator("SPACE_TO_BATCH_ND", [data, block, none], [dealt])
    file.operator("REVERSE_V2", [dealt, file.constant(np.int32([2]))], [made])
    file.operator("BATCH_TO_SPACE_ND", [made, block, none], [result])
    graph = from_tflite(file.write([result]))
    x = random(1, 4, 6, 2)
    (found,) = graph.evaluate({graph.inputs[0].name: x})
    np.testing.assert_array_equal(found, x.reshape(1, 4, 2, 3, 2)[:, :, ::-1].reshape(1, 4, 6, 2))
