"""The sections and keys of a configuration, typed, with what each may hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    SerializationInfo,
    Tag,
    ValidationInfo,
)

from mrt.calibration import CalibrationConfig
from mrt.compilation import TargetConfig, TuneConfig, keys_of
from mrt.device_address import Address
from mrt.errors import ConfigError
from mrt.execution.options import ClusterConfig
from mrt.options import Options
from mrt.preparation import PreparationConfig
from mrt.quantization.options import QuantizationConfig
from mrt.symbol.rebatch import MOST_SAMPLES


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not a truth value")
    return value


def _numbers(value: Any) -> Any:
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, (list, tuple)):
            left.extend(item)
        elif not isinstance(item, (bool, int, float)):
            raise ValueError("a number, a truth value, or lists of them are needed")
    return value


def _as_sequence(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


def _from_config_folder(path: Path, info: ValidationInfo) -> Path:
    try:
        written = str(path.expanduser())
        os.fsencode(written)
    except (RuntimeError, UnicodeEncodeError) as error:
        raise ValueError(f"the path of a file or folder is needed ({error})") from None
    if "\0" in written:
        raise ValueError("the path of a file or folder is needed, without NUL")
    return Path(os.path.abspath((info.context or {}).get("folder", Path()) / written))


def _to_config_folder(path: Path, info: SerializationInfo) -> str:
    """As a file in the folder of the context names the path: from there, where both lie in the working directory."""
    folder, here = (info.context or {}).get("folder"), Path.cwd()
    if folder is None or not (path.is_relative_to(here) and Path(folder).is_relative_to(here)):
        return str(path)
    return os.path.relpath(path, folder)


def _loader_to_config_folder(value: str, info: SerializationInfo) -> str:
    file, _, function = value.rpartition(":")
    return f"{_to_config_folder(Path(file), info)}:{function}"


def _loader(value: str, info: ValidationInfo) -> str:
    file, colon, function = value.rpartition(":")
    if not colon or not file or not function.isidentifier():
        raise ValueError('"file.py:function" is needed')
    return f"{_from_config_folder(Path(file), info)}:{function}"


def _layout(value: str) -> str:
    source, arrow, target = (part.strip() for part in value.partition("->"))
    if not arrow or sorted(source) != sorted(target) or len(set(source)) != len(source) or source[:1] != target[:1]:
        raise ValueError('two orders of the same axes, batch first, are needed, such as "NHWC->NCHW"')
    return f"{source}->{target}"


def _device(value: str) -> str:
    try:
        Address.of(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return value


def _slice(value: tuple[int, int | None]) -> tuple[int, int | None]:
    start, stop = value
    if start < 0 or (stop is not None and stop <= start):
        raise ValueError("[start, stop] with 0 <= start < stop is needed; stop may be null")
    return value


def _not_zero(value: tuple[float, ...]) -> tuple[float, ...]:
    if any(np.float32(deviation) == 0 for deviation in value):
        raise ValueError("a standard deviation must not be 0, in float32")
    return value


ConfigPath = Annotated[
    Path,
    AfterValidator(_from_config_folder),
    PlainSerializer(_to_config_folder, return_type=str, when_used="json"),
]
Loader = Annotated[
    str,
    AfterValidator(_loader),
    PlainSerializer(_loader_to_config_folder, return_type=str, when_used="json"),
]
Number = Annotated[float, BeforeValidator(_not_bool), Field(allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, lt=2**31)]
Channels = Annotated[tuple[Number, ...], BeforeValidator(_as_sequence)]
Pixels = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, le=2**14)]
Size = Annotated[tuple[Pixels, ...], BeforeValidator(_as_sequence), Field(min_length=1, max_length=2)]


class ModelSection(Options):
    """`model`: the float network. path: the model's file, or "file.py:function" that gives it. shapes: of inputs by
    name, where the file leaves sizes open. values: numbers, or lists of them, by the names of inputs that are
    constants. states: by the names of inputs the outputs that they hold in the next call. initial: what states hold in
    the first, as values; zeros by default. batch_axes: by the names of inputs and outputs whose batch is not axis 0;
    null for one without a batch. random_params: whether parameters that a Relay text lacks are drawn, for trying."""

    path: ConfigPath
    shapes: Mapping[str, Annotated[tuple[Count, ...], Field(min_length=1)]] = {}
    values: Mapping[str, Annotated[Any, AfterValidator(_numbers)]] = {}
    states: Mapping[str, str] = {}
    initial: Mapping[str, Annotated[Any, AfterValidator(_numbers)]] = {}
    batch_axes: Mapping[str, Annotated[int, BeforeValidator(_not_bool), Field(ge=-32, lt=32)] | None] = {}
    random_params: bool = False


class Preprocessing(Options):
    """What is done to the arrays of a dataset, in this order; the result is float32.

    layout: axes are transposed, "NHWC->NCHW". Then x * scale, then - mean, then / std; mean and std are one number or
    one for each channel, axis 1 after the transposition. The same is done to every input: networks whose inputs
    differ in this take a `loader`.
    """

    layout: Annotated[str, AfterValidator(_layout)] | None = None
    scale: Number = 1.0
    mean: Channels = (0.0,)
    std: Annotated[Channels, AfterValidator(_not_zero)] = (1.0,)


class Choice(Options):
    """Which samples of a source are taken, and in which order.

    shuffle: the seed of the order in which they are taken, null for that of the source. slice: [start, stop] in that
    order, stop null for the end. samples: how many of these.
    """

    shuffle: Annotated[int, BeforeValidator(_not_bool), Field(ge=0, lt=2**32)] | None = None
    slice: Annotated[tuple[int, int | None], AfterValidator(_slice)] = (0, None)
    samples: Count | None = None


class NpzDataset(Preprocessing, Choice):
    """Arrays of an `.npz` file, axis 0 the samples.

    x: the name of the input's array, or a mapping of input names to array names. y: the name of the labels' array,
    integers of shape [samples]; null where there are none.
    """

    npz: ConfigPath
    x: str | Mapping[str, str] = "x"
    y: str | None = None


class NpyDataset(Preprocessing, Choice):
    """The array of an `.npy` file for a network of one input, axis 0 the samples.

    labels: an `.npy` file of integers of shape [samples]; null where there are none.
    """

    npy: ConfigPath
    labels: ConfigPath | None = None


class FolderDataset(Preprocessing, Choice):
    """A folder of images; Pillow is needed to read them.

    Without `labels` the images lie in one folder a class, and a class's label is its folder's position by name;
    images that lie in the folder itself have no label. labels: a text file whose lines are `file label`. mode: RGB,
    BGR (as OpenCV reads images) or L (grey). resize: the shorter side, or [height, width]; crop: the central square, or
    [height, width]. Images are NHWC, 0 to 255, before the preprocessing, whose default layout is "NHWC->NCHW".
    """

    folder: ConfigPath
    labels: ConfigPath | None = None
    mode: Literal["RGB", "BGR", "L"] = "RGB"
    resize: Size | None = None
    crop: Size | None = None
    layout: Annotated[str, AfterValidator(_layout)] | None = "NHWC->NCHW"


class LoaderDataset(Choice):
    """What a function of a Python file gives.

    It is called as `function(split=..., **args)`, without `split` where it takes none, and gives (x, y), x alone, or
    batches of such, as a PyTorch DataLoader does; x is an array or arrays by input name, y labels or None.

    loader: "file.py:function". split: what is passed on, by default the name of the entry, calibration or test.
    files: files and folders that the function reads, so that a change of them is noticed.
    """

    loader: Loader
    args: Mapping[str, Any] = Field(default_factory=dict)
    files: Annotated[tuple[ConfigPath, ...], BeforeValidator(_as_sequence)] = ()
    split: str | None = None


_KINDS = ("npz", "npy", "folder", "loader")


def _kind(value: Any) -> str | None:
    keys = value if isinstance(value, Mapping) else getattr(type(value), "model_fields", ())
    found = [kind for kind in _KINDS if kind in keys]
    return f"<{found[0]}>" if len(found) == 1 else None


DatasetConfig = Annotated[
    Annotated[NpzDataset, Tag("<npz>")]
    | Annotated[NpyDataset, Tag("<npy>")]
    | Annotated[FolderDataset, Tag("<folder>")]
    | Annotated[LoaderDataset, Tag("<loader>")],
    Discriminator(
        _kind,
        custom_error_type="dataset_kind",
        custom_error_message="a mapping with exactly one of the keys npz, npy, folder and loader is needed",
    ),
]


class DataSection(Options):
    """`data`: the samples that calibrate, those that are scored, and those that `mrt tune` judges by: without
    `validation`, the ones of `calibration` that do not calibrate."""

    calibration: DatasetConfig | None = None
    validation: DatasetConfig | None = None
    test: DatasetConfig | None = None


class CompileSection(Options):
    """`compile`: the CPU that code is made for, the samples run at once, whether tilings are measured, and whether
    what was compiled before is taken from the user's cache."""

    target: Annotated[TargetConfig, BeforeValidator(keys_of)] = TargetConfig()
    batch: Annotated[Count, Field(le=MOST_SAMPLES)] = 1
    tune: TuneConfig | None = None
    cache: bool = True


