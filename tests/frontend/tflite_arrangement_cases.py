"""TFLite's reductions and operators that move values, against NumPy."""

from __future__ import annotations

from itertools import product

import numpy as np
from tflite_case import IMAGE, Array, Cases, Computed, X, Y, f, ints
from tflite_files import random

CASES = Cases()
case = CASES.add

# Reductions

for (kind, reduced), keep, axes in product(
    {"MEAN": np.mean, "SUM": np.sum, "REDUCE_MAX": np.max, "REDUCE_MIN": np.min}.items(),
    [False, True],
    [(1, 2), (-1,), (0, 1, 2, 3)],
):
    case(
        f"{kind} over {axes} keep {keep}",
        kind,
        [Computed(IMAGE), ints(*axes)],
        f(reduced(IMAGE, axis=axes, keepdims=keep)),
        "ReducerOptions",
        {"KeepDims": keep},
    )

# Moving values

case("reshape by an input", "RESHAPE", [Computed(X), ints(-1, 4)], X.reshape(6, 4), "ReshapeOptions")
case("reshape by options", "RESHAPE", [Computed(X)], X.reshape(2, 12), "ReshapeOptions", {"NewShape": [2, 12]})
case("squeeze all", "SQUEEZE", [Computed(X.reshape(2, 1, 12, 1))], X.reshape(2, 12), "SqueezeOptions")
case(
    "squeeze one",
    "SQUEEZE",
    [Computed(X.reshape(2, 1, 12, 1))],
    X.reshape(2, 1, 12),
    "SqueezeOptions",
    {"SqueezeDims": [-1]},
)
case("expand dims", "EXPAND_DIMS", [Computed(X), ints(-2)], X[:, :, None], "ExpandDimsOptions")
case("transpose", "TRANSPOSE", [Computed(X), ints(1, 2, 0)], X.transpose(1, 2, 0), "TransposeOptions")
case(
    "concatenation",
    "CONCATENATION",
    [Computed(X), Computed(Y), random(2, 3, 1)],
    np.concatenate([X, Y, random(2, 3, 1)], -1),
    "ConcatenationOptions",
    {"Axis": -1},
)
case("concatenation of one", "CONCATENATION", [Computed(X)], X, "ConcatenationOptions", {"Axis": 1})
case("pack", "PACK", [Computed(X), Computed(Y)], np.stack([X, Y], axis=1), "PackOptions", {"ValuesCount": 2, "Axis": 1})
case("pack of one", "PACK", [Computed(X)], X[None], "PackOptions", {"ValuesCount": 1})
case("unpack", "UNPACK", [Computed(X)], [X[:, 0], X[:, 1], X[:, 2]], "UnpackOptions", {"Num": 3, "Axis": 1})
case("split", "SPLIT", [ints(2)[0], Computed(X)], np.split(X, 2, axis=2), "SplitOptions", {"NumSplits": 2})
case(
    "split by sizes",
    "SPLIT_V",
    [Computed(X), ints(1, -1), ints(2)[0]],
    [X[..., :1], X[..., 1:]],
    "SplitVOptions",
    {"NumSplits": 2},
)
case("slice", "SLICE", [Computed(X), ints(0, 1, 1), ints(2, -1, 2)], X[:, 1:, 1:3], "SliceOptions")
case("tile", "TILE", [Computed(X), ints(1, 2, 3)], np.tile(X, (1, 2, 3)), "TileOptions")
case("broadcast", "BROADCAST_TO", [Computed(X[:, :1]), ints(2, 3, 4)], np.broadcast_to(X[:, :1], (2, 3, 4)).copy())
case("reverse", "REVERSE_V2", [Computed(X), ints(1)], X[:, ::-1].copy(), "ReverseV2Options")
case("gather by constants", "GATHER", [Computed(X), ints(3, 0, 0)], X[..., [3, 0, 0]], "GatherOptions", {"Axis": 2})
case("gather in a row", "GATHER", [Computed(X), ints(1, 2)], X[:, 1:], "GatherOptions", {"Axis": 1})
case("gather one", "GATHER", [Computed(X), ints(1)[0]], X[:, 1], "GatherOptions", {"Axis": 1})
case("gather by computed", "GATHER", [random(5, 3), Computed(ints(4, 0, 1))], random(5, 3)[[4, 0, 1]], "GatherOptions")
case("embedding", "EMBEDDING_LOOKUP", [Computed(ints(4, 0, 1)), random(5, 3)], random(5, 3)[[4, 0, 1]])
case(
    "pad", "PAD", [Computed(X), ints(0, 0, 1, 2, 0, 1).reshape(3, 2)], np.pad(X, [(0, 0), (1, 2), (0, 1)]), "PadOptions"
)
case(
    "pad with a value",
    "PADV2",
    [Computed(X), ints(0, 0, 1, 2, 0, 1).reshape(3, 2), f(3)],
    np.pad(X, [(0, 0), (1, 2), (0, 1)], constant_values=3),
    "PadV2Options",
)
for mode, word in enumerate(["reflect", "symmetric"]):
    widths = ints(0, 0, 1, 2, 2, 0).reshape(3, 2)
    case(
        f"mirror {word}",
        "MIRROR_PAD",
        [Computed(X), widths],
        np.pad(X, widths, mode=word),
        "MirrorPadOptions",
        {"Mode": mode},
    )
case(
    "mirror as wide as the data",
    "MIRROR_PAD",
    [Computed(X), ints(0, 0, 3, 3, 4, 4).reshape(3, 2)],
    np.pad(X, [(0, 0), (3, 3), (4, 4)], mode="symmetric"),
    "MirrorPadOptions",
    {"Mode": 1},
)


