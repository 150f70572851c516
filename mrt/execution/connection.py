"""A Dask client, with errors that say what to do and workers that are given up when they hang."""

from __future__ import annotations

import contextlib
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from typing import Any

from distributed import Client, Future, Scheduler
from distributed import wait as wait_for
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker, NoValidWorkerError

from mrt.errors import ClusterError

GIVEN_UP = 3
"""Workers that one part may cost before it is taken to be the part's fault."""
ANSWER = 30.0
"""Seconds in which a scheduler must answer, and a worker must have come."""

_LOST = (CancelledError, FutureCancelledError, CommClosedError, NoValidWorkerError, OSError, TimeoutError)
"""What Dask raises where the scheduler or the workers do not answer."""


class Connection:
    """What a cluster is asked. patience: seconds after which a worker that does not finish a part is given up."""

    def __init__(self, client: Client, patience: float) -> None:
        self._client, self._patience = client, patience

    @property
    def width(self) -> int:
        """The threads of all workers, at least 1."""
        with self.guarded():
            return max(sum(self._client.nthreads().values()), 1)

    def on_all_workers(self, function: Callable[..., None], *args: Any) -> None:
        """Calls a function on each worker, of which one must be there; raises what it raises."""
        with self.guarded():
            self._client.wait_for_workers(1, timeout=ANSWER)
            self._client.run(function, *args)

    def submit(self, function: Callable[..., Any], *args: Any, priority: int = 0) -> Future:
        """The result of a function that will be called on a worker; futures among `args` are given as their results."""
        with self.guarded(), warnings.catch_warnings():
            # Networks are large, and go once.
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            return self._client.submit(function, *args, pure=False, priority=priority)

    def wait(self, future: Future) -> None:
        """Waits for work to be done. The worker of a part that takes too long is given up, others do its work."""
        with self.guarded(), self._client.as_current():
            for _ in range(GIVEN_UP):
                try:
                    wait_for([future], timeout=self._patience)
                    return
                except TimeoutError:
                    self._give_up_workers_of(future)
        raise ClusterError(
            f"a part of the work was not done in {self._patience:g} s by any of {GIVEN_UP} workers; allow more by "
            f"cluster.patience, or make parts smaller by calibrate.batch_size"
        )

    def result(self, future: Future) -> Any:
        """What was found; raises what the work raised."""
        self.wait(future)
        with self.guarded():
            return future.result()

    def cancel(self, futures: list[Future]) -> None:
        """Nothing more is done for these, whatever becomes of the connection."""
        with contextlib.suppress(*_LOST):
            self._client.cancel(futures, force=True)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """ClusterError where the scheduler does not answer, or workers are lost one after the other."""
        try:
            yield
        except KilledWorker as error:
            raise ClusterError(
                f"a part of the work ended {GIVEN_UP} workers, the last {error.last_worker.address}; their logs say "
                f"why, and too little memory is the usual reason"
            ) from error
        except _LOST as error:
            address = self._client.scheduler.address if self._client.scheduler is not None else "the scheduler"
            raise ClusterError(
                f"{address} or all of its workers are lost ({type(error).__name__}); start them and run the same once "
                f"more: what is finished is kept"
            ) from error

    def _give_up_workers_of(self, future: Future) -> None:
        for name, keys in self._client.processing().items():
            if future.key in keys:
                self._client.run_on_scheduler(_remove_worker, name=name)


async def _remove_worker(dask_scheduler: Scheduler, name: str) -> None:
    await dask_scheduler.remove_worker(name, stimulus_id="MRT gives up a worker that hangs", close=True, expected=False)
