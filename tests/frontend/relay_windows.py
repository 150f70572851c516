"""A convolution in Python loops."""

from __future__ import annotations

import itertools

import numpy as np


def convolved(
    x: np.ndarray, w: np.ndarray, stride: tuple[int, ...], pads: tuple[int, ...], groups: int = 1
) -> np.ndarray:
    """Cross-correlation of (N, C, ...) and (O, C / groups, ...) by its definition, in float64."""
    spatial = len(stride)
    x = np.pad(x.astype("f8"), [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)])
    shape = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], w.shape[2:], stride, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *shape))
    per_group = w.shape[0] // groups
    for place in itertools.product(*map(range, shape)):
        window = x[
            (
                slice(None),
                slice(None),
                *(slice(p * s, p * s + k) for p, s, k in zip(place, stride, w.shape[2:], strict=True)),
            )
        ]
        for o in range(w.shape[0]):
            first = o // per_group * w.shape[1]
            part = window[:, first : first + w.shape[1]] * w[o]
            out[(slice(None), o, *place)] = part.reshape(len(x), -1).sum(axis=1)
    return out
