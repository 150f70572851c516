"""Loaders in Python and folders of images: what they give, what they do wrong, what their content is."""

from __future__ import annotations

import builtins
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrt.datasets import content_digest, load_dataset
from mrt.errors import DataError
from mrt.symbol import TensorType
from tests.dataset_files import GOOD, GOOD_BATCHES, IMAGE, LOADER, TWO, folder_of, gathered, loader_of, npz, npz_of


@pytest.fixture
def loader(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("LABELS = [4, 5, 6]\n")
    (tmp_path / "load.py").write_text(LOADER)
    return tmp_path / "load.py"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of two images each, every image 8 x 10 of one colour."""
    image = pytest.importorskip("PIL.Image")
    for label, group in enumerate(("cat", "dog")):
        (tmp_path / "photos" / group).mkdir(parents=True)
        for number in range(2):
            colour = (100 * label, 10 * number, 7)
            image.new("RGB", (10, 8), colour).save(tmp_path / "photos" / group / f"{number}.png")
    return tmp_path / "photos"


def test_a_loader_gets_the_split_and_the_arguments(loader: Path) -> None:
    dataset = load_dataset(loader_of(loader, "good", args={"count": 3}, split="train"), IMAGE, "data.calibration")
    assert dataset.labels is not None and dataset.labels.tolist() == [4, 5, 6]
    np.testing.assert_array_equal(gathered(dataset, 2)["data"], np.full((3, 3, 4, 5), 5, np.float32))


def test_the_split_is_by_default_the_entrys_name(loader: Path) -> None:
    dataset = load_dataset(loader_of(loader, "good", args={"count": 1}), IMAGE, "data.calibration")
    assert gathered(dataset, 1)["data"].max() == len("calibration")


def test_a_loader_may_give_arrays_by_input_name(loader: Path) -> None:
    dataset = load_dataset(loader_of(loader, "named"), TWO, "data.test")
    assert dataset.labels is None
    assert gathered(dataset, 1)["right"].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("function", ["alone", "batches", "pairs", "mappings"])
def test_a_loader_may_give_an_array_or_batches_and_need_not_ask_for_the_split(loader: Path, function: str) -> None:
    """As PyTorch's loaders do, whose batches are lists of two, or mappings that hold more than the inputs."""
    dataset = load_dataset(loader_of(loader, function), IMAGE, "data.test")
    np.testing.assert_array_equal(gathered(dataset, 2)["data"], GOOD_BATCHES)
    assert (dataset.labels is None) == (function != "pairs")
    few = load_dataset(loader_of(loader, function, slice=[1, 3]), IMAGE, "data.test")
    np.testing.assert_array_equal(gathered(few, 9)["data"], GOOD_BATCHES[1:3])


def test_no_batch_is_drawn_behind_what_is_asked_for(loader: Path) -> None:
    endless = load_dataset(loader_of(loader, "endless", samples=5), IMAGE, "data.test")
    assert (endless.size, gathered(endless, 5)["data"].max()) == (5, 2)


@pytest.mark.parametrize(
    ("function", "args", "needed"),
    [
        ("raises", {}, "KeyError: 'no such split'"),
        ("good", {}, "TypeError: good.. missing 1 required positional argument: 'count'"),
        ("three", {}, r"gave a tuple; the tuple \(x, y\), an array"),
        ("differing", {}, "the batches differ"),
        ("ragged", {}, "no array"),
        ("named", {}, "the network has"),
        ("exits", {}, "x.npz"),
        ("stops", {}, "the loader raised SystemExit: 3"),
        ("tensors", {}, "no array: call detach first"),
        ("nothing", {}, "are object, float32 is needed"),
        ("absent", {}, "no function absent"),
        ("number", {}, "no function number"),
    ],
)
def test_what_a_loader_does_wrong_is_told(loader: Path, function: str, args: dict[str, Any], needed: str) -> None:
    with pytest.raises(DataError, match=needed):
        load_dataset(loader_of(loader, function, args=args), IMAGE, "data.test")


def test_a_loader_that_cannot_be_imported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.py does not exist"):
        load_dataset(loader_of(tmp_path / "none.py", "load"), IMAGE, "data.test")
    for content, reason in (("1 +", "SyntaxError"), ("import no_such_module", "ModuleNotFoundError")):
        (tmp_path / "bad.py").write_text(content)
        with pytest.raises(DataError, match=reason):
            load_dataset(loader_of(tmp_path / "bad.py", "load"), IMAGE, "data.test")


def test_images_take_their_label_from_their_folder(photos: Path) -> None:
    dataset = load_dataset(folder_of(photos, resize=4, crop=[4, 5]), IMAGE, "data.test")
    assert dataset.labels is not None and dataset.labels.tolist() == [0, 0, 1, 1]
    assert dataset.integers == {"data": "uint8"}
    assert load_dataset(folder_of(photos, scale=0.5), IMAGE, "data.test").integers == {}
    found = gathered(dataset, 3)["data"]
    colours = [(0, 0, 7), (0, 10, 7), (100, 0, 7), (100, 10, 7)]
    np.testing.assert_array_equal(found, np.broadcast_to(np.reshape(colours, (4, 3, 1, 1)), (4, 3, 4, 5)))


def test_the_crop_is_central(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 9, 3)).astype(np.uint8)
    image.fromarray(pixels).save(tmp_path / "one.png")
    dataset = load_dataset(folder_of(tmp_path, crop=[4, 5], scale=2, layout=None), {"x": TensorType((1, 4, 5, 3))}, "d")
    assert dataset.labels is None
    np.testing.assert_array_equal(gathered(dataset, 1)["x"][0], 2.0 * pixels[2:6, 2:7])


