"""Samples in a folder of images, with the classes as folders or in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mrt.config import FolderDataset
from mrt.datasets.choice import chosen
from mrt.datasets.dataset import Dataset, checked_labels, reason, single_input
from mrt.datasets.preprocessing import keeps_values, preprocess
from mrt.errors import DataError
from mrt.messages import short
from mrt.paths import as_path
from mrt.symbol import Array, TensorType

_LABEL = re.compile("[0-9]{1,18}")
IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


def read_folder(config: FolderDataset, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    """The images in order; their files are opened as they are asked for."""
    name = f"{name} ({config.folder})"
    key = single_input(inputs, name)
    files, labels = images_of(config, name)

    def rows(start: int, stop: int) -> Mapping[str, Array]:
        images = [_read_image(path, config, name) for path in files[start:stop]]
        if len({image.shape for image in images}) > 1:
            raise DataError(f"{name}: the images have different sizes; set resize and crop")
        return {key: preprocess(np.stack(images), config, name)}

    checked = None if labels is None else checked_labels(labels, len(files), name)
    integers = {key: "uint8"} if keeps_values(config) and inputs[key].is_float else {}
    return Dataset(name, len(files), checked, inputs, rows, integers)


def images_of(config: FolderDataset, name: str) -> tuple[list[Path], Array | None]:
    """The files of the images that are asked for, in order, and their labels, one each; None where there are none."""
    if not config.folder.is_dir():
        raise DataError(f"{name} is not a folder")
    files, labels = _listed_images(config, name) if config.labels else _images_by_class(config.folder, name)
    places = np.arange(len(files))[chosen(config, len(files), name)]
    return [files[place] for place in places], None if labels is None else labels[places]


def _images_by_class(folder: Path, name: str) -> tuple[list[Path], Array | None]:
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not classes:
        return _images_in(folder), None
    found = [(path, index) for index, group in enumerate(classes) for path in _images_in(group)]
    if _images_in(folder):
        raise DataError(f"{name} holds images beside its class folders; move them, or give a labels file")
    return [path for path, _ in found], np.asarray([index for _, index in found], np.int64)


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)


def _listed_images(config: FolderDataset, name: str) -> tuple[list[Path], Array]:
    if config.labels:
        as_path(config.labels, f"{name}: labels", DataError, to_read=True)
    try:
        lines = config.labels.read_text(encoding="utf-8").splitlines() if config.labels else []
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: labels {config.labels} cannot be read: {reason(error)}") from None
    files, labels = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        file, _, label = line.strip().replace(",", " ").rpartition(" ")
        if not file.strip() or not _LABEL.fullmatch(label):
            raise DataError(f"{name}: line {number} of {config.labels} is {short(line)}; `file label` is needed")
        files.append(config.folder / file.strip())
        labels.append(int(label))
    return files, np.asarray(labels, np.int64)


def _read_image(path: Path, config: FolderDataset, name: str) -> Array:
    """uint8 [height, width, channels]."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"{name}: images are read by Pillow, which is not installed; pip install pillow") from None
    as_path(path, f"{name}: an image", DataError, to_read=True)
    try:
        with Image.open(path) as file:
            image = file.convert("L" if config.mode == "L" else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{name}: {path} is no readable image: {reason(error)}") from None
    height, width = _resized(image.height, image.width, config)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if config.crop is not None:
        high, wide = config.crop if len(config.crop) == 2 else config.crop * 2
        if high > height or wide > width:
            raise DataError(f"{name}: {path} is {height} x {width}, smaller than the crop {high} x {wide}; set resize")
        top, left = (height - high) // 2, (width - wide) // 2
        image = image.crop((left, top, left + wide, top + high))
    array = np.asarray(image, np.uint8)
    array = array.reshape(*array.shape[:2], -1)
    return array[:, :, ::-1] if config.mode == "BGR" else array


def _resized(height: int, width: int, config: FolderDataset) -> tuple[int, int]:
    """The height and the width as `resize` has them: both, or the shorter one, the other in proportion."""
    if config.resize is None:
        return height, width
    if len(config.resize) == 2:
        return config.resize[0], config.resize[1]
    factor = config.resize[0] / min(width, height)
    return max(round(height * factor), 1), max(round(width * factor), 1)
