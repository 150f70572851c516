"""What a run tells while it works: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

STEPS = 10
"""How many lines tell of a task's progress where there is no terminal."""


def silent() -> Reporter:
    """One that writes nothing."""
    return Reporter(Console(quiet=True))


class Reporter:
    """Writes to a console."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()

    def line(self, text: str) -> None:
        """One line, as it is."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def table(self, table: Table) -> None:
        self._console.print(table)

    @contextmanager
    def progress(self, task: str, total: int, unit: str = "samples") -> Iterator[Callable[[int], None]]:
        """Gives a function to be told how many of `total` samples, or whatever else is counted, are done."""
        if not self._console.is_terminal:
            yield self._plain(task, total, unit)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as bar:
            handle = bar.add_task(task, total=total)
            yield lambda done: bar.update(handle, completed=done)

    def _plain(self, task: str, total: int, unit: str) -> Callable[[int], None]:
        told = 0

        def tell(done: int) -> None:
            nonlocal told
            step = done * STEPS // total
            if step > told:
                told = step
                self.line(f"{task}: {done} of {total} {unit}")

        return tell