class EvaluateSection(Options):
    """`evaluate`: how many samples are scored (null: all), the batch of the float runs, and the samples on which the
    compiled integers are compared with `graph.evaluate` bit for bit. stream_length: after how many samples the states
    of a network that has some are what they are at first; None for never."""

    samples: Count | None = None
    batch_size: Count = 16
    check: Annotated[int, BeforeValidator(_not_bool), Field(ge=0)] = 16
    stream_length: Count | None = None


class ReportSection(Options):
    """`report`: what is measured at the end of a run. samples: with which layers are looked at, at most."""

    samples: Count = 64


def _as_report(value: Any) -> Any:
    return {} if value is True or value is None else value


def _as_cluster(value: Any) -> Any:
    """A number of processes, or the address of a scheduler, as the section."""
    if isinstance(value, int) or (isinstance(value, str) and value.isascii() and value.isdecimal()):
        return {"processes": value if isinstance(value, bool) else int(value)}
    return {"address": value} if isinstance(value, str) else value


class RunConfig(Options):
    """All sections of a configuration file. device: where compiled code is tuned and run, rpc://host:port/key; this
    machine by default."""

    model: ModelSection
    data: DataSection = DataSection()
    prepare: PreparationConfig = PreparationConfig()
    calibrate: CalibrationConfig = CalibrationConfig()
    quantize: QuantizationConfig = QuantizationConfig()
    compile: CompileSection = CompileSection()
    evaluate: EvaluateSection = EvaluateSection()
    report: Annotated[ReportSection | Literal[False], BeforeValidator(_as_report)] = ReportSection()
    cluster: Annotated[ClusterConfig | None, BeforeValidator(_as_cluster)] = None
    device: Annotated[str, AfterValidator(_device)] | None = None
    output: ConfigPath | None = None
