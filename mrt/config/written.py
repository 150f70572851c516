"""A configuration as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mrt.config.schema import RunConfig


def config_yaml(config: RunConfig, about: str, folder: Path | None = None) -> bytes:
    """The file of a configuration; what is as by default is left out.

    about: one line, a comment at its head. folder: absolute, where the file is to lie, so that paths count from there
    as far as it and they are in the working directory; without it all are absolute.
    """
    data = _escaped(config.model_dump(mode="json", exclude_defaults=True, by_alias=True, context={"folder": folder}))
    return as_file(data, about)


def as_file(data: Any, about: str) -> bytes:
    """Plain data as the file of a configuration, below a comment of one line."""
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    return f"# {' '.join(about.split())}\n{text}".encode()


def _escaped(value: Any) -> Any:
    """`${NAME}` as it is: a configuration that is read would have variables of the environment there."""
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
