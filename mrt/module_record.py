"""The record beside a compiled module: which file it is of, and what that was compiled from.

A module is machine code, which nobody can check by reading it. The record says by digests that a file is the one that
was compiled, from which model. It is read without loading the module.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from mrt.compilation import TargetConfig
from mrt.errors import ModelFileError
from mrt.result_folder import current
from mrt.symbol.files import read_file
from mrt.symbol.strict_json import StrictModel, check_version, first_problem, parse_json

MODULE_FILE = "model.so"
"""The compiled module in the folder of a saved model."""
SUFFIX = ".json"
"""What is added to the name of a module's file for that of its record."""
MODULE_LIMIT, RECORD_LIMIT = 2**31, 2**20
"""Bytes of the largest files that are read. Code as it is made cannot address more than 2 GiB."""
FORMAT_VERSION = 1

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 digest in hexadecimal."""
Count = Annotated[int, Field(ge=1)]


class Versions(StrictModel):
    """The versions that compiled a module; LLVM's is the major one."""

    mrt: str
    tvm: str
    llvm: str


class Provenance(StrictModel):
    """What a module was compiled from.

    model: the digest of the quantized model. target: with the names that `native` and defaults stood for; its threads
    are the cores that code was made for. batch: samples that one call takes. workers: calls that run side by side.
    stretches: for how many samples at once how many functions of MAIN run, one stretch after the other; none where all
    run for the whole batch. needs: features of a CPU, by LLVM's names, without which the code ends the process that
    runs it.
    """

    model: Digest
    target: TargetConfig
    versions: Versions
    batch: Count
    workers: Count
    stretches: tuple[tuple[Count, Count], ...] = ()
    needs: tuple[str, ...] = ()

    @classmethod
    def from_data(cls, data: Any) -> Provenance:
        """The record in parsed JSON; ValueError saying in one line what is wrong."""
        try:
            return cls.model_validate_json(json.dumps(data))
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None


class ModuleRecord(StrictModel):
    """sha256, size: of the module's file. made_from: what the module in it says of itself, too."""

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    sha256: Digest
    size: Count
    made_from: Provenance

    @classmethod
    def of(cls, content: bytes, made_from: Provenance) -> ModuleRecord:
        """The record of a module whose file holds `content`."""
        digest = sha256(content).hexdigest()
        return cls(format_version=FORMAT_VERSION, sha256=digest, size=len(content), made_from=made_from)

    def to_json(self) -> bytes:
        return (json.dumps(self.model_dump(mode="json"), indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> ModuleRecord:
        """ModelFileError, saying what is wrong, for what is no record of this format."""
        check_version(parse_json(content), FORMAT_VERSION)
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise ModelFileError(first_problem(error)) from None


def record_path(module: Path) -> Path:
    """Where the record of a module is: model.so.json for model.so."""
    return Path(f"{module}{SUFFIX}")


def read_module(path: Path, follow: bool = True) -> tuple[bytes, ModuleRecord]:
    """The content of a module's file, read once, and its record, which is of just that content.

    follow: whether they may be files that links lead to.
    Raises ModelFileError, naming the file, where one of them is missing, no regular file, too large or malformed, or
    where they do not belong together.
    """
    content, record = read_file(current(path.parent, path.name), MODULE_LIMIT, follow), read_record(path, follow)
    if (record.size, record.sha256) != (len(content), digest := sha256(content).hexdigest()):
        raise ModelFileError(
            f"{path} holds {len(content)} bytes whose SHA-256 is {digest}; {record_path(path).name} states "
            f"{record.size} bytes and {record.sha256}: one of them was changed or replaced; {remedy(path)}"
        )
    return content, record


def read_record(module: Path, follow: bool = True) -> ModuleRecord:
    """The record of the module at `module`; ModelFileError, naming its file, where there is none."""
    path = current(module.parent, record_path(module).name)
    if not os.path.lexists(path):
        raise ModelFileError(f"{path}, the record of {module.name}, is missing; copy it too, or {remedy(module)}")
    content = read_file(path, RECORD_LIMIT, follow)
    try:
        return ModuleRecord.from_json(content)
    except ModelFileError as error:
        raise ModelFileError(f"{path} is no record of a module: {error}; {remedy(module)}") from None


def module_in(folder: Path, digest: str) -> ModuleRecord | None:
    """The record of the module in a saved model's folder, checked as `read_module` does; None where there is none.

    digest: the model's; a module that was compiled from another one is a ModelFileError.
    """
    path = folder / MODULE_FILE
    if not os.path.lexists(current(folder, path.name)):
        if os.path.lexists(current(folder, record_path(path).name)):
            raise ModelFileError(f"{path} is missing, {record_path(path).name} is there; {remedy(path)}")
        return None
    _, record = read_module(path, follow=False)
    check_model(path, record.made_from, digest)
    return record


def check_model(path: Path, made_from: Provenance, digest: str) -> None:
    """ModelFileError unless the module at `path` was compiled from the model with that digest."""
    if made_from.model != digest:
        raise ModelFileError(
            f"{path} was compiled from the model with the digest {made_from.model}, the model is {digest}; "
            f"{remedy(path)}"
        )


def check_same(path: Path, stated: Provenance, found: Provenance) -> None:
    """ModelFileError, naming the first fact that differs, unless a module was compiled from what its record states."""
    for name in Provenance.model_fields:
        if getattr(stated, name) != getattr(found, name):
            raise ModelFileError(
                f"{path}: its {name} is {getattr(found, name)}, {record_path(path).name} states "
                f"{getattr(stated, name)}; {remedy(path)}"
            )


def remedy(path: Path) -> str:
    """What to do about a module that is not what it should be."""
    return f"compile it anew (mrt compile {path.parent}, or Module.save)"


def record_text(record: ModuleRecord) -> str:
    """The record for people, in a few lines."""
    made, target = record.made_from, record.made_from.target
    names = [name for name in (target.kind, target.mtriple, target.mcpu, *target.features) if name]
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.model_dump().items())
    return "\n".join(
        [
            f"{MODULE_FILE}: {record.size} bytes, SHA-256 {record.sha256}",
            f"    model: {made.model}",
            f"    target: {' '.join(names)}, threads: {target.threads}",
            f"    batch: {made.batch}, calls side by side: {made.workers}",
            *([f"    stretches: {_stretches(made.stretches)}"] if made.stretches else []),
            f"    versions: {versions}",
        ]
    )


def _stretches(found: Sequence[tuple[int, int]]) -> str:
    """Such as `42 functions by 1 sample, then 11 by 8`."""
    (samples, count), *others = found
    first = f"{count} function{'s' * (count > 1)} by {samples} sample{'s' * (samples > 1)}"
    return ", then ".join([first, *(f"{count} by {samples}" for samples, count in others)])
