"""Convolution and pooling compiled, against the records."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Bundle

from mrt.backend import TvmRunner

CONVOLUTIONS = [
    {"kernel": (3, 3), "num_filter": 32, "pad": (1, 1)},
    {"kernel": (3, 3), "num_filter": 16, "pad": (1, 0), "stride": (2, 1), "dilate": (1, 2)},
    {"kernel": (1, 1), "num_filter": 48},
    {"kernel": (1, 1), "num_filter": 20, "no_bias": True},
    {"kernel": (1, 1), "num_filter": 7, "stride": (2, 2)},
    {"kernel": (2, 3), "num_filter": 5, "pad": (1, 2), "stride": (3, 2)},
    {"kernel": (3, 3), "num_filter": 12, "num_group": 12, "pad": (1, 1), "stride": (2, 2)},
    {"kernel": (3, 3), "num_filter": 24, "num_group": 12},
    {"kernel": (3, 2), "num_filter": 24, "num_group": 3, "dilate": (2, 1)},
    {"kernel": (3, 3), "num_filter": 40, "num_group": 2, "pad": (2, 2)},
    {"kernel": (1, 1), "num_filter": 72, "num_group": 4},
    {"kernel": (5, 5), "num_filter": 3},
    {"kernel": (9, 10), "num_filter": 9},
    {"kernel": (1, 1), "num_filter": 1},
]


def convolutions(bundle: Bundle, data: np.ndarray, settings: list[dict], weight_dtype: str) -> None:
    x = bundle.input(data)
    for attributes in settings:
        shape = (attributes["num_filter"], x.shape[1] // attributes.get("num_group", 1), *attributes["kernel"])
        if weight_dtype == "float32":
            parameters = [bundle.floats(*shape), bundle.floats(shape[0])]
        else:
            parameters = [bundle.integers(shape, weight_dtype), bundle.integers((shape[0],), "int32", -(2**20), 2**20)]
        given = parameters[: 1 if attributes.get("no_bias") else 2]
        bundle.add("Convolution", x, *(bundle.parameter(value) for value in given), **attributes)


FACTORS = [("int8", "int8"), ("uint8", "int8"), ("int16", "int8"), ("int8", "int16")]
"""Dtypes of data and weights, of bytes and of words."""


@pytest.mark.parametrize("dtypes", FACTORS)
def test_integer_convolutions_are_exact(dtypes: tuple[str, str]) -> None:
    """Each by one of the pairs of bytes, and by one of those of words."""
    bundle, turn = Bundle(), FACTORS.index(dtypes)
    convolutions(bundle, bundle.integers((2, 12, 9, 10), dtypes[0]), CONVOLUTIONS[turn % 2 :: 2], dtypes[1])
    bundle.check()


def test_float_convolutions_agree() -> None:
    bundle = Bundle()
    convolutions(bundle, bundle.floats(3, 12, 9, 10), CONVOLUTIONS, "float32")
    bundle.check(tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_convolutions_of_one_and_three_spatial_axes(dtype: str) -> None:
    bundle = Bundle()
    for shape, settings in [
        (
            (2, 6, 17),
            [{"kernel": (3,), "num_filter": 8, "pad": (1,), "stride": (2,)}, {"kernel": (1,), "num_filter": 4}],
        ),
        (
            (1, 4, 5, 6, 7),
            [
                {"kernel": (3, 1, 2), "num_filter": 9, "pad": (1, 0, 1), "dilate": (1, 1, 2)},
                {"kernel": (1, 1, 1), "num_filter": 16},
                {"kernel": (2, 2, 2), "num_filter": 4, "num_group": 4, "stride": (1, 2, 2)},
            ],
        ),
    ]:
        data = bundle.floats(*shape) if dtype == "float32" else bundle.integers(shape, dtype)
        convolutions(bundle, data, settings, dtype)
    bundle.check(tolerance=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_weight_that_is_computed_or_shared_is_no_packed_parameter(groups: int) -> None:
    bundle = Bundle()
    x = bundle.input(bundle.integers((1, 4, 6, 6)))
    weight = bundle.input(bundle.integers((20, 4 // groups, 3, 3)), "w")
    bundle.add("Convolution", x, weight, kernel=(3, 3), num_filter=20, num_group=groups, no_bias=True)
    shared = bundle.parameter(bundle.integers((8, 4, 1, 1)))
    bundle.add("Convolution", x, shared, kernel=(1, 1), num_filter=8, no_bias=True)
    bundle.add("relu", shared)
    bundle.check()


POOLINGS = [
    {"kernel": (2, 2), "stride": (2, 2)},
    {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
    {"kernel": (3, 3), "stride": (2, 2), "pooling_convention": "full"},
    {"kernel": (3, 3), "stride": (3, 2), "pad": (1, 1), "pooling_convention": "full"},
    {"kernel": (3, 3), "stride": (2, 2), "pad": (0, 1, 2, 1)},
    {"kernel": (2, 3), "stride": (2, 3), "pad": (1, 0, 0, 1), "pooling_convention": "full"},
    {"global_pool": True},
    {"kernel": (8, 8), "pad": (3, 3)},
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "float32"])
def test_poolings_agree(dtype: str) -> None:
    bundle = Bundle()
    limits = {"int32": (-(2**24), 2**24)}.get(dtype, (None, None))
    data = bundle.floats(2, 3, 9, 11) if dtype == "float32" else bundle.integers((2, 3, 9, 11), dtype, *limits)
    x = bundle.input(data)
    for number, attributes in enumerate(POOLINGS):
        if dtype != "float32":
            for pool_type in ("max", "sum"):
                bundle.add("Pooling", x, pool_type=pool_type, **attributes)
            continue
        bundle.add("Pooling", x, pool_type=("max", "sum")[number // 2 % 2], **attributes)
        for count_include_pad in (True, False) if "pad" in attributes else (number % 4 == 0,):
            bundle.add("Pooling", x, pool_type="avg", count_include_pad=count_include_pad, **attributes)
    bundle.keep_in_turn(dtype)
    bundle.check(tolerance=1e-5)


def test_maxima_of_lowest_values_do_not_see_the_border() -> None:
    bundle = Bundle()
    for dtype in ("int8", "int32"):
        x = bundle.input(np.full((1, 1, 4, 4), np.iinfo(dtype).min + 1, dtype))
        bundle.add("Pooling", x, kernel=(3, 3), stride=(1, 1), pad=(2, 2))
    bundle.check()


def test_poolings_of_one_and_three_spatial_axes() -> None:
    bundle = Bundle()
    bundle.add("Pooling", bundle.input(bundle.integers((2, 3, 11))), kernel=(3,), stride=(2,), pad=(1,))
    x = bundle.input(bundle.integers((1, 2, 5, 6, 4)))
    bundle.add("Pooling", x, kernel=(2, 3, 2), stride=(1, 2, 2), pool_type="sum")
    bundle.check()


def test_a_sample_gives_the_same_floats_in_any_batch() -> None:
    """Calibration must not depend on how samples are batched; the last bit included."""
    samples = np.random.default_rng(1).standard_normal((6, 12, 9, 10)).astype(np.float32)
    found = []
    for batch in (1, 3, 6):
        parts = []
        for start in range(0, 6, batch):
            bundle = Bundle()
            convolutions(bundle, samples[start : start + batch], CONVOLUTIONS[:8], "float32")
            graph = bundle.graph()
            if start == 0:
                run = TvmRunner().prepare(graph)
            parts.append(run(bundle.feeds))
        found.append([np.concatenate(pieces) for pieces in zip(*parts, strict=True)])
    for others in found[1:]:
        for a, b in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(a, b)
