"""Work on the workers of a Dask cluster: processes on this machine, or machines that a scheduler knows."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import cycle
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, Future, Worker, get_worker

from mrt.errors import ClusterError, MRTError
from mrt.execution.connection import Connection
from mrt.execution.environment import Environment, environment, refuse_other
from mrt.execution.executor import Gathers, Keeps, Part, Result, Total, Work

PATIENCE = 600.0
"""Seconds after which a worker that does not finish a part is given up."""
AHEAD = 2
"""Parts for each thread of the cluster that are handed out before the first of them is done."""
RUNS = 4
"""Runs of parts for each thread of the cluster, where what they show is added up: few, since each makes a total that
may be large, and more than one, since some workers are slower."""
LONGEST = 256
"""Parts in a run, at most: a worker has `patience` for each run, and what it did of one is lost with it."""
LONG_ENOUGH = 0.1
"""Seconds of a run of parts that each have a result: what a task costs Dask is little beside them."""
UNCOUNTED = 8
"""Parts in a run where it is not known how many there will be."""
LOST = ("cancelled", "lost")


class Cluster:
    """Does work on the workers of a Dask client, which it does not close.

    Dask begins again what was lost with a worker, from the parts on, so that results are those of threads all the same.
    Raises ClusterError where there is no worker, one would make other bits, or the scheduler is lost; and what the work
    raises, naming the worker.
    """

    def __init__(
        self, client: Client, patience: float = PATIENCE, end: Callable[[str], None] = lambda address: None
    ) -> None:
        """patience: seconds after which a worker that does not finish a part is given up. end: ends the process of a
        worker, by its address, where that can be done from here."""
        self._connection = Connection(client, patience, end)
        self._programs: WeakKeyDictionary[Any, Future] = WeakKeyDictionary()
        self._connection.on_all_workers(_check_environment, environment())

    @property
    def width(self) -> int:
        return self._connection.width

    def in_order(
        self, work: Work[Result], parts: Iterable[Part], programs: Sequence[Any] = (), most: int | None = None
    ) -> Iterator[Result]:
        with self._errand(work, programs, most) as errand:
            begun: deque[tuple[Sequence[Part], Future]] = deque()
            ahead, pace = AHEAD * self.width, _Pace()
            for run in pace.runs(parts):
                begun.append((run, errand.begin(_timed, *run)))
                if len(begun) >= ahead:
                    yield from pace.results(errand, *begun.popleft())
            while begun:
                yield from pace.results(errand, *begun.popleft())

    def gathered(
        self,
        begin: Callable[..., Gathers[Part, Total]],
        parts: Iterable[Part],
        programs: Sequence[Any] = (),
        most: int | None = None,
        done: Callable[[Part], None] | None = None,
    ) -> Total:
        with self._errand(begin, programs, most) as errand:
            totals = _Totals(errand)
            begun: deque[tuple[Sequence[Part], Future]] = deque()
            ahead = AHEAD * self.width

            def finish_first() -> None:
                run, future = begun.popleft()
                errand.wait(future)
                if done is not None:
                    for part in run:
                        done(part)

            for run in _runs(parts, self.width):
                place = errand.next_place()
                begun.append((run, errand.begin(_gathered, *run, place=place)))
                totals.add(begun[-1][1], place)
                if len(begun) >= ahead:
                    finish_first()
            while begun:
                finish_first()
            found: Total = errand.taken(totals.whole())
            return found

    def kept(
        self, work: Work[Keeps], parts: Iterable[Part], programs: Sequence[Any] = (), most: int | None = None
    ) -> list[Future]:
        with self._errand(work, programs, most) as errand:
            results: list[Future] = []
            ahead = AHEAD * self.width
            for part in parts:
                results.append(errand.begin(_kept, part))
                if len(results) >= ahead:
                    errand.wait(results[-ahead])
            for future in results:
                errand.wait(future)
            errand.keep(results)
            return results

    @contextmanager
    def _errand(self, work: Any, programs: Sequence[Any], most: int | None) -> Iterator[_Errand]:
        sent = [self._sent(program) for program in programs]
        order = self._connection.submit(_itself, _Order(work, environment(), most))
        errand = _Errand(self._connection, order, sent)
        try:
            yield errand
        finally:
            errand.end()

    def _sent(self, program: Any) -> Future:
        """The program on the cluster, where it goes once and stays as long as it is known here."""
        known = self._programs.get(program)
        if known is None or known.status in LOST:
            known = self._programs[program] = self._connection.submit(_itself, program)
        return known


class _Errand:
    """Work on the cluster for one call: nothing of it goes on after its end."""

    def __init__(self, connection: Connection, order: Future, programs: Sequence[Future]) -> None:
        self._connection, self._order, self._programs = connection, order, programs
        self._open: set[Future] = set()
        self._places = cycle(connection.workers)

    def next_place(self) -> str | None:
        """The address of the worker whose turn it is."""
        return next(self._places, None)

    def begin(self, function: Callable[..., Any], *parts: Any, place: str | None = None) -> Future:
        """What one of the functions below gives for parts: at a place, where these are, or on all workers in turn.

        Dask would have all of it done where the order is, and spread it as it finds that this takes long.
        """
        if place is None and not any(isinstance(part, Future) for part in parts):
            place = self.next_place()
        return self._begun(function, self._order, len(self._programs), *self._programs, *parts, place=place)

    def merge(self, first: Future, second: Future) -> Future:
        """The total of two."""
        return self._begun(_merged, first, second, priority=1)

    def wait(self, future: Future) -> None:
        """Waits for work to be done; raises what it raised."""
        self._connection.wait(future)
        if future.status == "error":
            self._connection.result(future)

    def taken(self, future: Future) -> Any:
        """What was found, which is not needed there any more."""
        found = self._connection.result(future)
        self._open.discard(future)
        return found

    def keep(self, futures: Sequence[Future]) -> None:
        """These stay when the errand ends."""
        self._open.difference_update(futures)

    def end(self) -> None:
        """Cancels what is still to be done."""
        left = [future for future in self._open if not future.done()]
        self._open.clear()
        if left:
            self._connection.cancel(left)

    def _begun(self, function: Callable[..., Any], *args: Any, priority: int = 0, place: str | None = None) -> Future:
        future = self._connection.submit(function, *args, priority=priority, place=place)
        self._open.add(future)
        return future


class _Pace:
    """Puts parts that each have a result into runs, as many as take long enough by those that are done."""

    def __init__(self) -> None:
        self._length = 1

    def runs(self, parts: Iterable[Part]) -> Iterator[list[Part]]:
        """Parts that follow each other; one that stays on a worker goes there alone."""
        run: list[Part] = []
        for part in parts:
            run.append(part)
            if len(run) >= self._length or isinstance(part, Future):
                yield run
                run = []
        if run:
            yield run

    def results(self, errand: _Errand, run: Sequence[Part], future: Future) -> Iterator[Any]:
        """Those of a run. Where a part of it failed, those before it have theirs, too: the parts are done again."""
        try:
            seconds, found = errand.taken(future)
        except ClusterError:
            raise
        except Exception:  # whatever the work raises; done again, the part that raised it raises it in its place
            if len(run) == 1:
                raise
            for part in run:
                yield from errand.taken(errand.begin(_timed, part))[1]
            return
        fitting = int(LONG_ENOUGH * len(run) / max(seconds, 1e-6))
        self._length = max(1, min(fitting, 2 * len(run), LONGEST))
        yield from found


class _Totals:
    """Adds totals up as a tree, on the workers, as they come: those of one worker first, since they may be large."""

    def __init__(self, errand: _Errand) -> None:
        self._errand = errand
        self._stacks: dict[str | None, list[tuple[int, Future]]] = {}

    def add(self, total: Future, place: str | None) -> None:
        """place: the worker that finds it."""
        stack = self._stacks.setdefault(place, [])
        stack.append((0, total))
        while len(stack) > 1 and stack[-1][0] == stack[-2][0]:
            (level, second), (_, first) = stack.pop(), stack.pop()
            stack.append((level + 1, self._errand.merge(first, second)))

    def whole(self) -> Future:
        """The total of all; ValueError where there is none."""
        if not self._stacks:
            raise ValueError("there is no part to work on")
        left = [self._of_worker(stack) for stack in self._stacks.values()]
        while len(left) > 1:
            pairs = zip(left[::2], left[1::2], strict=False)
            left = [self._errand.merge(*pair) for pair in pairs] + (left[-1:] if len(left) % 2 else [])
        return left[0]

    def _of_worker(self, stack: list[tuple[int, Future]]) -> Future:
        _, whole = stack.pop()
        while stack:
            whole = self._errand.merge(stack.pop()[1], whole)
        return whole


def _runs(parts: Iterable[Part], width: int) -> Iterator[list[Part]]:
    """Parts that follow each other, to be gathered by one worker at a time."""
    length = min(-(-len(parts) // (RUNS * width)), LONGEST) if isinstance(parts, Sized) else UNCOUNTED
    run: list[Part] = []
    for part in parts:
        run.append(part)
        if len(run) == length:
            yield run
            run = []
    if run:
        yield run


class _Order:
    """What is to be done, as workers hold it: once for all of their threads."""

    def __init__(self, work: Callable[..., Any], needed: Environment, most: int | None) -> None:
        self._given = work, needed, most
        self.work, self._needed = work, needed
        self._limit = None if most is None else threading.BoundedSemaphore(max(most, 1))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Order, self._given

    @contextmanager
    def entered(self) -> Iterator[None]:
        """As many at once as are allowed, in processes whose bits are the same; errors name the worker."""
        name = get_worker().name
        refuse_other(self._needed, str(name))
        limit: AbstractContextManager[Any] = nullcontext() if self._limit is None else self._limit
        with limit:
            try:
                yield
            except MRTError as error:
                raise type(error)(f"{error} (on worker {name})") from error


def _itself(given: Any) -> Any:
    return given


def _done(order: _Order, count: int, *given: Any) -> Any:
    """given: so many programs, and a part."""
    with order.entered():
        return order.work(given[count], *given[:count])


def _timed(order: _Order, count: int, *given: Any) -> tuple[float, list[Any]]:
    """given: so many programs, and parts. Gives the seconds that they took, and the result of each."""
    started = time.perf_counter()
    with order.entered():
        found = [order.work(part, *given[:count]) for part in given[count:]]
    return time.perf_counter() - started, found


def _kept(order: _Order, count: int, *given: Any) -> Any:
    result, part = _done(order, count, *given), given[count]
    return replace(result, arrays={**{name: part.arrays[name] for name in result.carried}, **result.arrays})


def _gathered(order: _Order, count: int, *given: Any) -> Any:
    """given: so many programs, and parts."""
    with order.entered():
        gathers = order.work(*given[:count])
        for part in given[count:]:
            gathers.add(part)
        return gathers.total()


def _merged(first: Any, second: Any) -> Any:
    return first.merge(second)


def _check_environment(needed: Environment, dask_worker: Worker) -> None:
    refuse_other(needed, str(dask_worker.name))