def test_a_labels_file_names_images_in_its_order(photos: Path) -> None:
    (photos / "labels.txt").write_text("dog/1.png 17\n\ncat/0.png, 3\n")
    config = folder_of(photos, labels=photos / "labels.txt", resize=[4, 5])
    dataset = load_dataset(config, IMAGE, "data.test")
    assert dataset.labels is not None and dataset.labels.tolist() == [17, 3]
    assert gathered(dataset, 2)["data"][:, 0, 0, 0].tolist() == [100, 0]


def test_grey_images_have_one_channel(photos: Path) -> None:
    dataset = load_dataset(folder_of(photos, mode="L", resize=[4, 5]), {"x": TensorType((1, 1, 4, 5))}, "data.test")
    assert gathered(dataset, 4)["x"].shape == (4, 1, 4, 5)


def test_unusable_folders_are_named(photos: Path, tmp_path: Path) -> None:
    def fails(match: str, folder: Path = photos, **options: Any) -> None:
        with pytest.raises(DataError, match=match):
            gathered(load_dataset(folder_of(folder, **options), IMAGE, "data.test"), 4)

    fails("is not a folder", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    fails("holds no samples", tmp_path / "empty")
    fails("smaller than the crop", crop=20)
    fails("see layout", resize=5)
    fails("5 samples are asked for, there are 4", samples=5)
    (tmp_path / "labels.txt").write_text("cat/0.png 1\ncat/1.png cat\n")
    fails("line 2 .* `file label` is needed", labels=tmp_path / "labels.txt")
    for label in ("9" * 5000, "9" * 20, "²"):
        (tmp_path / "labels.txt").write_text(f"cat/0.png {label}\n")
        fails("line 1 .* `file label` is needed", labels=tmp_path / "labels.txt")
    (tmp_path / "labels.txt").write_text("cat/9.png 1\n")
    fails("9.png is no readable image", labels=tmp_path / "labels.txt")
    (photos / "cat" / "1.png").write_bytes((photos / "cat" / "1.png").read_bytes()[:40])
    fails("1.png is no readable image", resize=[4, 5])
    (photos / "stray.png").write_bytes(b"")
    fails("beside its class folders")


def test_without_pillow_the_error_says_what_to_install(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_pillow(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "PIL":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(DataError, match="pip install pillow"):
        gathered(load_dataset(folder_of(photos), IMAGE, "data.test"), 1)


def test_content_is_that_of_the_file_wherever_it_lies(tmp_path: Path) -> None:
    path = npz(tmp_path, x=GOOD)
    before = content_digest(npz_of(path), "data.test")
    moved = shutil.copy(path, tmp_path / "moved.npz")
    assert content_digest(npz_of(moved), "data.calibration") == before
    assert content_digest(npz_of(npz(tmp_path, x=GOOD + 1)), "data.test") != before
    with pytest.raises(DataError, match=r"data\.test \(.*none\.npz\) does not exist"):
        content_digest(npz_of(tmp_path / "none.npz"), "data.test")


def test_content_of_a_folder_is_its_images_and_their_labels(photos: Path, tmp_path: Path) -> None:
    def digest(folder: Path = photos, samples: int | None = None, **options: Any) -> str:
        return content_digest(folder_of(folder, **options), "data.test", samples)

    whole, first, listed = digest(), digest(samples=3), {}
    assert digest(shutil.copytree(photos, tmp_path / "moved")) == whole
    assert digest(samples=9) == whole and digest(samples=2) != first == digest(samples=3)
    for label in (1, 2):
        (photos / "labels.txt").write_text(f"cat/0.png {label}\n")
        listed[label] = digest(labels=photos / "labels.txt")
    assert listed[1] != listed[2]
    (photos / "dog" / "1.png").write_bytes(b"changed")
    assert digest() != whole and digest(samples=3) == first  # the fourth image is not read
    with pytest.raises(DataError, match="is not a folder"):
        digest(tmp_path / "none")


def test_content_of_a_loader_is_its_file_and_those_that_it_names(loader: Path, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "part.bin").write_bytes(b"part")

    def digest(*files: str) -> str:
        return content_digest(loader_of(loader, "good", files=[tmp_path / name for name in files]), "data.test")

    alone, beside, below = digest(), digest("beside.py"), digest("beside.py", "below")
    (tmp_path / "below" / "part.bin").write_bytes(b"trap")
    assert digest("beside.py") == beside and digest("beside.py", "below") != below
    loader.write_text(LOADER + "# changed")
    assert digest() != alone
    with pytest.raises(DataError, match="none.bin"):
        digest("none.bin")


@pytest.mark.parametrize("shape", ["(10**12, 3, 4, 5)", "(10**25, 3, 4, 5)", "(-1, 3)", "'abc'"])
def test_an_array_that_claims_to_be_endless_is_named(tmp_path: Path, shape: str) -> None:
    size = shape if shape == "'abc'" else shape.replace("10**12", str(10**12)).replace("10**25", str(10**25))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {size}, }}\n".encode()
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(DataError, match=r"data\.npz.* is no readable \.npz file"):
        load_dataset(npz_of(tmp_path / "data.npz"), IMAGE, "data.test")


def test_pipes_are_not_opened(photos: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    os.mkfifo(photos / "cat" / "2.png")
    configs = [npz_of(pipe), folder_of(photos, labels=pipe), folder_of(photos), loader_of(pipe, "load")]
    for config in configs:
        with pytest.raises(DataError, match=r"pipe, socket or device|does not exist|different sizes"):
            gathered(load_dataset(config, IMAGE, "data.test"), 8)
        with pytest.raises(DataError, match="pipe, socket or device"):
            content_digest(config, "data.test")
