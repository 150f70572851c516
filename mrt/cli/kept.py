"""The configuration that lies beside a result and says how it was made."""

from __future__ import annotations

from pathlib import Path

import yaml

from mrt.config import RunConfig, config_yaml
from mrt.config.written import as_file
from mrt.symbol.files import atomic_write_all

CONFIGURATION = "mrt.yaml"
ABOUT = "Made by mrt quantize; mrt run repeats it."


def kept_configuration(config: RunConfig, folder: Path) -> bytes:
    """The file of a configuration whose results are in `folder`, absolute."""
    return config_yaml(config, ABOUT, folder)


def configuration_in(given: Path) -> Path:
    """The configuration that a caller names: a file, or that beside the result in a folder, where there is one."""
    beside = given / CONFIGURATION
    return beside if given.is_dir() and beside.exists() else given


def keep_configuration(given: Path, config: RunConfig, folder: Path) -> None:
    """Replaces the file that `mrt quantize` left beside a result where another configuration made what is there now.

    given: the file that was run. One that people wrote or changed, and the one that was run, stay.
    """
    folder = folder.resolve()
    path = folder / CONFIGURATION
    if given.resolve() != path and _is_own(path):
        atomic_write_all({path: kept_configuration(config.model_copy(update={"output": folder}), folder)})


def _is_own(path: Path) -> bool:
    """Whether a file is one that `mrt quantize` made, as far as its form tells."""
    try:
        content = path.read_bytes()
        return content == as_file(yaml.safe_load(content), ABOUT)
    except (OSError, ValueError, yaml.YAMLError):
        return False
