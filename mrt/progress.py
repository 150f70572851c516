"""What a run tells while it works: progress bars on a terminal and in notebooks, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Event, Thread
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from mrt.errors import ConfigError
from mrt.messages import short

STEPS, APART = 10, 1.0
"""How many lines tell of a task at most where there is no terminal, and how many seconds are between them."""
QUIET = 10.0
"""Seconds without a line after which one says that work goes on, where there is no terminal."""
Tell = Callable[[int], None]
"""What is told how many of something are done."""
ProgressOption = Callable[[int], None] | bool | None
"""How a caller wants to know of progress: by bars where they can be seen (True), by a function of the number of
samples calibrated, or not at all."""


def silent() -> Reporter:
    """One that writes nothing."""
    return Reporter(Console(quiet=True))


@dataclass
class _Task:
    """Something that is being done, and how much of it is. total: 0 where it is not known."""

    name: str
    total: int = 0
    unit: str = ""
    done: int = 0

    def __str__(self) -> str:
        return f"{self.name}: {self.done} of {self.total} {self.unit}" if self.total else self.name


class _Count(MofNCompleteColumn):
    """How many are done; nothing of what is not counted."""

    def render(self, task: Task) -> Text:
        return Text("") if task.total is None and not task.completed else super().render(task)


class Reporter:
    """Writes to a console: on a terminal a bar for each thing that is being done, elsewhere lines."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._drawing: Progress | None = None
        self._doing: list[_Task] = []
        self._written = time.monotonic()

    def line(self, text: str) -> None:
        """One line, as it is."""
        self._written = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def table(self, table: Table) -> None:
        self._written = time.monotonic()
        self._console.print(table)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """To be entered while a step of this name is done: it is seen to be at work, though it may tell nothing."""
        if self._console.quiet:
            yield
        elif self._console.is_terminal:
            with self._drawn(name, 0):
                yield
        else:
            with self._alive(name):
                yield

    @contextmanager
    def progress(self, task: str, total: int, unit: str = "samples") -> Iterator[Tell]:
        """Gives a function to be told how many of `total` samples, or whatever else is counted, are done; a total of 0
        is not known."""
        if self._console.is_terminal:
            with self._drawn(task, total) as tell:
                yield tell
            return
        doing = _Task(task, total, unit)
        self._doing.append(doing)
        try:
            yield self._plain(doing)
        finally:
            self._doing.remove(doing)

    @contextmanager
    def _drawn(self, task: str, total: int) -> Iterator[Tell]:
        """A bar, below those of what it is a part of."""
        with ExitStack() as ended:
            is_part = self._drawing is not None
            if self._drawing is None:
                columns = (TextColumn("{task.description}"), BarColumn(), _Count(), TimeElapsedColumn())
                ended.callback(setattr, self, "_drawing", None)
                self._drawing = ended.enter_context(Progress(*columns, console=self._console, transient=True))
            bars = self._drawing
            handle = bars.add_task(task, total=total or None)
            if is_part:
                ended.callback(bars.remove_task, handle)
            yield lambda done: bars.update(handle, completed=done)

    def _plain(self, doing: _Task) -> Tell:
        told, last = 0, -APART

        def tell(done: int) -> None:
            nonlocal told, last
            doing.done, now = done, time.monotonic()
            step = done * STEPS // doing.total if doing.total else 0
            if step > told and (now >= last + APART or done >= doing.total):
                told, last = step, now
                self.line(str(doing))

        return tell

    @contextmanager
    def _alive(self, name: str) -> Iterator[None]:
        """Writes a line whenever there was none for a while: how long the step takes so far, and what it is at."""
        ended, started = Event(), time.monotonic()

        def watch() -> None:
            while not ended.wait(max(self._written + QUIET - time.monotonic(), QUIET / 10)):
                if time.monotonic() >= self._written + QUIET:
                    at = f", {self._doing[-1]}" if self._doing else ""
                    self.line(f"{name}: {time.monotonic() - started:.0f} s so far{at}")

        self._written = started
        watching = Thread(target=watch, name="mrt progress", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()


class Told(Reporter):
    """Tells a function how many samples one task has done, and nobody of anything else."""

    def __init__(self, told: Tell, task: str) -> None:
        super().__init__(Console(quiet=True))
        self._told, self._task = told, task

    @contextmanager
    def progress(self, task: str, total: int, unit: str = "samples") -> Iterator[Tell]:
        yield self._told if task == self._task else lambda done: None


class Bars(Reporter):
    """One bar for each step, which stays once the step is done; lines and tables are left out."""

    def __init__(self, bars: Progress) -> None:
        super().__init__(Console(quiet=True))
        self._bars = bars
        self._step: TaskID | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        above, self._step = self._step, self._bars.add_task(name, total=None)
        try:
            yield
            total = self._bars.tasks[self._step].total or 1
            self._bars.update(self._step, description=name, total=total, completed=total)
            self._bars.stop_task(self._step)
        finally:
            self._step = above

    @contextmanager
    def progress(self, task: str, total: int, unit: str = "samples") -> Iterator[Tell]:
        handle = self._bars.add_task(task, total=total or None) if self._step is None else self._step
        name = self._bars.tasks[handle].description
        self._bars.update(handle, description=name if task in name else f"{name}: {task}", total=total or None)
        yield lambda done: self._bars.update(handle, completed=done)
        self._bars.update(handle, description=name)


class OneLine(Reporter):
    """The step and what is done of it in one line, which is written over: for notebooks without ipywidgets."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(Console(quiet=True))
        self._file, self._width = file, 0

    def _show(self, text: str) -> None:
        self._file.write("\r" + text.ljust(self._width))
        self._file.flush()
        self._width = len(text)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._show(f"{name} …")
        yield

    @contextmanager
    def progress(self, task: str, total: int, unit: str = "samples") -> Iterator[Tell]:
        told = -1

        def tell(done: int) -> None:
            nonlocal told
            share = done * 100 // total if total else done
            if share != told:
                told = share
                self._show(f"{task}: {done}{f' of {total}' if total else ''} {unit}")

        yield tell

    def close(self) -> None:
        self._show("")
        self._file.write("\r")


def rich_draws_in_notebooks() -> bool:
    """Whether there are the widgets that rich draws bars with there."""
    return find_spec("ipywidgets") is not None


@contextmanager
def reporting(progress: ProgressOption, task: str) -> Iterator[Reporter]:
    """The reporter of a call from Python. task: whose samples a function is told of.

    Bars are written to the terminal that standard error is, or into the cell of a notebook; elsewhere nothing is.
    Raises ConfigError for what says no way to know of progress.
    """
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise ConfigError(
            f"progress is {short(progress)}; True for bars, None for silence, or a function of the number of samples "
            f"is needed"
        )
    console = Console(stderr=True)
    if not isinstance(progress, bool) and progress is not None:
        yield Told(progress, task)
    elif not progress or not (console.is_terminal or console.is_jupyter):
        yield silent()
    elif console.is_jupyter and not rich_draws_in_notebooks():
        line = OneLine(sys.stdout)
        try:
            yield line
        finally:
            line.close()
    else:
        columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), BarColumn())
        with Progress(*columns, _Count(), TimeElapsedColumn(), console=console) as bars:
            yield Bars(bars)
