"""The configuration of a run: a YAML file, typed and validated, every error with its key, line and nearest right key.

Strings may hold `${NAME}`, which is replaced by the environment variable NAME (`$${NAME}` stays `${NAME}`).
Relative paths, the key `output` among them, are relative to the folder of the configuration file.
"""

from mrt.config.load import load_config
from mrt.config.schema import (
    Choice,
    DatasetConfig,
    FolderDataset,
    LoaderDataset,
    ModelSection,
    NpyDataset,
    NpzDataset,
    Preprocessing,
    RunConfig,
)
from mrt.config.written import config_yaml

__all__ = [
    "Choice",
    "DatasetConfig",
    "FolderDataset",
    "LoaderDataset",
    "ModelSection",
    "NpyDataset",
    "NpzDataset",
    "Preprocessing",
    "RunConfig",
    "config_yaml",
    "load_config",
]
