"""What a stage of the pipeline is, and what the stages share: their files, the data, what results depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mrt.batches import Batches
from mrt.config import DatasetConfig, RunConfig
from mrt.datasets import Dataset, content_digest, load_dataset
from mrt.errors import ConfigError
from mrt.execution import THREADS, Executor
from mrt.module_record import MODULE_FILE, record_path
from mrt.preparation import Prepared
from mrt.progress import Reporter
from mrt.runtime import THIS_DEVICE, Device, device_at
from mrt.steps import Step
from mrt.symbol import Array, Graph
from mrt.symbol.files import read_graph
from mrt.symbol.states import fed_inputs
from mrt.work import Settings, Work
from mrt.workspace import Workspace

PREPARED = ("stages/prepare/graph.json", "stages/prepare/params.safetensors")
POSTPROCESS = ("stages/prepare/postprocess.json", "stages/prepare/postprocess.safetensors")
CHANGED = ("stages/calibrate/graph.json", "stages/calibrate/params.safetensors")
CHANGED_NOTES = "stages/calibrate/notes.json"
NOTES = "stages/prepare/notes.json"
OPTIONS = "stages/quantize/options.json"
THRESHOLDS = "stages/calibrate/thresholds.json"
MODULE = MODULE_FILE
MODULE_RECORD = record_path(Path(MODULE)).name
SUMMARY = "summary.json"
TILINGS = "tilings"
"""Files that stages leave, relative to the output folder. TILINGS is a folder, of what tuning measured: it is
used as long as it is there, whatever stages are made anew."""

Save = Callable[[], tuple[str, ...]]
"""Writes what a stage made; gives the names of the files, relative to the output folder."""


@dataclass(frozen=True)
class Run:
    """What the stages of one run share. graph: the float network as read. executor: who takes samples. device: where
    compiled code runs."""

    config: RunConfig
    graph: Graph
    workspace: Workspace
    report: Reporter
    executor: Executor = THREADS
    device: Device = THIS_DEVICE


@dataclass(frozen=True)
class Stage:
    """A step that is saved.

    load: the work as earlier stages saved it. save: gives what writes the files of the work's result. origins: digests
    of what the result depends on beyond what earlier stages depend on. spoils: files that a new result makes untrue,
    where they are not made anew with it: those made from this stage's result, and those that the stage does not always
    leave.
    """

    step: Step
    load: Callable[[Run], Work]
    save: Callable[[Run, Work], Save]
    origins: Callable[[Run], Mapping[str, str]]
    spoils: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.step.name

    def run(self, run: Run) -> Save:
        """Does the work, and gives what saves it."""
        return self.save(run, self.step.run(self.load(run)))


def work_of(run: Run) -> Work:
    """The work before its first step."""
    config = run.config
    settings = Settings(
        prepare=config.prepare,
        calibrate=config.calibrate,
        quantize=config.quantize,
        target=config.compile.target,
        batch=config.compile.batch,
        tune=config.compile.tune,
        tilings=run.workspace.folder / TILINGS,
        cache=config.compile.cache,
        batch_size=config.evaluate.batch_size,
        check=config.evaluate.check,
        stream_length=config.evaluate.stream_length,
    )
    return Work(run.graph, settings, report=run.report, is_saved=True, executor=run.executor, device=run.device)


@contextmanager
def device_of(config: RunConfig) -> Iterator[Device]:
    """The device of a configuration, by default this machine; its sessions end with the context."""
    device = THIS_DEVICE if config.device is None else device_at(config.device)
    try:
        yield device
    finally:
        device.close()


def device_origin(run: Run) -> dict[str, str]:
    """Which device a result was found on; nothing for this machine."""
    return {} if run.device.is_here else {"device": run.device.name}


def output_folder(config: RunConfig, output: Path | None) -> Path:
    """The folder of the results: `output` or, without it, the configuration's; ConfigError where there is none."""
    folder = output or config.output
    if folder is None:
        raise ConfigError("output is missing; name the folder of the results there or by --output")
    return folder


def dataset_of(run: Run, config: DatasetConfig | None, name: str) -> Dataset:
    """The data of a section that the run needs; ConfigError naming it where it is missing."""
    if config is None:
        raise ConfigError(f"{name} is missing")
    return load_dataset(config, {symbol.name: symbol.type for symbol in fed_inputs(run.graph)}, name)


def calibration_batches(run: Run) -> Callable[[Graph], Batches] | None:
    """Gives the calibration data for the inputs of the prepared graph; None where the configuration names none."""
    section, settings = run.config.data.calibration, run.config.calibrate
    if section is None:
        return None

    def given(graph: Graph) -> Batches:
        data = dataset_of(run, section, "data.calibration")
        total = data.size if settings.samples is None else min(settings.samples, data.size)
        inputs = run.config.quantize.inputs
        source = _Repeated(data, settings.batch_size)
        return Batches(source, graph.inputs, inputs, dict(data.integers), total, dataset=data)

    return given


@dataclass(frozen=True)
class _Repeated:
    """A dataset's batches, as often as they are asked for."""

    data: Dataset
    size: int

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return self.data.batches(self.size)


def with_prepared(run: Run, work: Work) -> Work:
    """The work with what the stage prepare saved, as calibration changed it, if it did."""
    workspace = run.workspace
    is_changed = workspace.has(CHANGED[0])
    graph = read_graph(*(workspace.path(name) for name in (CHANGED if is_changed else PREPARED)))
    has_tail = workspace.has(POSTPROCESS[0])
    tail = read_graph(*(workspace.path(name) for name in POSTPROCESS)) if has_tail else None
    noted = CHANGED_NOTES if is_changed else NOTES
    notes = tuple(json.loads(workspace.path(noted).read_bytes())["notes"]) if workspace.has(noted) else ()
    return replace(work, prepared=Prepared(graph, tail, (), notes), notes=notes)


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
