"""A Dask client, with errors that say what to do and workers that are given up when they hang."""

from __future__ import annotations

import contextlib
import time
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from typing import Any

from distributed import Client, Future, Scheduler
from distributed import wait as wait_for
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker, NoValidWorkerError

from mrt.errors import ClusterError, MRTError
from mrt.version import __version__

GIVEN_UP = 3
"""Workers that one part may cost before it is taken to be the part's fault."""
ANSWER = 30.0
"""Seconds in which a scheduler must answer, and a worker must have come."""

_LOST = (CancelledError, FutureCancelledError, CommClosedError, NoValidWorkerError, OSError, TimeoutError)
"""What Dask raises where the scheduler or the workers do not answer."""


class Connection:
    """What a cluster is asked.

    patience: seconds after which a worker that does not finish a part is given up. end: ends the process of a worker,
    by its address, where that can be done from here.
    """

    def __init__(self, client: Client, patience: float, end: Callable[[str], None]) -> None:
        self._client, self._patience, self._end = client, patience, end

    @property
    def width(self) -> int:
        """The threads of all workers, at least 1."""
        return max(len(self.workers), 1)

    @property
    def workers(self) -> list[str]:
        """The addresses of the workers, each for every thread that it has."""
        with self.guarded():
            threads: dict[str, int] = self._client.nthreads()
        return [address for address, count in threads.items() for _ in range(count)]

    def on_all_workers(self, function: Callable[..., None], *args: Any) -> None:
        """Calls a function on each worker, of which one must be there; raises what it raises."""
        with self.guarded():
            self._client.wait_for_workers(1, timeout=ANSWER)
            try:
                self._client.run(function, *args)
            except (MRTError, *_LOST):
                raise
            except Exception as error:  # whatever other packages make of what they are sent
                raise ClusterError(
                    f"a worker cannot do the work of MRT {__version__} ({type(error).__name__}: {error}); install the "
                    f"same packages where the scheduler and the workers run"
                ) from error

    def submit(self, function: Callable[..., Any], *args: Any, priority: int = 0, place: str | None = None) -> Future:
        """The result of a function that will be called on a worker; futures among `args` are given as their results.

        place: the address of the worker that is to do it, unless another comes to it sooner.
        """
        with self.guarded(), warnings.catch_warnings():
            # Networks are large, and go once.
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            try:
                where: dict[str, Any] = {} if place is None else {"workers": [place], "allow_other_workers": True}
                return self._client.submit(function, *args, pure=False, priority=priority, **where)
            except TypeError as error:
                raise _said_in_pickling(error) from error

    def wait(self, future: Future) -> None:
        """Waits for work to be done. Workers that hang are given up, and others do what they had to do."""
        with self.guarded(), self._client.as_current():
            self._patiently(lambda: wait_for([future], timeout=self._patience), future)

    def result(self, future: Future) -> Any:
        """What was found; raises what the work raised."""
        self.wait(future)
        with self.guarded():
            failure = future.exception() if future.status == "error" else None
            if failure is None:
                return self._patiently(lambda: future.result(timeout=self._patience), future)
        if isinstance(failure, KilledWorker):
            raise ClusterError(
                f"a part of the work ended {failure.allowed_failures + 1} workers, the last "
                f"{failure.last_worker.address}; their logs say why, and too little memory is the usual reason"
            ) from failure
        raise failure

    def cancel(self, futures: list[Future]) -> None:
        """Nothing more is done for these, whatever becomes of the connection."""
        with contextlib.suppress(*_LOST):
            self._client.cancel(futures, force=True)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """ClusterError where the scheduler or all workers do not answer."""
        try:
            yield
        except _LOST as error:
            address = self._client.scheduler.address if self._client.scheduler is not None else "the scheduler"
            raise ClusterError(
                f"{address} or all of its workers are lost ({type(error).__name__}); start them and run the same once "
                f"more: what is finished is kept"
            ) from error

    def _patiently(self, ask: Callable[[], Any], future: Future) -> Any:
        """What is given by `ask`, which raises TimeoutError where it takes too long: then workers are given up."""
        for _ in range(GIVEN_UP):
            try:
                return ask()
            except TimeoutError:
                silence = self._patience / 2
                for name in self._client.run_on_scheduler(_hanging, key=future.key, silence=silence):
                    self._end(name)
                    self._client.run_on_scheduler(_remove, name=name)
        if not self.workers:
            raise ClusterError(
                f"all workers are gone, and none has come in {GIVEN_UP * self._patience:g} s; start some and run the "
                f"same once more: what is finished is kept"
            )
        raise ClusterError(
            f"a part of the work was not done in {self._patience:g} s by any of {GIVEN_UP} workers; allow more by "
            f"cluster.patience, or make parts smaller by calibrate.batch_size"
        )


def _said_in_pickling(error: BaseException) -> BaseException:
    """What was raised while work was packed to be sent, such as for a file that is gone; Dask hides it in another."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, MRTError):
        cause = cause.__cause__ or cause.__context__
    return cause or error


def _hanging(dask_scheduler: Scheduler, key: str, silence: float) -> list[str]:
    """The workers that were not heard of for so many seconds; if there are none, who works on the key or holds it."""
    known = dask_scheduler.workers.values()
    names = [worker.address for worker in known if time.time() - worker.last_seen > silence]
    task = dask_scheduler.tasks.get(key)
    if task is None or names:
        return names
    held = [task.processing_on] if task.processing_on is not None else task.who_has or ()
    return [worker.address for worker in held]


async def _remove(dask_scheduler: Scheduler, name: str) -> None:
    await dask_scheduler.remove_worker(name, stimulus_id="given up by MRT", close=True, expected=False)
