"""The configuration of a run: a YAML file, typed and validated, every error with its key, line and nearest right key.

Strings may hold `${NAME}`, which is replaced by the environment variable NAME (`$${NAME}` stays `${NAME}`).
Relative paths, the key `output` among them, are relative to the folder of the configuration file.
"""

from __future__ import annotations

import difflib
import os
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import ErrorDetails

from mrt.calibration import CalibrationConfig
from mrt.compilation import TargetConfig, TuneConfig, keys_of
from mrt.errors import ConfigError
from mrt.preparation import PreparationConfig
from mrt.quantization.options import QuantizationConfig

KeyPath = tuple["str | int", ...]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not a truth value")
    return value


def _as_sequence(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


def _from_config_folder(path: Path, info: ValidationInfo) -> Path:
    return Path(os.path.abspath((info.context or {}).get("folder", Path()) / path.expanduser()))


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


def _slice(value: tuple[int, int | None]) -> tuple[int, int | None]:
    start, stop = value
    if start < 0 or (stop is not None and stop <= start):
        raise ValueError("[start, stop] with 0 <= start < stop is needed; stop may be null")
    return value


def _not_zero(value: tuple[float, ...]) -> tuple[float, ...]:
    if 0 in value:
        raise ValueError("a standard deviation must not be 0")
    return value


ConfigPath = Annotated[Path, AfterValidator(_from_config_folder)]
Count = Annotated[int, BeforeValidator(_not_bool), Field(ge=1)]
Channels = Annotated[tuple[Annotated[float, BeforeValidator(_not_bool)], ...], BeforeValidator(_as_sequence)]
Size = Annotated[tuple[Count, ...], BeforeValidator(_as_sequence), Field(min_length=1, max_length=2)]


class ModelSection(_Section):
    """`model`: the float network. path: the model's file. shapes: of inputs by name, where the file lacks them."""

    path: ConfigPath
    shapes: Mapping[str, Annotated[tuple[Count, ...], Field(min_length=1)]] = {}


class Preprocessing(_Section):
    """What is done to the arrays of a dataset, in this order; the result is float32.

    layout: axes are transposed, "NHWC->NCHW". Then x * scale, then - mean, then / std; mean and std are one number or
    one for each channel, axis 1 after the transposition. The same is done to every input: networks whose inputs
    differ in this take a `loader`.
    """

    layout: Annotated[str, AfterValidator(_layout)] | None = None
    scale: Annotated[float, BeforeValidator(_not_bool)] = 1.0
    mean: Channels = (0.0,)
    std: Annotated[Channels, AfterValidator(_not_zero)] = (1.0,)


class NpzDataset(Preprocessing):
    """Arrays of an `.npz` file, axis 0 the samples.

    x: the name of the input's array, or a mapping of input names to array names. y: the name of the labels' array,
    integers of shape [samples]; null where there are none. slice: [start, stop] of the samples, stop null for the end.
    samples: how many to take.
    """

    npz: ConfigPath
    x: str | Mapping[str, str] = "x"
    y: str | None = None
    slice: Annotated[tuple[int, int | None], AfterValidator(_slice)] = (0, None)
    samples: Count | None = None


class FolderDataset(Preprocessing):
    """A folder of images; Pillow is needed to read them.

    Without `labels` the images lie in one folder a class, and a class's label is its folder's position by name;
    images that lie in the folder itself have no label. labels: a text file whose lines are `file label`. mode: RGB or L
    (grey). resize: the shorter side, or [height, width]; crop: the central square, or [height, width]. Images are NHWC,
    0 to 255, before the preprocessing, whose default layout is "NHWC->NCHW".
    """

    folder: ConfigPath
    labels: ConfigPath | None = None
    mode: Literal["RGB", "L"] = "RGB"
    resize: Size | None = None
    crop: Size | None = None
    layout: Annotated[str, AfterValidator(_layout)] | None = "NHWC->NCHW"
    samples: Count | None = None


class LoaderDataset(_Section):
    """`function(split=..., **args) -> (x, y)` of a Python file; x an array or arrays by input name, y labels or None.

    loader: "file.py:function". split: what is passed on, by default the name of the entry, calibration or test.
    files: files and folders that the function reads, so that a change of them is noticed.
    """

    loader: Annotated[str, AfterValidator(_loader)]
    args: Mapping[str, Any] = Field(default_factory=dict)
    files: Annotated[tuple[ConfigPath, ...], BeforeValidator(_as_sequence)] = ()
    split: str | None = None
    samples: Count | None = None


_KINDS = ("npz", "folder", "loader")


def _kind(value: Any) -> str | None:
    found = [kind for kind in _KINDS if isinstance(value, Mapping) and kind in value]
    return f"<{found[0]}>" if len(found) == 1 else None


DatasetConfig = Annotated[
    Annotated[NpzDataset, Tag("<npz>")]
    | Annotated[FolderDataset, Tag("<folder>")]
    | Annotated[LoaderDataset, Tag("<loader>")],
    Discriminator(
        _kind,
        custom_error_type="dataset_kind",
        custom_error_message="a mapping with exactly one of the keys npz, folder and loader is needed",
    ),
]


class DataSection(_Section):
    """`data`: the samples that calibrate, and those that are scored."""

    calibration: DatasetConfig | None = None
    test: DatasetConfig | None = None


class CompileSection(_Section):
    """`compile`: the CPU that code is made for, the samples run at once, and whether tilings are measured."""

    target: Annotated[TargetConfig, BeforeValidator(keys_of)] = TargetConfig()
    batch: Count = 1
    tune: TuneConfig | None = None


class EvaluateSection(_Section):
    """`evaluate`: how many samples are scored (null: all), the batch of the float runs, and the samples on which the
    compiled integers are compared with `graph.evaluate` bit for bit."""

    samples: Count | None = None
    batch_size: Count = 16
    check: Annotated[int, BeforeValidator(_not_bool), Field(ge=0)] = 16


class RunConfig(_Section):
    """All sections of a configuration file."""

    model: ModelSection
    data: DataSection = DataSection()
    prepare: PreparationConfig = PreparationConfig()
    calibrate: CalibrationConfig = CalibrationConfig()
    quantize: QuantizationConfig = QuantizationConfig()
    compile: CompileSection = CompileSection()
    evaluate: EvaluateSection = EvaluateSection()
    output: ConfigPath | None = None


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration in a YAML file, changed by `overrides` of the form "section.key=value" (the value is YAML).

    Raises ConfigError naming every wrong key with its line, what was found, and the nearest right key.
    """
    file = Path(path)
    source = _read(file)
    for override in overrides:
        source = source.overridden(override)
    data = source.expanded()
    try:
        return RunConfig.model_validate(data, context={"folder": file.resolve().parent})
    except ValidationError as error:
        raise ConfigError("; ".join(_messages(error, source, data))) from None


@dataclass(frozen=True)
class _Source:
    """The plain data of a configuration and where each key stands."""

    data: Any
    places: Mapping[KeyPath, str]

    def place(self, path: KeyPath) -> str:
        """Where the key stands, or the nearest key above it that stands anywhere."""
        return next(self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places)

    def overridden(self, text: str) -> _Source:
        """With one key set by "section.key=value"."""
        where = f"--set {text}"
        key, equals, value = text.partition("=")
        path = tuple(key.strip().split("."))
        if not equals or not all(path):
            raise ConfigError(f"{where}: section.key=value is needed")
        try:
            parsed = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: the value is not YAML: {_one_line(error)}") from None
        kept = {place: line for place, line in self.places.items() if place[: len(path)] != path}
        return _Source(_replaced(self.data, path, parsed, where), {**kept, path: where})

    def expanded(self) -> Any:
        """The data with the environment's variables filled in."""
        return _expand(self.data, (), self)


def _read(file: Path) -> _Source:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not a text file in UTF-8: {error.reason} at byte {error.start}") from None
    places: dict[KeyPath, str] = {(): str(file)}
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _note_places(node, (), file, places, [])
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{file}{line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not YAML: {_one_line(error)}") from None
    finally:
        loader.dispose()
    if not isinstance(data, dict):
        found = "nothing" if data is None else type(data).__name__
        raise ConfigError(f"{file}: a mapping of sections is needed ({_listed(RunConfig)}), {found} was found")
    return _Source(data, places)


def _note_places(
    node: yaml.Node, path: KeyPath, file: Path, places: dict[KeyPath, str], above: list[yaml.Node]
) -> None:
    if any(node is other for other in above):
        raise ConfigError(f"{file}:{node.start_mark.line + 1}: {_dotted(path)} contains itself")
    children: list[tuple[str | int, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        children = [(index, value, value) for index, value in enumerate(node.value)]
    for name, key, value in children:
        line = f"{file}:{key.start_mark.line + 1}"
        child = (*path, name)
        if child in places and name != "<<":
            raise ConfigError(f"{line}: {_dotted(child)} is set twice, first at {places[child]}")
        places[child] = line
        _note_places(value, child, file, places, [*above, node])


def _replaced(data: Any, path: KeyPath, value: Any, where: str) -> Any:
    """`data` with the value at `path` set; mappings on the way are made."""
    if not path:
        return value
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{where}: {path[0]} would be a key of {data!r}, which is no mapping")
    below = (data or {}).get(path[0])
    return {**(data or {}), path[0]: _replaced(below, path[1:], value, where)}


_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)\}")


def _expand(value: Any, path: KeyPath, source: _Source) -> Any:
    if isinstance(value, dict):
        return {key: _expand(item, (*path, key), source) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, (*path, index), source) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        if name not in os.environ:
            raise ConfigError(
                f"{source.place(path)}: {_dotted(path)}: the environment variable {name or '(empty name)'} is not set "
                f"(found {value!r}); set it, or write $${{{name}}} for the text itself"
            )
        # What a shell's user writes into a variable is relative to where they stand, not to the configuration.
        starts_path = match.start() == 0 and value[match.end() :].startswith("/")
        return os.path.abspath(os.environ[name]) if starts_path else os.environ[name]

    return _VARIABLE.sub(fill, value)


def _messages(error: ValidationError, source: _Source, data: Any) -> Iterator[str]:
    """One message for every key that is wrong; what the members of a union need is told in one."""
    details: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        path = _path_in(data, detail["loc"], detail["type"] == "missing")
        details.setdefault(path, []).append(detail)
    for path, found in details.items():
        where = f"{source.place(path)}: {_dotted(path)}"
        first = found[0]
        if first["type"] == "extra_forbidden":
            yield f"{where} is not a key (found {_short(first['input'])}); {_nearest(first['loc'], path)}"
        elif first["type"] == "missing":
            yield f"{where} is missing; it is needed"
        else:
            needs = dict.fromkeys(_need(detail) for detail in found)
            yield f"{where} is {_short(first['input'])}: {' or '.join(needs)}"


def _need(detail: ErrorDetails) -> str:
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type", "mapping_type"):
        return "a mapping of keys is needed"
    message = detail["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _path_in(data: Any, location: KeyPath, missing: bool) -> KeyPath:
    """pydantic's location without its names of union members, which stand nowhere in the data."""
    path: list[str | int] = []
    for part in location:
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            path.append(part)
    if missing:
        path.append(location[-1])
    return tuple(path)


def _nearest(location: KeyPath, path: KeyPath) -> str:
    """The key that an unknown one may stand for: a namesake deeper in the section, the nearest there, or elsewhere."""
    model: Any = RunConfig
    for part in location[:-1]:
        model = _step(model, part)
    model = next(iter(_models(model)), RunConfig)
    names = _names(model)
    namesakes = [key for key in _all_keys(RunConfig, ()) if key[-1] == path[-1]]
    deeper = [key for key in namesakes if key[: len(path) - 1] == path[:-1]]
    close = difflib.get_close_matches(str(path[-1]), names, n=1, cutoff=0.5)
    if close and not deeper:
        return f"did you mean {_dotted((*path[:-1], close[0]))}?"
    if namesakes:
        return f"did you mean {' or '.join(_dotted(key) for key in (deeper or namesakes)[:3])}?"
    return f"the keys here are {_listed(model)}"


def _step(kind: Any, part: str | int) -> Any:
    """The annotation of one part of a location, within an annotation."""
    for option in _members(kind):
        if get_origin(option) is Annotated:
            if any(isinstance(mark, Tag) and mark.tag == part for mark in get_args(option)[1:]):
                return get_args(option)[0]
        elif isinstance(option, type) and issubclass(option, BaseModel):
            for name, field in option.model_fields.items():
                if part in (name, field.alias):
                    return field.annotation
        elif get_origin(option) is not None and len(get_args(option)) == 2:
            return get_args(option)[1]
    return None


def _members(kind: Any) -> list[Any]:
    """The members of nested unions; an annotated member keeps its tag."""
    if get_origin(kind) in (Union, types.UnionType):
        return [member for part in get_args(kind) for member in _members(part)]
    if get_origin(kind) is Annotated and not any(isinstance(mark, Tag) for mark in get_args(kind)[1:]):
        return _members(get_args(kind)[0])
    return [kind]


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    for option in _members(kind):
        inner = get_args(option)[0] if get_origin(option) is Annotated else option
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield inner


def _all_keys(model: type[BaseModel], path: KeyPath) -> Iterator[KeyPath]:
    for name, field in model.model_fields.items():
        here = (*path, field.alias or name)
        yield here
        for inner in _models(field.annotation):
            yield from _all_keys(inner, here)


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _listed(model: type[BaseModel]) -> str:
    return ", ".join(_names(model))


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path)) or "the file"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
