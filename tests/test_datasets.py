"""Datasets: every source gives the same batches as NumPy by hand, and what is unusable is one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrt.config import NpyDataset
from mrt.datasets import content_digest, load_dataset
from mrt.errors import DataError
from mrt.symbol import TensorType
from tests.dataset_files import GOOD, IMAGE, TWO, gathered, images, npz, npz_of


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_preprocessing_is_layout_then_scale_then_mean_then_std(tmp_path: Path, batch_size: int) -> None:
    x, labels = images(), np.arange(7)
    config = npz_of(npz(tmp_path, x=x, y=labels), y="y", layout="NHWC->NCHW", scale=0.5, mean=[1, 2, 3], std=[2, 4, 8])
    dataset = load_dataset(config, IMAGE, "data.test")
    expected = (x.astype(np.float64) * 0.5 - [1, 2, 3]) / [2, 4, 8]
    found = gathered(dataset, batch_size)["data"]
    assert found.dtype == np.float32 and found.flags.c_contiguous
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), rtol=1e-6)
    assert dataset.labels is not None
    np.testing.assert_array_equal(dataset.labels, labels)


def test_slice_and_samples_choose_the_samples(tmp_path: Path) -> None:
    x = np.ascontiguousarray(images().transpose(0, 3, 1, 2))
    config = npz_of(npz(tmp_path, x=x, y=np.arange(7)), y="y", slice=[2, 6], samples=3)
    dataset = load_dataset(config, IMAGE, "data.test")
    np.testing.assert_array_equal(gathered(dataset, 2)["data"], x[2:5])
    assert dataset.labels is not None and dataset.labels.tolist() == [2, 3, 4]


def test_arrays_by_input_name(tmp_path: Path) -> None:
    a, b = np.ones((4, 2)), np.zeros((4, 3), np.float16)
    config = npz_of(npz(tmp_path, first=a, second=b), x={"left": "first", "right": "second"})
    found = gathered(load_dataset(config, TWO, "data.test"), 3)
    assert {name: (array.shape, array.dtype.name) for name, array in found.items()} == {
        "left": ((4, 2), "float32"),
        "right": ((4, 3), "float32"),
    }


def test_integer_inputs_are_not_preprocessed(tmp_path: Path) -> None:
    config = npz_of(npz(tmp_path, x=np.array([[3, 300]])), scale=2)
    types = {"tokens": TensorType((1, 2), "int32")}
    assert gathered(load_dataset(config, types, "data.test"), 1)["tokens"].tolist() == [[3, 300]]
    with pytest.raises(DataError, match="uint8, the data go from 3 to 300"):
        gathered(load_dataset(config, {"tokens": TensorType((1, 2), "uint8")}, "data.test"), 1)


@pytest.mark.parametrize(
    ("x", "options", "told"),
    [
        (images(), {}, {"data": "uint8"}),
        (images().astype(np.int64), {"mean": [0, 0, 0]}, {"data": "int64"}),
        (images(), {"scale": 1 / 255}, {}),
        (images(), {"std": 2}, {}),
        (images() / 255, {}, {}),
        ((images() > 9).astype(np.uint8), {}, {}),
    ],
)
def test_integers_that_the_network_gets_as_they_are_are_told(
    tmp_path: Path, x: np.ndarray, options: dict[str, Any], told: dict[str, str]
) -> None:
    config = npz_of(npz(tmp_path, x=x), layout="NHWC->NCHW", **options)
    assert load_dataset(config, IMAGE, "data.test").first(3).integers == told


@pytest.mark.parametrize(
    ("arrays", "options", "needed"),
    [
        ({"image": GOOD}, {}, "no array 'x'"),
        ({"images": GOOD}, {"x": "image"}, "did you mean images"),
        ({"x": GOOD}, {"y": "y"}, "no array 'y'"),
        ({"x": GOOD[0]}, {}, "rank 3; rank 4 is needed"),
        ({"x": GOOD[:, :2]}, {}, r"shape \[2, 4, 5\], the network needs \[3, 4, 5\]"),
        ({"x": np.full(GOOD.shape, "a")}, {}, "<U1, float32 is needed"),
        ({"x": GOOD.astype(complex)}, {}, "complex128"),
        ({"x": np.array([None, 1])}, {}, "truncated"),
        ({"x": np.float32(1)}, {}, "single number"),
        ({"x": GOOD[:0]}, {}, "holds no samples"),
        ({"x": GOOD}, {"samples": 3}, "3 samples are asked for, there are 2"),
        ({"x": GOOD}, {"slice": [0, 3]}, "there are 2 samples"),
        ({"x": GOOD}, {"slice": [2, None]}, "there are 2 samples"),
        ({"x": GOOD}, {"layout": "NWC->NCW"}, "needs 3 axes"),
        ({"x": GOOD}, {"mean": [1, 2]}, "mean has 2 values"),
        ({"x": GOOD}, {"x": {"other": "x"}}, r"gives the inputs \['other'\], the network has \['data'\]"),
        ({"x": np.full(GOOD.shape, 1e300)}, {}, "sample 0 holds NaN or infinity"),
        ({"x": GOOD, "y": np.zeros(2)}, {"y": "y"}, "labels are float64"),
        ({"x": GOOD, "y": np.zeros(3, int)}, {"y": "y"}, r"integers of shape \[2\]"),
        ({"x": GOOD, "y": np.array([1, -1])}, {"y": "y"}, "label -1 of sample 1 is negative"),
        ({"x": GOOD, "y": np.array([1, 2**63], np.uint64)}, {"y": "y"}, "label 9223372036854775808 of sample 1"),
        ({"x": GOOD, "y": np.array([1, None])}, {"y": "y"}, "Object arrays"),
        ({"x": GOOD}, {"x": {}}, "x names no arrays"),
    ],
)
def test_unusable_arrays_are_named(tmp_path: Path, arrays: Any, options: Any, needed: str) -> None:
    config = npz_of(npz(tmp_path, **arrays), **options)
    with pytest.raises(DataError, match=needed) as caught:
        gathered(load_dataset(config, IMAGE, "data.test"), 2)
    assert "data.test" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_sample_that_is_not_finite_is_named(tmp_path: Path, value: float) -> None:
    x = np.zeros((5, 3, 4, 5))
    x[3, 1, 2, 2] = value
    with pytest.raises(DataError, match="sample 3 holds NaN or infinity in input data"):
        gathered(load_dataset(npz_of(npz(tmp_path, x=x)), IMAGE, "data.test"), 2)


def test_files_that_are_missing_truncated_or_something_else(tmp_path: Path) -> None:
    whole = npz(tmp_path, x=GOOD).read_bytes()
    broken = {
        "missing.npz": None,
        "empty.npz": b"",
        "text.npz": b"not an array",
        "start.npz": whole[: len(whole) // 2],
    }
    np.savez_compressed(tmp_path / "packed.npz", x=np.random.default_rng(0).normal(size=(2, 3, 4, 5)))
    packed = (tmp_path / "packed.npz").read_bytes()
    broken["packed.npz"] = packed[:300] + bytes(64) + packed[364:]
    for name, content in broken.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            load_dataset(npz_of(tmp_path / name), IMAGE, "data.test")
    np.save(tmp_path / "array.npy", GOOD)
    with pytest.raises(DataError, match="single array"):
        load_dataset(npz_of(tmp_path / "array.npy"), IMAGE, "data.test")


def test_the_order_of_a_seed_parts_the_samples_and_never_changes(tmp_path: Path) -> None:
    """RandomState's permutation, which NumPy keeps as it is."""
    path = npz(tmp_path, x=np.arange(10, dtype=np.float32).reshape(10, 1), y=np.arange(10))
    inputs = {"data": TensorType((1, 1))}
    parts = [
        load_dataset(npz_of(path, y="y", shuffle=0, slice=part), inputs, "data.test") for part in ([0, 4], [4, None])
    ]
    assert [part.labels.tolist() for part in parts if part.labels is not None] == [[2, 8, 4, 9], [1, 6, 7, 3, 0, 5]]
    assert [gathered(part, 3)["data"][:, 0].tolist() for part in parts] == [[2, 8, 4, 9], [1, 6, 7, 3, 0, 5]]


def test_a_single_array_is_read_with_its_labels_and_preprocessed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", images(5))
    np.save(tmp_path / "y.npy", np.arange(5))
    options = {"npy": tmp_path / "x.npy", "layout": "NHWC->NCHW", "scale": 0.5, "slice": [2, None]}
    dataset = load_dataset(NpyDataset.model_validate({**options, "labels": tmp_path / "y.npy"}), IMAGE, "data.test")
    np.testing.assert_array_equal(gathered(dataset, 2)["data"], images(5)[2:].transpose(0, 3, 1, 2) / np.float32(2))
    assert dataset.labels is not None and dataset.labels.tolist() == [2, 3, 4]
    before = content_digest(NpyDataset.model_validate(options), "data.test")
    np.save(tmp_path / "x.npy", images(6))
    assert content_digest(NpyDataset.model_validate(options), "data.test") != before
    with pytest.raises(DataError, match="several arrays; they are read by the key npz"):
        load_dataset(NpyDataset(npy=npz(tmp_path, x=GOOD)), IMAGE, "data.test")
