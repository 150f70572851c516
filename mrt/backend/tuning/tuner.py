"""Measures tilings on the device that code is for, and chooses the fastest of each function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrt.backend.machine import Machine
from mrt.backend.schedule.tilings import Scheduler
from mrt.backend.tuning.database import Database
from mrt.backend.tuning.metaschedule import run_searches
from mrt.backend.tuning.search import Search, TunableCollector, gained
from mrt.errors import ModelFileError
from mrt.progress import Reporter
from mrt.runtime import THIS_DEVICE, THIS_MACHINE, Device, Linker


@dataclass(frozen=True)
class Tuner:
    """folder: of the database. trials: how many tilings of a function are measured; with 0 the database must be there.

    report: is told what is measured and what was gained. device: where tilings are timed. linker: of code for it.
    """

    folder: Path
    trials: int
    report: Reporter
    device: Device = THIS_DEVICE
    linker: Linker = THIS_MACHINE

    def scheduler(self, lower: Callable[[Scheduler], Any], machine: Machine) -> Scheduler:
        """What chooses the fastest tilings that are known, once those of all functions that `lower` makes are measured.

        Raises ModelFileError for a database that is missing or broken, or cannot be written, and as the device does.
        """
        if not self.trials:
            if not self.folder.is_dir():
                raise ModelFileError(f"{self.folder} holds no database of tilings; tune first")
            return Database(self.folder, machine)
        collector = TunableCollector()
        lower(collector)
        database = Database(self.folder, machine)
        searches = [Search(tunable, database, self.trials) for tunable in collector.found]
        total = sum(search.left for search in searches)
        if total:
            with self.device.clock(self.linker) as clock, self.report.progress("tune", total, "tilings") as progress:
                try:
                    run_searches(searches, machine, clock, progress)
                except RuntimeError as error:  # what its callbacks raise comes through TVM as this
                    raise database.failure or error from None
        self.report.line(f"tune: {total} tilings measured; {gained([search.result() for search in searches])}")
        return database
