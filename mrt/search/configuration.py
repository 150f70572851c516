"""An ordinary configuration file that says what a search chose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mrt.config import RunConfig
from mrt.quantization.options import QuantizationConfig


def tuned_config(config: RunConfig, quantize: QuantizationConfig, output: Path) -> RunConfig:
    """The run of `quantize`, whose results go to `output`."""
    return config.model_copy(update={"quantize": quantize, "output": output})


def config_yaml(config: RunConfig, about: str) -> bytes:
    """The file of a configuration; what is as by default is left out. about: one line, a comment at its head."""
    data = _escaped(config.model_dump(mode="json", exclude_defaults=True, by_alias=True))
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return f"# {' '.join(about.split())}\n{text}".encode()


def _escaped(value: Any) -> Any:
    """`${NAME}` as it is: a configuration that is read would have variables of the environment there."""
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