def strided(name: str, expected: Array, begin: Array, end: Array, strides: Array, **masks: int) -> None:
    attributes = {f"{mask}Mask": bits for mask, bits in masks.items()}
    case(
        f"strided {name}",
        "STRIDED_SLICE",
        [Computed(X), begin, end, strides],
        expected,
        "StridedSliceOptions",
        attributes,
    )


strided("plain", X[0:2, 1:3, 0:4:2], ints(0, 1, 0), ints(2, 3, 4), ints(1, 1, 2))
strided("open", X[:, 1:, :-1], ints(9, 1, 2), ints(2, -2, -1), ints(1, 1, 1), Begin=0b101, End=0b10)
strided("backward", X[:, ::-1, 3:0:-2], ints(0, 7, 3), ints(2, 0, 0), ints(1, -1, -2), Begin=0b10, End=0b10)
strided("element", X[:, -1, 1:2], ints(0, -1, 1), ints(2, 0, 2), ints(1, 1, 1), ShrinkAxis=0b10)
strided("elements", X[1, :, 2], ints(1, 0, 2), ints(2, 3, 3), ints(1, 1, 1), ShrinkAxis=0b101)
strided("new axis", X[:, None, 1:], ints(0, 0, 1), ints(2, 0, 3), ints(1, 1, 1), NewAxis=0b10)
strided("ellipsis", X[..., 1:3], ints(0, 1), ints(0, 3), ints(1, 1), Ellipsis=0b1)
strided(
    "all at once",
    X[None, ..., 2],
    ints(0, 0, 2),
    ints(0, 0, 3),
    ints(1, 1, 1),
    NewAxis=0b1,
    Ellipsis=0b10,
    ShrinkAxis=0b100,
)
strided("fewer entries", X[:, 1:], ints(0, 1), ints(2, 3), ints(1, 1))

BLOCKS = random(2, 4, 6, 8)
case(
    "depth to space",
    "DEPTH_TO_SPACE",
    [Computed(BLOCKS)],
    BLOCKS.reshape(2, 4, 6, 2, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(2, 8, 12, 2),
    "DepthToSpaceOptions",
    {"BlockSize": 2},
)
case(
    "space to depth",
    "SPACE_TO_DEPTH",
    [Computed(BLOCKS)],
    BLOCKS.reshape(2, 2, 2, 3, 2, 8).transpose(0, 1, 3, 2, 4, 5).reshape(2, 2, 3, 32),
    "SpaceToDepthOptions",
    {"BlockSize": 2},
)


def spread(data: Array, blocks: tuple[int, ...], pads: list[tuple[int, int]]) -> Array:
    """Sample (i, j, ..) of each old one holds every b-th element from place i on, every c-th from j on, .."""
    data = np.pad(data, [(0, 0), *pads, *[(0, 0)] * (data.ndim - 1 - len(pads))])
    parts = []
    for place in product(*map(range, blocks)):
        steps = tuple(slice(first, None, size) for first, size in zip(place, blocks, strict=True))
        parts.append(data[(slice(None), *steps)])
    return np.concatenate(parts)


for blocks, pads in {(2, 3): [(0, 1), (1, 2)], (2, 1): [(1, 0), (0, 0)], (4,): [(1, 0)]}.items():
    whole = IMAGE if len(blocks) == 2 else IMAGE[:, :, 0].copy()
    dealt = spread(whole, blocks, pads)
    case(f"space to batch {blocks}", "SPACE_TO_BATCH_ND", [Computed(whole), ints(*blocks), np.int32(pads)], dealt)
    case(f"batch to space {blocks}", "BATCH_TO_SPACE_ND", [Computed(dealt), ints(*blocks), np.int32(pads)], whole)

for exclusive, backwards in product([False, True], repeat=2):
    ordered = X[:, ::-1] if backwards else X
    sums = np.cumsum(ordered, axis=1) - (ordered if exclusive else 0)
    case(
        f"cumsum exclusive {exclusive} reverse {backwards}",
        "CUMSUM",
        [Computed(X), ints(1)[0]],
        f(sums[:, ::-1] if backwards else sums),
        "CumsumOptions",
        {"Exclusive": exclusive, "Reverse": backwards},
    )

ROWS = ints(3, 1, 0, 2).reshape(2, 2)
for given in (ROWS, Computed(ROWS)):
    is_known = given is ROWS
    table = random(2, 4, 3)
    case(
        f"gather in batches, known {is_known}",
        "GATHER",
        [Computed(table), given] if is_known else [table, given],
        np.stack([table[0][ROWS[0]], table[1][ROWS[1]]]),
        "GatherOptions",
        {"Axis": 1, "BatchDims": 1},
    )
PLACES = ints(1, 2, 0, 0, 1, 1).reshape(3, 2)
case("gather parts", "GATHER_ND", [Computed(X), PLACES], X[PLACES[:, 0], PLACES[:, 1]])
case(
    "gather elements", "GATHER_ND", [Computed(X), np.int32([[[1, 2, 3]], [[0, 1, 0]]])], f([[X[1, 2, 3]], [X[0, 1, 0]]])
)

for axis in (-1, 0):
    picked = ints(2, 0, 5, 1).reshape(2, 2)
    case(
        f"one hot along {axis}",
        "ONE_HOT",
        [Computed(picked), ints(3)[0], f(2), f(-1)],
        f(np.moveaxis(np.where(picked[..., None] == np.arange(3), 2, -1), -1, axis)),
        "OneHotOptions",
        {"Axis": axis},
    )
