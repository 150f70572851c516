"""One place of samples that `mrt quantize` is given: what it is, the keys of its section, whether it fits a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrt.config import DatasetConfig, FolderDataset, LoaderDataset, Preprocessing
from mrt.config.load import config_of
from mrt.config.source import Source
from mrt.datasets import Dataset, load_dataset
from mrt.datasets.folder import IMAGE_SUFFIXES, images_of
from mrt.datasets.loader import function_of, read_loader, takes_split
from mrt.datasets.npz import names_in
from mrt.datasets.preprocessing import keeps_values, preprocess
from mrt.errors import ConfigError, DataError
from mrt.messages import KeyPath
from mrt.quantization.plan.trained import stated_grid
from mrt.symbol import Graph, TensorType

KINDS = {"folder": "a folder of images", "npz": "an .npz file", "npy": "an .npy file", "loader": "a function"}
_PREPROCESSING = ("scale", "mean", "std", "layout")
_KEYS = {
    "folder": (*_PREPROCESSING, "mode", "resize", "crop", "labels"),
    "npz": (*_PREPROCESSING, "x", "y"),
    "npy": (*_PREPROCESSING, "labels"),
    "loader": (),
}
LABELS = ("y", "labels")
"""The keys that say where labels are."""
LOOKED_AT = 64
"""Samples whose integers are looked at."""


@dataclass(frozen=True, eq=False)
class DataSource:
    """Samples that fit a network. where: as it was given, for messages. keys: of its section, labels among them.
    size: how many samples there are. has_parts: whether it is a function that is asked for a split. has_more: whether
    there may be more samples than were looked at. remark: what its user may not know."""

    where: str
    kind: str
    keys: dict[str, Any]
    size: int
    has_parts: bool
    has_more: bool
    remark: str

    @property
    def unlabelled(self) -> dict[str, Any]:
        """The keys of samples whose labels nobody asks for; the lines of labels also say which images there are."""
        return {key: value for key, value in self.keys.items() if key not in LABELS or self.kind == "folder"}


def takes(kind: str, key: str) -> bool:
    """Whether an option is heeded by data of a kind."""
    return key in _KEYS[kind]


def kind_of(where: str, option: str) -> str:
    """The key of the section that names such data; ConfigError where it is none."""
    file, colon, function = where.rpartition(":")
    path = Path(where)
    if colon and file.endswith(".py") and function and not path.exists():
        return "loader"
    if not path.exists():
        raise ConfigError(f"{option} {where} does not exist; {_needed()}")
    if path.is_dir():
        return "folder"
    if path.suffix in (".npz", ".npy"):
        return path.suffix[1:]
    hint = f"; name its function: {where}:FUNCTION" if path.suffix == ".py" else ""
    raise ConfigError(f"{option} {where} is no data that is read{hint}; {_needed()}")


def _needed() -> str:
    return "a folder of images, an .npz or .npy file, or FILE.py:FUNCTION is needed"


def stated_forms(graph: Graph) -> dict[str, str]:
    """What the integers of inputs stand for, where the network says it, in words: how they are made of real values."""
    grids = {symbol: stated_grid(graph, symbol) for symbol in graph.inputs if symbol.type.is_integer}
    return {
        symbol.name: f"of real values x it takes round(x / {grid[0]:.9g}) {grid[1]:+}, as {symbol.dtype}"
        for symbol, grid in grids.items()
        if grid is not None
    }


def read_source(
    option: str,
    where: str,
    keys: Mapping[str, Any],
    inputs: Mapping[str, TensorType],
    most: int,
    forms: Mapping[str, str],
    wants_labels: bool = True,
) -> DataSource:
    """The samples of a place. keys: of the section, as texts. most: how many samples of batches are looked at. forms:
    see `stated_forms`. wants_labels: whether these samples may be scored."""
    kind = kind_of(where, option)
    if len(inputs) > 1 and kind in ("folder", "npy"):
        raise ConfigError(
            f"{option} {where} gives one input, the network has {', '.join(inputs)}: arrays by those names in an .npz "
            f"file are needed, or FILE.py:FUNCTION; a constant is set by --set model.values.NAME=VALUE"
        )
    section = {kind: where, **{key: _parsed(key, keys[key]) for key in _KEYS[kind] if key in keys}}
    remark = ""
    if kind == "npz":
        section["x"], unread = _arrays(where, option, keys, inputs)
        hint = "; --y names labels" if wants_labels and "y" not in keys else ""
        remark = f"{where}: not read: {', '.join(unread)}{hint}" if unread else ""
    config = _validated(section, option)
    if isinstance(config, FolderDataset) and not images_of(config, f"{option} {where}")[0]:
        raise ConfigError(f"{option} {where} holds no images ({', '.join(sorted(IMAGE_SUFFIXES))}); {_needed()}")
    has_parts = isinstance(config, LoaderDataset) and takes_split(function_of(config, option))
    with _saying(forms):
        dataset = _looked_at(config, inputs, option, most)
        _check_shapes(dataset, kind, keys, f"{option} {where}")
        _check_integers(dataset, config, f"{option} {where}")
    if kind != "loader":
        _check_units(dataset, "scale" in keys, f"{option} {where}")
    if isinstance(config, Preprocessing):
        _check_channels(dataset, config.model_copy(update={"layout": None}), f"{option} {where}")
    return DataSource(where, kind, section, dataset.size, has_parts, kind == "loader" and dataset.size >= most, remark)


def _validated(section: Mapping[str, Any], option: str) -> DatasetConfig:
    """The section as a configuration reads it; ConfigError naming the option of what is wrong."""
    places: dict[KeyPath, str] = {("data", "calibration", key): f"--{key}" for key in section}
    data = {"model": {"path": "."}, "data": {"calibration": section}}
    config = config_of(Source(data, {(): option, **places}), Path.cwd()).data.calibration
    if config is None:
        raise ConfigError(f"{option}: {_needed()}")
    return config


def _looked_at(config: DatasetConfig, inputs: Mapping[str, TensorType], option: str, most: int) -> Dataset:
    """The samples with none of the arithmetic of preprocessing done."""
    if isinstance(config, LoaderDataset):
        split = "test" if option == "--test" else "calibration"
        return read_loader(config.model_copy(update={"split": split}), inputs, option, most)
    return load_dataset(config.model_copy(update={"scale": 1.0, "mean": (0.0,), "std": (1.0,)}), inputs, option)


@contextmanager
def _saying(forms: Mapping[str, str]) -> Iterator[None]:
    """Adds to an error of an input of integers what the network says that these stand for."""
    try:
        yield
    except DataError as error:
        form = next((form for name, form in forms.items() if f"input {name}" in str(error)), None)
        if form is None:
            raise
        raise DataError(f"{error}; {form}") from None


def _check_integers(dataset: Dataset, config: DatasetConfig, where: str) -> None:
    """DataError where an input of integers is given others than it holds, or what preprocessing makes of them."""
    names = [name for name, type in dataset.inputs.items() if type.is_integer]
    if not names:
        return
    if isinstance(config, FolderDataset) and not keeps_values(config):
        raise DataError(
            f"{where}: input {names[0]} takes {dataset.inputs[names[0]].dtype}, the integers of images as they are; "
            f"leave out --scale, --mean and --std"
        )
    for _ in dataset.first(min(dataset.size, LOOKED_AT)).batches(LOOKED_AT):
        pass


def _check_units(dataset: Dataset, is_said: bool, where: str) -> None:
    """ConfigError where integers go to an input of real values, and nobody says what they stand for."""
    if is_said or not dataset.integers:
        return
    name, dtype = next(iter(dataset.integers.items()))
    usual = {"uint8": ", --scale 1/255 for 0 to 1, then --mean and --std where those are subtracted and divided by"}
    raise ConfigError(
        f"{where} holds integers ({dtype}) for input {name}, which takes real values: say what the network was trained "
        f"on: --scale 1 for the integers as they are{usual.get(dtype, ', --scale S for S times as much')}"
    )


def _check_shapes(dataset: Dataset, kind: str, keys: Mapping[str, Any], where: str) -> None:
    """ConfigError where samples have another shape than the network takes, with the options that mend it."""
    for name, array in dataset.rows(0, 1).items():
        found, needed = array.shape[1:], dataset.inputs[name].shape[1:]
        if found != needed:
            raise ConfigError(
                f"{where}: a sample for input {name} is {list(found)}, the network takes {list(needed)}"
                f"{_remedy(kind, found, needed, keys)}"
            )
    dataset.rows(0, min(dataset.size, 2))  # the images of a folder may differ


def _check_channels(dataset: Dataset, arithmetic: Preprocessing, where: str) -> None:
    """DataError where the arithmetic of preprocessing is for other channels than the samples have."""
    for name, array in dataset.rows(0, 1).items():
        if dataset.inputs[name].is_float:
            preprocess(array, arithmetic, where)


def _remedy(kind: str, found: tuple[int, ...], needed: tuple[int, ...], keys: Mapping[str, Any]) -> str:
    if kind == "loader" or len(found) != len(needed):
        return ""
    is_nhwc = kind == "folder" and len(needed) == 3 and needed[-1] in (1, 3) and needed[0] not in (1, 3)
    if is_nhwc and "layout" not in keys:
        return "; --layout none leaves channels last"
    for layout, moved in (("NHWC->NCHW", (found[-1:] + found[:-1])), ("NCHW->NHWC", (found[1:] + found[:1]))):
        if len(found) == 3 and moved == needed:
            return f"; --layout '{layout}' moves the channels"
    if kind != "folder":
        return ""
    channels, (height, width) = (needed[-1], needed[:-1]) if is_nhwc else (needed[0], needed[1:])
    has_channels = (found[-1] if is_nhwc else found[0]) == channels
    if not has_channels:
        return "; --mode L makes images grey" if channels == 1 else "; images have 3 channels, or 1 by --mode L"
    return f"; --resize {height},{width} makes images so, --resize N --crop {height},{width} keeps their proportions"


def _arrays(
    where: str, option: str, keys: Mapping[str, Any], inputs: Mapping[str, TensorType]
) -> tuple[str | dict[str, str], list[str]]:
    """The key `x` of an .npz file, and the arrays that nothing names."""
    names = names_in(Path(where), f"{option} ({where})")
    labels = [keys["y"]] if "y" in keys else []
    x: dict[str, str] = dict(_named(text, inputs) for text in keys.get("x", ()))
    if not x and set(inputs) <= set(names):
        x = {name: name for name in inputs}
    elif not x and len(inputs) == 1:
        others = [name for name in names if name not in labels]
        alone = "x" if "x" in others else others[0] if len(others) == 1 else None
        x = {} if alone is None else dict.fromkeys(inputs, alone)
    if set(x) != set(inputs):
        missing = ", ".join(name for name in inputs if name not in x) or f"no others than {', '.join(inputs)}"
        raise ConfigError(
            f"{option} {where} holds {', '.join(names) or 'no arrays'}; the network has the inputs "
            f"{', '.join(inputs)}: name an array for {missing} by --x {'ARRAY' if len(inputs) == 1 else 'INPUT=ARRAY'}"
        )
    unread = [name for name in names if name not in (*x.values(), *labels)]
    return (next(iter(x.values())) if len(inputs) == 1 else x), unread


def _named(text: str, inputs: Mapping[str, TensorType]) -> tuple[str, str]:
    name, equals, array = text.rpartition("=")
    if not equals and len(inputs) > 1:
        raise ConfigError(f"--x {text}: the network has the inputs {', '.join(inputs)}; INPUT=ARRAY is needed")
    return (name if equals else next(iter(inputs))), array


def _parsed(key: str, text: Any) -> Any:
    """What an option says, as YAML would have it."""
    if key == "layout":
        return None if text == "none" else text
    if key == "scale":
        return _number(text, key)
    if key in ("mean", "std"):
        return [_number(part, key) for part in text.split(",")]
    if key in ("resize", "crop"):
        return [int(part) if part.strip().isdecimal() and len(part) < 9 else part for part in text.split(",")]
    return text


def _number(text: str, key: str) -> float:
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        several = " numbers with commas between them, or a" if key != "scale" else " a"
        raise ConfigError(f"--{key} {text}:{several} number such as 0.5 or 1/255 is needed") from None
