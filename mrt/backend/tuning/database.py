"""What was measured of tilings: MetaSchedule's JSON database, whose records hold the tiling that was chosen.

A record holds no schedule: that is made anew of the tiling, if it is one of those that the function offers. So a
database can make code slow but never wrong.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import meta_schedule

from mrt.backend.machine import Machine, one_line
from mrt.backend.schedule.tilings import Scheduled
from mrt.errors import ModelFileError
from mrt.version import __version__

WORKLOADS, RECORDS = "workloads.json", "records.json"
"""The two files, of one JSON value a line: functions, and what was measured of them."""
TILING, VERSIONS = "mrt.tiling", "mrt.versions"
"""What a record's trace annotates, and an attribute of its function."""
LEAST_GAIN = 0.03
"""The share of the rule's time that a tiling must save to be preferred: less is within what measuring errs by."""
FAILED = 1e10
"""Seconds of what cannot be built or run, as MetaSchedule has it."""


class Database:
    """The times of one machine, in a folder; as a scheduler it chooses the tiling that was fastest.

    A function is found by its structure, the target with the number of threads, and the versions of MRT and TVM.
    tuned: how many functions were scheduled by another tiling than the rule's. failure: why the files could not be
    written, if they could not.
    """

    def __init__(self, folder: Path, machine: Machine) -> None:
        """The folder is made if it is missing; ModelFileError for files that are no database."""
        self._target = tvm.target.Target({**_exported(machine.target), "num-cores": machine.threads})
        self._folder, self._files = folder, _opened(folder)
        self._times: dict[Any, dict[str, float]] = {}
        for record in self._files.get_all_tuning_records():
            if tvm_ffi.structural_equal(record.target, self._target):
                self._note(record.workload, _described_in(record.trace), [float(s) for s in record.run_secs or ()])
        self.tuned = 0
        self.failure: ModelFileError | None = None

    def __call__(self, function: Any, scheduled: Scheduled) -> Any:
        def fastest(tilings: Iterable[Any]) -> Any:
            offered = tuple(tilings)
            best = self.fastest(function, offered)
            self.tuned += best != offered[0]
            return best

        return scheduled(fastest)

    def fastest(self, function: Any, tilings: Sequence[Any]) -> Any:
        """The fastest of a function's `tilings`; the first, the rule's, where that is not known or hardly slower."""
        times, rule = self.times(function, tilings), tilings[0]
        best = min(times, key=lambda tiling: times[tiling], default=rule)
        return best if times.get(best, math.inf) < (1 - LEAST_GAIN) * times.get(rule, math.inf) else rule

    def times(self, function: Any, tilings: Iterable[Any]) -> dict[Any, float]:
        """The least seconds of each of the `tilings` that was measured, `FAILED` where it could not be."""
        module = workload_of(function)
        if not self._files.has_workload(module):
            return {}
        known = self._times.get(self._files.commit_workload(module), {})
        return {tiling: known[text] for tiling in tilings if (text := _text(_described(tiling))) in known}

    def add(self, function: Any, tiling: Any, seconds: Sequence[float]) -> None:
        """Notes the times of a tiling, in the files too; none of a tiling that failed.

        ModelFileError where the files cannot be written; they hold what they held before.
        """
        module = workload_of(function)
        plan = s_tir.Schedule(module)
        plan.annotate(plan.get_sblock("root"), TILING, _described(tiling))
        arguments = meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
        times = list(seconds) or [FAILED]
        try:
            with _appending(self._folder / WORKLOADS, int(not self._files.has_workload(module))):
                workload = self._files.commit_workload(module)
            record = meta_schedule.database.TuningRecord(plan.trace, workload, times, self._target, arguments)
            with _appending(self._folder / RECORDS, 1):
                self._files.commit_tuning_record(record)
        except ModelFileError as error:
            self.failure = error
            raise
        self._note(workload, _described(tiling), times)

    def _note(self, workload: Any, description: Mapping[str, Any], seconds: Sequence[float]) -> None:
        known, text = self._times.setdefault(workload, {}), _text(description)
        known[text] = min([*seconds, known.get(text, FAILED)])


def workload_of(function: Any) -> tvm.IRModule:
    """A PrimFunc that is not scheduled as the database knows it."""
    facts = {
        "global_symbol": "main",
        VERSIONS: f"mrt {__version__}, tvm {tvm.__version__}",
        # Stated, since MetaSchedule cannot count the operations of all that functions hold.
        "estimated_flops": 1,
    }
    for name, value in facts.items():
        function = function.with_attr(name, value)
    return tvm.IRModule({"main": function})


def _described(tiling: Any) -> dict[str, Any]:
    """A tiling by its names and numbers."""
    return {"kind": type(tiling).__name__} | {name: int(value) for name, value in asdict(tiling).items()}


def _described_in(trace: Any) -> dict[str, Any]:
    """What `Database.add` annotated; empty where there is nothing of the kind."""
    for instruction in trace.insts:
        if instruction.kind.name == "Annotate" and TILING in map(str, instruction.attrs):
            found = instruction.inputs[1]
            if isinstance(found, Mapping):
                return {str(name): n if isinstance(n := found[name], int) else str(n) for name in found}
    return {}


def _text(description: Mapping[str, Any]) -> str:
    return json.dumps(description, sort_keys=True)


def _exported(target: Any) -> dict[str, Any]:
    """A target's keys without what TVM derives from them."""
    return {key: value for key, value in dict(target.export()).items() if not key.startswith("feature.")}


def _opened(folder: Path) -> Any:
    """MetaSchedule's database in `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be made: {error.strerror or error}; name another folder") from None
    paths = folder / WORKLOADS, folder / RECORDS
    for path in paths:
        _drop_unended(path)
        _check_lines(path)
    try:
        return meta_schedule.database.JSONDatabase(*map(str, paths))
    except Exception as error:  # what fails, and how, depends on what the files hold
        raise ModelFileError(
            f"{folder} holds no database of tilings that TVM {tvm.__version__} reads ({one_line(error)}); "
            f"remove {WORKLOADS} and {RECORDS}"
        ) from None


@contextmanager
def _appending(path: Path, lines: int) -> Iterator[None]:
    """MetaSchedule appends so many lines to a file, and is silent where it cannot; ModelFileError then."""
    size = path.stat().st_size
    yield
    with path.open("rb") as file:
        file.seek(size)
        added = file.read()
    if added.count(b"\n") == lines and added[-1:] in (b"", b"\n"):
        return
    os.truncate(path, size)
    raise ModelFileError(
        f"{path} cannot be written to the end: the disk is full, or the file as large as it may be (ulimit -f); "
        f"make room, or compile without tune"
    )


def _drop_unended(path: Path) -> None:
    """Removes a last line that does not end: that of a process that ended while it wrote. The others stay."""
    try:
        content = path.read_bytes() if path.exists() else b""
        if content and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read or mended: {error.strerror or error}") from None


def _check_lines(path: Path) -> None:
    """ModelFileError for a file that has a line that is no JSON list, naming the first."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path} is no database of tilings: {error.reason} at byte {error.start}") from None
    for number, line in enumerate(lines, 1):
        try:
            fits = isinstance(json.loads(line), list)
        except (ValueError, RecursionError):
            fits = False
        if not fits:
            raise ModelFileError(
                f"{path}:{number} is no line of a database of tilings; it was changed: remove "
                f"{WORKLOADS} and {RECORDS} of that folder"
            )
