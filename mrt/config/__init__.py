"""The configuration of a run: a YAML file, typed and validated, every error with its key, line and nearest right key.

Strings may hold `${NAME}`, which is replaced by the environment variable NAME (`$${NAME}` stays `${NAME}`).
Relative paths, the key `output` among them, are relative to the folder of the configuration file.
"""

from mrt.config.load import load_config
from mrt.config.schema import (
    DatasetConfig,
    FolderDataset,
    LoaderDataset,
    NpzDataset,
    Preprocessing,
    RunConfig,
)

__all__ = [
    "DatasetConfig",
    "FolderDataset",
    "LoaderDataset",
    "NpzDataset",
    "Preprocessing",
    "RunConfig",
    "load_config",
]
