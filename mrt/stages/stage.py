"""What a stage of the pipeline is, and what the stages share: their files, the data, what results depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mrt.config import DatasetConfig, RunConfig
from mrt.datasets import Dataset, content_digest, load_dataset
from mrt.errors import ConfigError
from mrt.module_record import MODULE_FILE, record_path
from mrt.progress import Reporter
from mrt.symbol import Graph
from mrt.symbol.files import read_graph
from mrt.workspace import Workspace

PREPARED = ("stages/prepare/graph.json", "stages/prepare/params.safetensors")
POSTPROCESS = ("stages/prepare/postprocess.json", "stages/prepare/postprocess.safetensors")
NOTES = "stages/prepare/notes.json"
THRESHOLDS = "stages/calibrate/thresholds.json"
MODULE = MODULE_FILE
MODULE_RECORD = record_path(Path(MODULE)).name
SUMMARY = "summary.json"
"""Files that stages leave, relative to the output folder."""

Save = Callable[[], tuple[str, ...]]
"""Writes what a stage made; gives the names of the files, relative to the output folder."""


@dataclass(frozen=True)
class Run:
    """What the stages of one run share. graph: the float network as read."""

    config: RunConfig
    graph: Graph
    workspace: Workspace
    report: Reporter


@dataclass(frozen=True)
class Stage:
    """A step of the pipeline.

    run: does the work, and gives what saves it. origins: digests of what the result depends on beyond what earlier
    stages depend on. spoils: files that a new result makes untrue, where they are not made anew with it: those made
    from this stage's result, and those that the stage does not always leave.
    """

    name: str
    run: Callable[[Run], Save]
    origins: Callable[[Run], Mapping[str, str]]
    spoils: tuple[str, ...] = ()


def dataset_of(run: Run, config: DatasetConfig | None, name: str) -> Dataset:
    """The data of a section that the run needs; ConfigError naming it where it is missing."""
    if config is None:
        raise ConfigError(f"{name} is missing")
    return load_dataset(config, {symbol.name: symbol.type for symbol in run.graph.inputs}, name)


def prepared_graph(workspace: Workspace) -> tuple[Graph, Graph | None]:
    """The prepared float graph and its float tail."""
    graph = read_graph(*(workspace.path(name) for name in PREPARED))
    has_tail = workspace.has(POSTPROCESS[0])
    return graph, read_graph(*(workspace.path(name) for name in POSTPROCESS)) if has_tail else None


def section_origin(name: str, section: BaseModel | None) -> dict[str, str]:
    """The digest of a section of the configuration, as something that a result depends on."""
    content = "null" if section is None else json.dumps(section.model_dump(mode="json"), sort_keys=True)
    return {f"section {name}": hashlib.sha256(content.encode()).hexdigest()}


def data_origin(name: str, section: DatasetConfig | None, samples: int | None) -> dict[str, str]:
    """That of the section and, where there is one, of the content of the data that it describes."""
    content = {} if section is None else {f"content of {name}": content_digest(section, name, samples)}
    return section_origin(name, section) | content


def to_json(facts: Mapping[str, Any]) -> bytes:
    """The content of a file of facts."""
    return (json.dumps(facts, indent=1, allow_nan=False) + "\n").encode()
