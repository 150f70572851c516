"""The output folder of a run: what each stage saved, and what it was made from.

A run makes its files in the folder `UNFINISHED` of the output folder, and puts them in place at its end, all at once
(`mrt.result_folder`). So a run that fails or is killed leaves an earlier result whole. The stages that it did finish
stay in `UNFINISHED`, from which the next run takes them if they are what it needs, and else removes them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mrt.errors import ConfigError
from mrt.result_folder import commit, finish, held
from mrt.symbol.files import atomic_write_all, sha256_of

FORMAT_VERSION = 2
STAGE_FOLDER = "stages"
UNFINISHED = ".unfinished"

Origins = Mapping[str, str]
"""Digests of what a stage's result depends on, by what it is: the model, a section of the configuration, data."""


class Workspace:
    """A folder with a record stages/STAGE.json for each stage done: its origins, the digests of its files, its seconds.

    A record is written after the files that it names, so that files without a matching record are never taken for a
    stage's result. A stage's record and files lie together, in place or in `UNFINISHED`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unfinished = folder / UNFINISHED
        self._stages: dict[str, Path] = {}
        self._files: dict[str, Path] = {}

    @contextmanager
    def opened(self) -> Iterator[bool]:
        """Makes the folder and keeps others from writing there; gives whether its file system can do that.

        A folder that was made and is empty in the end is removed. Raises ConfigError if nothing can be written there,
        BusyError if another run is at work there.
        """
        missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        with contextlib.ExitStack() as stack:
            stack.callback(_remove_empty, missing)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                has_locks = stack.enter_context(held(self.folder))
                finish(self.folder)
                with tempfile.TemporaryFile(dir=self.folder) as probe:
                    probe.write(b"\0")
                    probe.flush()
            except OSError as error:
                raise ConfigError(
                    f"output {self.folder} cannot be written: {error.strerror}; choose another folder by --output"
                ) from None
            yield has_locks

    def has(self, name: str) -> bool:
        """Whether a stage that was taken or made left the file `name`, relative to the folder."""
        return name in self._files

    def home(self, name: str) -> Path:
        """The folder to which the name of that file is relative now; ConfigError where there is none."""
        if name not in self._files:
            raise ConfigError(f"{self.folder / name} is missing; start from an earlier stage (--from)")
        return self._files[name]

    def path(self, name: str) -> Path:
        """Where that file lies now."""
        return self.home(name) / name

    def new(self, name: str) -> Path:
        """Where a stage is to write the file `name`; its folder is there."""
        path = self._unfinished / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Writes all files, each whole, or none; gives their names."""
        atomic_write_all({self.new(name): content for name, content in files.items()})
        return tuple(files)

    def record(self, stage: str, origins: Origins, files: Sequence[str], seconds: float) -> None:
        """Notes that a stage is done."""
        facts = {
            "format_version": FORMAT_VERSION,
            "origins": dict(origins),
            "files": {name: sha256_of(self._unfinished / name) for name in files},
            "seconds": seconds,
        }
        self.write({_record(stage): json.dumps(facts, indent=1).encode()})
        self._take(stage, self._unfinished)

    def seconds(self, stage: str) -> float:
        """How long a stage took that is done."""
        return float(_read(self._stages[stage], stage)["seconds"])

    def take(self, origins: Mapping[str, Origins]) -> tuple[str, ...]:
        """Takes the results of the first stages as far as they are whole and were made from just these origins.

        origins: by stage, in order. Gives the stages. What an interrupted run left is taken rather than what is in
        place, unless more stages fit there.
        """
        in_place, newer = self._fitting(origins, ()), self._fitting(origins, (self._unfinished,))
        for stage, place in (in_place if len(in_place) > len(newer) else newer).items():
            self._take(stage, place)
        return tuple(self._stages)

    def refuse(self, stage: str, origins: Origins, first: str) -> None:
        """ConfigError saying why the saved result of `stage` cannot be taken, and where to start instead of `first`."""
        fault = _fault(self.folder, stage, origins, f"cannot start from {first}: ")
        if not (self.folder / _record(stage)).exists() and (self._unfinished / _record(stage)).exists():
            fault = _fault(self._unfinished, stage, origins, f"cannot start from {first}: ")
        raise ConfigError(fault or f"cannot start from {first}: start from {stage} (--from {stage})")

    def clear(self) -> None:
        """Removes what an interrupted run left and was not taken."""
        taken = {self.path(name) for name, place in self._files.items() if place == self._unfinished}
        taken |= {place / _record(stage) for stage, place in self._stages.items() if place == self._unfinished}
        if not taken and self._unfinished.exists():
            shutil.rmtree(self._unfinished)
        for path in [path for path in self._unfinished.rglob("*") if not path.is_dir() and path not in taken]:
            path.unlink()

    @property
    def made(self) -> tuple[str, ...]:
        """The stages whose results are not in place yet."""
        return tuple(stage for stage, place in self._stages.items() if place == self._unfinished)

    def commit(self, untrue: Iterable[str], later: Iterable[str]) -> None:
        """Puts what was made in place; removes the files that it makes untrue, and the records of `later` stages.

        Nothing is removed where what was made is what was in place already.
        """
        made = self.made
        if any(not self._is_same(stage) for stage in made):
            commit(self.folder, self._unfinished, {*untrue, *map(_record, later)})
        else:
            commit(self.folder, self._unfinished)
        for stage in made:
            self._take(stage, self.folder)

    def _take(self, stage: str, place: Path) -> None:
        self._stages[stage] = place
        self._files |= dict.fromkeys(_read(place, stage)["files"], place)

    def _fitting(self, origins: Mapping[str, Origins], newer: Sequence[Path]) -> dict[str, Path]:
        """The places of the first stages that fit; a stage that was made anew is not followed by older results."""
        found: dict[str, Path] = {}
        places = [*newer, self.folder]
        for stage, wanted in origins.items():
            place = next((place for place in places if _fault(place, stage, wanted) is None), None)
            if place is None:
                break
            found[stage] = place
            places = places if place == self.folder else [place]
        return found

    def _is_same(self, stage: str) -> bool:
        """Whether what was made of a stage is what is in place."""
        facts = _read(self._unfinished, stage)
        try:
            former = _read(self.folder, stage)
        except ConfigError:
            return False
        return all(former[key] == facts[key] for key in ("origins", "files"))


