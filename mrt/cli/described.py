"""What the options of `mrt quantize` stand for: a configuration of a run."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mrt.cli.data_section import check_places, data_section
from mrt.config import RunConfig
from mrt.config.load import config_of
from mrt.config.source import Source
from mrt.errors import ConfigError
from mrt.messages import KeyPath
from mrt.quantization.plan.trained import brings_quantization
from mrt.stages.network import read_network
from mrt.symbol import Graph


@dataclass(frozen=True)
class Flags:
    """The options as they are given. data_keys: what is said of the data, by the keys of a configuration."""

    model: str
    data: str | None
    test: str | None
    output: Path | None
    data_keys: Mapping[str, Any]
    samples: int | None
    target: str | None
    batch: int | None
    shapes: tuple[str, ...]
    settings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Described:
    """A configuration, the network that it names, the last stage, if it is not the last there is, and what to say."""

    config: RunConfig
    graph: Graph
    last: str | None
    remarks: tuple[str, ...]

    @property
    def last_option(self) -> str:
        return "" if self.last is None else f" --to {self.last}"


def described(flags: Flags) -> Described:
    """The configuration that the options stand for, with absolute paths.

    Raises ConfigError for what is asked otherwise than it is needed, and where it is not known how the network was
    trained to take the data, naming the option that says it; and what reading the network and the data raises.
    """
    here = Path.cwd()
    model = {"model": {"path": flags.model}, "output": str(flags.output or _default_output(flags.model))}
    of_model = tuple(text for text in flags.settings if text.lstrip().startswith(("model.", "prepare.")))
    early = config_of(_source(model, {}, flags.shapes, of_model), here)
    check_places(flags.data, flags.test, flags.data_keys)
    graph = read_network(early.model, early.prepare.split)
    if flags.data is None and not brings_quantization(graph):
        raise ConfigError(
            "--data is missing: the samples that the network is calibrated on, a folder of images, an .npz or .npy "
            "file, or FILE.py:FUNCTION"
        )
    section = data_section(flags.data, flags.test, flags.data_keys, flags.samples, graph)
    keys = dict(_compile_keys(flags))
    data = {**model, **({"data": section.data} if section.data else {}), **({"compile": keys} if keys else {})}
    config = config_of(_source(data, section.places, flags.shapes, flags.settings), here)
    last, remarks = _last(config)
    return Described(config, graph, last, (*section.remarks, *remarks))


def _default_output(model: str) -> Path:
    file, colon, function = model.rpartition(":")
    return Path("out") / (f"{Path(file).stem}-{function}" if colon and file.endswith(".py") else _called(Path(model)))


def _called(file: Path) -> str:
    """What a model is called by its file; of MXNet's NAME-symbol.json it is NAME."""
    return file.stem.removesuffix("-symbol") if file.suffix == ".json" else file.stem


def _source(data: Any, places: Mapping[KeyPath, str], shapes: tuple[str, ...], settings: tuple[str, ...]) -> Source:
    """The plain data with what --shape and --set say; every key stands in the option that it comes from."""
    options: dict[KeyPath, str] = {
        ("model", "path"): "MODEL",
        ("compile", "target"): "--target",
        ("compile", "batch"): "--batch",
    }
    source = Source(_escaped(data), {(): "mrt quantize", **options, **places})
    for text in settings:
        source = source.overridden(text)
    for text in shapes:
        source = source.with_shape(text)
    return source


def _escaped(value: Any) -> Any:
    """`${NAME}` as it is: the shell has filled in what was to be."""
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    return value.replace("${", "$${") if isinstance(value, str) else value


def _compile_keys(flags: Flags) -> Iterator[tuple[str, Any]]:
    if flags.target is not None:
        try:
            yield "target", yaml.safe_load(flags.target)
        except yaml.YAMLError:
            raise ConfigError(
                f"--target {flags.target}: native, or a mapping such as {{mcpu: znver4}}, is needed"
            ) from None
    if flags.batch is not None:
        yield "batch", flags.batch


def _last(config: RunConfig) -> tuple[str | None, tuple[str, ...]]:
    """The last stage that can be run, None for all, and why others cannot."""
    triple = config.compile.target.mtriple
    if triple is not None and triple.partition("-")[0] != platform.machine():
        return "compile", (f"code for {triple} is not run here: accuracy is not measured",)
    if config.data.test is None:
        return "compile", ("without data accuracy is not measured (--data, --test)",)
    return None, ()
