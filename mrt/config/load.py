"""Reading a configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from mrt.config.schema import RunConfig
from mrt.config.source import Source, read_source
from mrt.errors import ConfigError
from mrt.messages import listed, messages
from mrt.paths import as_path

NO_FLAGS: Mapping[str, str | None] = {}


def load_config(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    shapes: Sequence[str] = (),
    random_params: bool = False,
    flags: Mapping[str, str | None] = NO_FLAGS,
) -> RunConfig:
    """The configuration in a YAML file, changed by `overrides` of the form "section.key=value" (the value is YAML), by
    `shapes` of the form "input=1,3,224,224", by `random_params`, which sets model.random_params, and by `flags`, texts
    by the key of the file that they set, where they are given.

    Raises ConfigError naming every wrong key with its line, what was found, and the nearest right key.
    """
    file = as_path(path, "the configuration", ConfigError)
    source = read_source(file)
    if not isinstance(source.data, dict):
        found = "nothing" if source.data is None else type(source.data).__name__
        raise ConfigError(f"{file}: a mapping of sections is needed ({listed(RunConfig)}), {found} was found")
    for override in overrides:
        source = source.overridden(override)
    for shape in shapes:
        source = source.with_shape(shape)
    if random_params:
        source = source.with_random_params()
    for key, text in flags.items():
        source = source if text is None else source.with_flag(key, text)
    return config_of(source, file.resolve().parent)


def config_of(source: Source, folder: Path) -> RunConfig:
    """The configuration in plain data whose paths count from `folder`; ConfigError as `load_config`."""
    data = source.expanded()
    try:
        return TypeAdapter(RunConfig).validate_python(data, context={"folder": folder})
    except ValidationError as error:
        raise ConfigError("; ".join(messages(error, RunConfig, data, source.named))) from None