def _remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders as far as they are empty, the innermost first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _record(stage: str) -> str:
    return f"{STAGE_FOLDER}/{stage}.json"


def _fault(place: Path, stage: str, origins: Origins, start: str = "") -> str | None:
    """Why the result of `stage` in `place` is not that of these origins, or not whole; None if it is."""
    try:
        facts = _read(place, stage)
    except ConfigError as error:
        return str(error)
    for name in {**facts["origins"], **origins}:
        if facts["origins"].get(name) != origins.get(name):
            return f"{start}{place} was made with another {name}; start from {stage} or earlier (--from {stage})"
    for name, digest in facts["files"].items():
        try:
            is_whole = sha256_of(place / name) == digest
        except OSError:
            is_whole = False
        if not is_whole:
            return f"{start}{place / name} is missing or was changed; start from {stage} (--from {stage})"
    return None


def _read(place: Path, stage: str) -> dict[str, Any]:
    """The record of a stage; ConfigError where there is none."""
    path = place / _record(stage)
    try:
        facts = json.loads(path.read_bytes())
        version, _ = facts["format_version"], (facts["origins"].items(), facts["files"].items(), facts["seconds"])
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path} is missing: stage {stage} was not run; start from it (--from {stage})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path} is no record of a stage; start from {stage} (--from {stage})") from None
    if version != FORMAT_VERSION:
        raise ConfigError(
            f"{path}: format_version is {version}, {FORMAT_VERSION} is needed; start from {stage} (--from {stage})"
        )
    return dict(facts)
