"""TFLite's resizing of images and MediaPipe's biased transpose of a convolution, against NumPy."""

from __future__ import annotations

import struct
from itertools import product

import numpy as np
from tflite_case import IMAGE, Array, Cases, Computed, f, ints
from tflite_files import random

CASES = Cases()
case = CASES.add

for size, (corners, half) in product([(14, 12), (7, 18), (5, 9), (3, 3), (1, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]):

    def nearest(old: int, new: int, corners: int = corners, half: int = half) -> Array:
        scale = np.float32(old - 1) / np.float32(new - 1) if corners and new > 1 else np.float32(old) / np.float32(new)
        places = (np.arange(new, dtype=np.float32) + np.float32(0.5 * half)) * scale
        found = np.floor(places + np.float32(0.5)) if corners else np.floor(places)
        return np.clip(found, 0, old - 1).astype(int)

    case(
        f"resize to {size} corners {corners} half {half}",
        "RESIZE_NEAREST_NEIGHBOR",
        [Computed(IMAGE), ints(*size)],
        IMAGE[:, nearest(7, size[0])][:, :, nearest(6, size[1])],
        "ResizeNearestNeighborOptions",
        {"AlignCorners": bool(corners), "HalfPixelCenters": bool(half)},
    )

    def along(data: Array, axis: int, new: int, corners: int = corners, half: int = half) -> Array:
        """Linearly between the two elements that a place lies between, each at least the first and at most the last."""
        old = data.shape[axis]
        scale = (old - 1) / (new - 1) if corners and new > 1 else old / new
        places = (np.arange(new) + 0.5) * scale - 0.5 if half else np.arange(new) * scale
        shape = [1] * data.ndim
        shape[axis] = new
        share = (places - np.floor(places)).reshape(shape)
        low, high = (np.clip(np.floor(places).astype(int) + step, 0, old - 1) for step in (0, 1))
        return data.take(low, axis) * (1 - share) + data.take(high, axis) * share

    if not (corners and half):
        case(
            f"bilinear to {size} corners {corners} half {half}",
            "RESIZE_BILINEAR",
            [Computed(IMAGE), ints(*size)],
            f(along(along(IMAGE, 1, size[0]), 2, size[1])),
            "ResizeBilinearOptions",
            {"AlignCorners": bool(corners), "HalfPixelCenters": bool(half)},
        )


def transposed_with_bias(data: Array, weight: Array, bias: Array, stride: tuple[int, int], same: bool) -> Array:
    """Each element adds its multiple of the weight around its place in a larger image, of which borders are cut."""
    batch, height, width, _ = data.shape
    outputs, down, across, _ = weight.shape
    whole = np.zeros((batch, (height - 1) * stride[0] + down, (width - 1) * stride[1] + across, outputs))
    for row, column in np.ndindex(height, width):
        top, left = row * stride[0], column * stride[1]
        whole[:, top : top + down, left : left + across] += np.einsum("ni,ohwi->nhwo", data[:, row, column], weight)
    lost = [
        max(0, size - (length - 1) % step - 1) if same else 0
        for size, length, step in zip((down, across), (height, width), stride, strict=True)
    ]
    begin = [cut // 2 for cut in lost]
    rows, columns = (whole.shape[1 + axis] - lost[axis] for axis in range(2))
    return whole[:, begin[0] : begin[0] + rows, begin[1] : begin[1] + columns] + bias


for shape, stride, padding in product([(2, 2), (3, 4), (5, 3)], [(2, 2), (1, 3)], [1, 2]):
    kernel, bias = random(5, *shape, 4, seed=8), random(5, seed=9)
    case(
        f"biased transposed convolution {shape} by {stride} padding {padding}",
        "CUSTOM Convolution2DTransposeBias",
        [Computed(IMAGE), kernel, bias],
        f(transposed_with_bias(IMAGE, kernel, bias, stride, padding == 1)),
        custom=struct.pack("<3i", padding, stride[1], stride[0]),
        tolerance=1e-4,
    )
