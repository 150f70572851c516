"""The output folder of a run: what each stage saved, and what it was made from."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrt.errors import ConfigError
from mrt.symbol.files import atomic_write_all, sha256_of

FORMAT_VERSION = 2
STAGE_FOLDER = "stages"

Origins = Mapping[str, str]
"""Digests of what a stage's result depends on, by what it is: the model, a section of the configuration, data."""


@dataclass(frozen=True)
class Workspace:
    """A folder with a record stages/STAGE.json for each stage done: its origins, the digests of its files, its seconds.

    A record is removed before the stage's files are touched and written after them, so that files without a matching
    record are never taken for a stage's result.
    """

    folder: Path

    def path(self, name: str) -> Path:
        """The file `name`, relative to the folder."""
        return self.folder / name

    def open(self) -> None:
        """Makes the folder; ConfigError if nothing can be written there."""
        try:
            (self.folder / STAGE_FOLDER).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"\0")
                probe.flush()
        except OSError as error:
            raise ConfigError(
                f"output {self.folder} cannot be written: {error.strerror}; choose another folder by --output"
            ) from None

    def write(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Writes all files, each whole, or none; gives their names."""
        for name in files:
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
        atomic_write_all({self.path(name): content for name, content in files.items()})
        return tuple(files)

    def forget(self, stages: Iterable[str], files: Iterable[str] = ()) -> None:
        """Removes the records of stages that are about to be made anew, and files made from what they give."""
        for stage in stages:
            self._record(stage).unlink(missing_ok=True)
        for name in files:
            self.path(name).unlink(missing_ok=True)

    def record(self, stage: str, origins: Origins, files: Sequence[str], seconds: float) -> None:
        """Notes that a stage is done."""
        facts = {
            "format_version": FORMAT_VERSION,
            "origins": dict(origins),
            "files": {name: sha256_of(self.path(name)) for name in files},
            "seconds": seconds,
        }
        self.write({f"{STAGE_FOLDER}/{stage}.json": json.dumps(facts, indent=1).encode()})

    def seconds(self, stage: str) -> float:
        """How long a stage took that is done."""
        return float(self._read(stage)["seconds"])

    def check(self, stage: str, origins: Origins, first: str) -> None:
        """ConfigError, saying where to start instead of at `first`, unless the saved result of `stage` is whole and
        was made from just these origins."""
        facts = self._read(stage)
        wanted = f"cannot start from {first}: {self.folder}"
        for name, digest in origins.items():
            if facts["origins"].get(name) != digest:
                raise ConfigError(
                    f"{wanted} was made with another {name}; start from {stage} or earlier (--from {stage})"
                )
        for name, digest in facts["files"].items():
            if not self.path(name).is_file() or sha256_of(self.path(name)) != digest:
                raise ConfigError(f"{wanted}/{name} is missing or was changed; start from {stage} (--from {stage})")

    def _record(self, stage: str) -> Path:
        return self.folder / STAGE_FOLDER / f"{stage}.json"

    def _read(self, stage: str) -> dict[str, Any]:
        path = self._record(stage)
        try:
            facts = json.loads(path.read_bytes())
            version, _ = facts["format_version"], (facts["origins"].items(), facts["files"].items(), facts["seconds"])
        except FileNotFoundError:
            raise ConfigError(f"{path} is missing: stage {stage} was not run; start from it (--from {stage})") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(f"{path} is no record of a stage; start from {stage} (--from {stage})") from None
        if version != FORMAT_VERSION:
            raise ConfigError(
                f"{path}: format_version is {version}, {FORMAT_VERSION} is needed; start from {stage} (--from {stage})"
            )
        return dict(facts)
