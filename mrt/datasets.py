"""Datasets: samples of an npz file, a folder of images or a user's loader, as batches that fit a network's inputs."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mrt.config import FolderDataset, LoaderDataset, NpzDataset, Preprocessing
from mrt.errors import DataError
from mrt.symbol import Array, TensorType
from mrt.symbol.files import sha256_of

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
Rows = Callable[[int, int], Mapping[str, Array]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples for a network, read batch by batch.

    name: the key of the configuration, for messages. size: the number of samples. labels: int64 [size], or None.
    inputs: the type of each input of the network; axis 0 is the batch, whatever its length there.
    rows: the arrays by input name of the samples [start, stop).
    """

    name: str
    size: int
    labels: Array | None
    inputs: Mapping[str, TensorType]
    rows: Rows

    def first(self, count: int | None) -> Dataset:
        """The first `count` samples (None: all); DataError if there are fewer."""
        if count is None:
            return self
        if count > self.size:
            raise DataError(f"{self.name}: {count} samples are asked for, there are {self.size}")
        return replace(self, size=count, labels=None if self.labels is None else self.labels[:count])

    def batches(self, batch_size: int) -> Iterator[dict[str, Array]]:
        """Arrays by input name, in the inputs' dtypes; the last batch may be shorter.

        Raises DataError where values are NaN, infinite or not what the input's dtype holds.
        """
        for start in range(0, self.size, batch_size):
            arrays = self.rows(start, min(start + batch_size, self.size))
            yield {name: self._checked(name, type, arrays[name], start) for name, type in self.inputs.items()}

    def _checked(self, name: str, type: TensorType, array: Array, start: int) -> Array:
        if array.shape[1:] != type.shape[1:]:
            raise DataError(
                f"{self.name}: samples for input {name} have shape {list(array.shape[1:])}, "
                f"the network needs {list(type.shape[1:])}; see layout"
            )
        if type.is_float:
            with np.errstate(over="ignore"):
                value = array.astype(type.dtype, copy=False)
            finite = np.isfinite(value).reshape(len(value), -1).all(axis=1)
            if not finite.all():
                sample = start + int(np.argmin(finite))
                raise DataError(f"{self.name}: sample {sample} holds NaN or infinity in input {name}; clean the data")
            return value
        limits = np.iinfo(type.dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise DataError(
                f"{self.name}: input {name} is {type.dtype}, the data go from {array.min()} to {array.max()}"
            )
        return array.astype(type.dtype, copy=False)


def load_dataset(
    config: NpzDataset | FolderDataset | LoaderDataset, inputs: Mapping[str, TensorType], name: str
) -> Dataset:
    """The dataset that a configuration describes, for a network with these inputs.

    name: the key of the configuration, such as data.test; its last part is the split that a loader is asked for.
    Raises DataError saying what is missing or does not fit.
    """
    if isinstance(config, NpzDataset):
        dataset = _from_npz(config, inputs, name)
    elif isinstance(config, FolderDataset):
        dataset = _from_folder(config, inputs, name)
    else:
        dataset = _from_loader(config, inputs, name)
    if dataset.size == 0:
        raise DataError(f"{dataset.name} holds no samples")
    return dataset.first(config.samples)


def content_digest(config: NpzDataset | FolderDataset | LoaderDataset, name: str, samples: int | None = None) -> str:
    """SHA-256 of the content of the files that the dataset is read from, which does not depend on where they lie.

    Of an npz dataset that is its file; of a folder the images of at most the first `samples` samples, in order, and
    their labels; of a loader its Python file and the `files` that it is said to read. Raises DataError naming what
    cannot be read.
    """
    labels: list[int] | None = None
    if isinstance(config, NpzDataset):
        files = [config.npz]
    elif isinstance(config, FolderDataset):
        images, classes = _images(config, f"{name} ({config.folder})")
        count = min(n for n in (samples, config.samples, len(images)) if n is not None)
        files, labels = images[:count], None if classes is None else classes[:count].tolist()
    else:
        files = [Path(config.loader.rpartition(":")[0]), *_files_in(config.files)]
    try:
        facts = [(path.stat().st_size, sha256_of(path)) for path in files]
    except FileNotFoundError as error:
        raise DataError(f"{name} ({error.filename}) does not exist") from None
    except OSError as error:
        raise DataError(f"{name}: {error.filename} cannot be read: {error.strerror or error}") from None
    return hashlib.sha256(json.dumps([facts, labels]).encode()).hexdigest()


def _files_in(paths: Sequence[Path]) -> list[Path]:
    """Files as they are, and all files below folders in the order of their names."""
    return [
        file
        for path in paths
        for file in (sorted(below for below in path.rglob("*") if below.is_file()) if path.is_dir() else [path])
    ]


def preprocess(x: Array, config: Preprocessing, name: str) -> Array:
    """((x in `layout`) * scale - mean) / std in float32; DataError where the layout or the channels do not fit."""
    if config.layout is not None:
        source, _, target = config.layout.partition("->")
        if x.ndim != len(source):
            raise DataError(
                f"{name}: the layout {config.layout} needs {len(source)} axes, the array has {list(x.shape)}"
            )
        x = x.transpose([source.index(axis) for axis in target])
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found, and named, when it is read
        value: Array = np.ascontiguousarray(x, np.float32)
        if config.scale != 1:
            value = value * np.float32(config.scale)
        if any(config.mean):
            value = value - _by_channel(config.mean, value, f"{name}: mean")
        if any(v != 1 for v in config.std):
            value = value / _by_channel(config.std, value, f"{name}: std")
    return value


def _by_channel(values: Sequence[float], x: Array, what: str) -> Array:
    array = np.asarray(values, np.float32)
    if array.size == 1:
        return array.reshape(())
    if x.ndim < 2 or x.shape[1] != array.size:
        raise DataError(f"{what} has {array.size} values, axis 1 of the samples {list(x.shape)} has another length")
    return array.reshape(1, -1, *(1,) * (x.ndim - 2))


def _from_npz(config: NpzDataset, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    name = f"{name} ({config.npz})"
    sources = config.x if isinstance(config.x, Mapping) else dict.fromkeys(_single(inputs, name), config.x)
    with _opened(config.npz, name) as members:
        x = {key: _member(members, array, name) for key, array in sources.items()}
        y = None if config.y is None else _member(members, config.y, name)
    start, stop = config.slice
    shortest = min(len(array) for array in x.values())
    if max(start + 1, stop or 0) > shortest:
        raise DataError(f"{name}: the slice [{start}, {stop}] is asked for, there are {shortest} samples")
    x, y = {key: array[start:stop] for key, array in x.items()}, None if y is None else y[start:stop]
    raw = _of_arrays(x, y, inputs, name)

    def rows(first: int, last: int) -> Mapping[str, Array]:
        return {
            key: preprocess(array, config, name) if inputs[key].is_float else array
            for key, array in raw.rows(first, last).items()
        }

    return replace(raw, rows=rows)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[Mapping[str, Any]]:
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise DataError(f"{name} holds a single array; an .npz file is needed")
        with file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{name} does not exist") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name} is no readable .npz file, or is truncated: {_reason(error)}") from None


def _member(file: Mapping[str, Any], key: str, name: str) -> Array:
    if key not in file:
        close = difflib.get_close_matches(key, list(file), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise DataError(f"{name} has no array {key!r}, it has {sorted(file)}{hint}")
    array = np.asarray(file[key])
    if array.ndim == 0:
        raise DataError(f"{name}: the array {key!r} is a single number; axis 0 must be the samples")
    return array


def _from_loader(config: LoaderDataset, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    split = config.split or name.rpartition(".")[2]
    path, _, function = config.loader.rpartition(":")
    name = f"{name} ({config.loader})"
    with _importable(Path(path).parent):
        call = getattr(_imported(Path(path), name), function, None)
        if not callable(call):
            raise DataError(f"{name}: the file has no function {function}")
        try:
            result = call(split=split, **config.args)
        except Exception as error:
            raise DataError(f"{name}: the loader raised {_reason(error)}") from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise DataError(f"{name}: the loader gave a {type(result).__name__}; the tuple (x, y) is needed")
    x, y = result
    arrays = x if isinstance(x, Mapping) else dict.fromkeys(_single(inputs, name), x)
    try:
        return _of_arrays(
            {key: np.asarray(value) for key, value in arrays.items()},
            None if y is None else np.asarray(y),
            inputs,
            name,
        )
    except ValueError as error:
        raise DataError(f"{name}: x or y is no array: {_reason(error)}") from None


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Lets a loader import the modules beside it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _imported(path: Path, name: str) -> Any:
    if not path.is_file():
        raise DataError(f"{name}: {path} does not exist")
    alias = f"mrt_loader_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(alias, path)
    if spec is None or spec.loader is None:
        raise DataError(f"{name}: {path} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[alias]
        raise DataError(f"{name}: importing the file raised {_reason(error)}") from error
    return module


def _of_arrays(x: Mapping[str, Array], y: Array | None, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    if set(x) != set(inputs):
        raise DataError(f"{name} gives the inputs {sorted(x)}, the network has {sorted(inputs)}")
    for key, array in x.items():
        kinds = "fiub" if inputs[key].is_float else "iu"
        if array.dtype.kind not in kinds:
            raise DataError(f"{name}: the samples for input {key} are {array.dtype}, {inputs[key].dtype} is needed")
        if array.ndim != inputs[key].rank:
            needed = ", ".join(["samples", *map(str, inputs[key].shape[1:])])
            raise DataError(
                f"{name}: the array for input {key} has the shape {list(array.shape)}, of rank {array.ndim}; "
                f"rank {inputs[key].rank} is needed: [{needed}]"
            )
    sizes = {key: len(array) for key, array in x.items()}
    size = next(iter(sizes.values()))
    if any(other != size for other in sizes.values()):
        raise DataError(f"{name}: the inputs have different numbers of samples: {sizes}")
    labels = None if y is None else _labels(y, size, name)
    return Dataset(name, size, labels, inputs, lambda start, stop: {key: x[key][start:stop] for key in x})


def _labels(y: Array, size: int, name: str) -> Array:
    if y.dtype.kind not in "iu" or y.shape != (size,):
        raise DataError(f"{name}: labels are {y.dtype}{list(y.shape)}; integers of shape [{size}] are needed")
    if size and y.min() < 0:
        raise DataError(f"{name}: label {y.min()} of sample {int(y.argmin())} is negative")
    return y.astype(np.int64)


def _single(inputs: Mapping[str, TensorType], name: str) -> list[str]:
    if len(inputs) != 1:
        raise DataError(f"{name} gives one array, the network has the inputs {list(inputs)}; give arrays by input name")
    return list(inputs)


def _from_folder(config: FolderDataset, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    name = f"{name} ({config.folder})"
    key = _single(inputs, name)[0]
    files, labels = _images(config, name)

    def rows(start: int, stop: int) -> Mapping[str, Array]:
        images = [_read_image(path, config, name) for path in files[start:stop]]
        if len({image.shape for image in images}) > 1:
            raise DataError(f"{name}: the images have different sizes; set resize and crop")
        return {key: preprocess(np.stack(images), config, name)}

    return Dataset(name, len(files), None if labels is None else _labels(labels, len(files), name), inputs, rows)


def _images(config: FolderDataset, name: str) -> tuple[list[Path], Array | None]:
    """The images' files in order, and their labels, one each; None where there are none."""
    if not config.folder.is_dir():
        raise DataError(f"{name} is not a folder")
    return _listed_images(config, name) if config.labels else _images_by_class(config.folder, name)


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
    try:
        lines = config.labels.read_text(encoding="utf-8").splitlines() if config.labels else []
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: labels {config.labels} cannot be read: {_reason(error)}") from None
    files, labels = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        file, _, label = line.strip().replace(",", " ").rpartition(" ")
        if not file.strip() or not label.isdigit():
            raise DataError(f"{name}: line {number} of {config.labels} is {line!r}; `file label` is needed")
        files.append(config.folder / file.strip())
        labels.append(int(label))
    return files, np.asarray(labels, np.int64)


def _read_image(path: Path, config: FolderDataset, name: str) -> Array:
    """uint8 [height, width, channels]."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"{name}: images are read by Pillow, which is not installed; pip install pillow") from None
    try:
        with Image.open(path) as file:
            image = file.convert(config.mode)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{name}: {path} is no readable image: {_reason(error)}") from None
    width, height = image.size
    if config.resize is not None:
        if len(config.resize) == 2:
            height, width = config.resize
        else:
            factor = config.resize[0] / min(width, height)
            width, height = max(round(width * factor), 1), max(round(height * factor), 1)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if config.crop is not None:
        high, wide = config.crop if len(config.crop) == 2 else config.crop * 2
        if high > height or wide > width:
            raise DataError(f"{name}: {path} is {height} x {width}, smaller than the crop {high} x {wide}; set resize")
        top, left = (height - high) // 2, (width - wide) // 2
        image = image.crop((left, top, left + wide, top + high))
    array = np.asarray(image, np.uint8)
    return array.reshape(*array.shape[:2], -1)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
