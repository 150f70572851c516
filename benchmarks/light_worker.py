"""Workers of Dask that cost next to nothing, so that a thousand of them leave the scheduler a core of its own.

Each has Dask's own state machine of a worker, an address, a stream to the scheduler and heartbeats. It lacks threads, a
monitor and pages: tasks are run by one event loop, and where one sleeps its result is told so much later. What workers
give each other is handed over as it is, after as long as a network would take.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from unittest.mock import patch

from distributed.batched import BatchedSend
from distributed.comm import Comm, connect, listen
from distributed.core import ConnectionPool, Status, error_message
from distributed.protocol import to_serialize
from distributed.sizeof import safe_sizeof
from distributed.versions import get_versions
from distributed.worker import run
from distributed.worker_state_machine import (
    AcquireReplicasEvent,
    BaseWorker,
    CancelComputeEvent,
    ComputeTaskEvent,
    ExecuteFailureEvent,
    ExecuteSuccessEvent,
    FindMissingEvent,
    FreeKeysEvent,
    GatherDepBusyEvent,
    GatherDepSuccessEvent,
    RefreshWhoHasEvent,
    RemoveReplicasEvent,
    RetryBusyWorkerEvent,
    StateMachineEvent,
    StealRequestEvent,
    WorkerState,
)

from mrt.execution import cluster

EVENTS = {
    "acquire-replicas": AcquireReplicasEvent,
    "cancel-compute": CancelComputeEvent,
    "compute-task": ComputeTaskEvent,
    "free-keys": FreeKeysEvent,
    "refresh-who-has": RefreshWhoHasEvent,
    "remove-replicas": RemoveReplicasEvent,
    "steal-request": StealRequestEvent,
}
"""What a scheduler tells a worker by its stream; it tells more, which needs no answer."""
COUNTS = ("executing", "memory", "ready", "waiting", "fetch", "flight", "missing", "long-running", "constrained")
TRANSFER = ("incoming_bytes", "incoming_count", "incoming_count_total", "outgoing_bytes", "outgoing_count")
FIRST_BEAT, FIND = 0.5, 1.0
"""Seconds after which a worker is first heard of again, and in which it looks for what is missing."""
AT_ONCE, CONNECTIONS = 50, 4096
"""How many others a worker gives something at once, as Dask's own; and how many connections a process keeps."""
LATENCY, BANDWIDTH = 1e-3, 1e9
"""Seconds until a worker is given something by another, and how many bytes it then gets in one, shared with those that
get something too: a network of 10 Gbit/s."""


class LightWorker(BaseWorker):
    """One worker. pool, peers: the connections, and the workers by address, of all that share the event loop."""

    def __init__(
        self, scheduler: str, host: str, name: str, pool: ConnectionPool, peers: dict[str, LightWorker]
    ) -> None:
        super().__init__(WorkerState(nthreads=1, validate=False, transfer_incoming_count_limit=AT_ONCE))
        self._giving = 0
        self.name, self._scheduler, self._host, self._pool, self._peers = name, scheduler, host, pool, peers
        self._stream = BatchedSend(interval="2ms")
        self._ongoing: list[asyncio.Task[None]] = []

    async def start(self, versions: Mapping[str, Any]) -> None:
        """Listens, and tells the scheduler; raises ValueError where that does not take it."""
        self._listener = await listen(f"tcp://{self._host}:0", self._serve)
        self.address = self.state.address = self._listener.contact_address
        self._peers[self.address] = self
        comm = await connect(self._scheduler)
        await comm.write({"op": "register-worker", "reply": False, **self._facts(versions)}, serializers=["msgpack"])
        answer = await comm.read(deserializers=["msgpack"])
        if answer["status"] != "OK":
            raise ValueError(str(answer))
        self._stream.start(comm)
        self._ongoing += [asyncio.create_task(each) for each in (self._obey(comm), self._beat(), self._find())]

    def _facts(self, versions: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "address": self.address,
            "status": Status.running.name,
            "nthreads": 1,
            "name": self.name,
            "now": time.time(),
            "resources": {},
            "memory_limit": 0,
            "local_directory": "",
            "services": {},
            "nanny": None,
            "pid": os.getpid(),
            "versions": versions,
            "metrics": self._metrics(),
            "extra": {},
            "stimulus_id": f"worker-connect-{time.time()}",
            "server_id": f"LightWorker-{self.name}",
        }

    def _metrics(self) -> dict[str, Any]:
        """What a worker tells of itself in a heartbeat; the figures that change nothing are constant."""
        return {
            "task_counts": {**dict.fromkeys(COUNTS, 0), "memory": len(self.state.data)},
            "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
            "digests_total_since_heartbeat": {},
            "managed_bytes": self.state.nbytes,
            "spilled_bytes": {"memory": 0, "disk": 0},
            "transfer": dict.fromkeys(TRANSFER, 0),
            "event_loop_interval": 0.02,
            "cpu": 100.0,
            "memory": 2**28 + self.state.nbytes,
            "time": time.time(),
            "host_net_io": {"read_bps": 0.0, "write_bps": 0.0},
            "num_fds": 32,
        }

    async def _beat(self) -> None:
        """Heartbeats, as often as the scheduler asks for them."""
        seconds = FIRST_BEAT
        while True:
            await asyncio.sleep(seconds)
            answer = await self._pool(self._scheduler).heartbeat_worker(
                address=self.address, now=time.time(), metrics=self._metrics(), executing={}, extensions={}
            )
            seconds = answer.get("heartbeat-interval", FIRST_BEAT)

    async def _obey(self, comm: Comm) -> None:
        """Does what the scheduler says, until it is gone."""
        with contextlib.suppress(OSError):
            while True:
                for message in await comm.read():
                    event = EVENTS.get(message.pop("op", ""))
                    if event is not None:
                        self.handle_stimulus(event(**message))

    async def _serve(self, comm: Comm) -> None:
        """Answers what the scheduler and the client ask besides."""
        with contextlib.suppress(OSError):
            while (message := await comm.read())["op"] != "close":
                if message["op"] == "get_data":
                    await self._give(comm, message["keys"])
                elif message["op"] == "run":
                    given = {key: message[key] for key in ("function", "args", "kwargs") if key in message}
                    await comm.write(await run(self, comm, **given))
                elif message.get("reply", True):
                    await comm.write({"status": "OK"})

    async def _give(self, comm: Comm, keys: Collection[Any]) -> None:
        """Gives what it holds of these keys."""
        held = {key: to_serialize(self.state.data[key]) for key in keys if key in self.state.data}
        await comm.write({"status": "OK", "data": held})
        await comm.read()

    async def _find(self) -> None:
        """Asks anew for what was not where the scheduler said."""
        while True:
            await asyncio.sleep(FIND)
            if self.state.missing_dep_flight:
                self.handle_stimulus(FindMissingEvent(stimulus_id=f"find-missing-{time.time()}"))

    def batched_send(self, msg: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._stream.send(msg)

    async def gather_dep(
        self, worker: str, to_gather: Collection[Any], total_nbytes: int, *, stimulus_id: str
    ) -> StateMachineEvent:
        told: dict[str, Any] = {"worker": worker, "total_nbytes": total_nbytes, "stimulus_id": stimulus_id}
        peer = self._peers[worker]
        if peer._giving >= AT_ONCE:
            await asyncio.sleep(LATENCY)
            return GatherDepBusyEvent(**told)
        peer._giving += 1
        try:
            await asyncio.sleep(LATENCY + total_nbytes * peer._giving / BANDWIDTH)
            held = {key: peer.state.data[key] for key in to_gather if key in peer.state.data}
        finally:
            peer._giving -= 1
        return GatherDepSuccessEvent(data=held, **told)

    async def execute(self, key: Any, *, stimulus_id: str) -> StateMachineEvent:
        task = self.state.tasks[key]
        started = time.time()
        told: dict[str, Any] = {"key": key, "run_id": task.run_id, "stimulus_id": stimulus_id, "start": started}
        try:
            with _asleep(self) as slept:
                value = task.run_spec({each.key: self.state.data[each.key] for each in task.dependencies})
        except Exception as error:  # whatever it is, the client is told
            failed = error_message(error)
            failed.pop("status", None)
            return ExecuteFailureEvent(stop=time.time(), **told, **failed)
        await asyncio.sleep(sum(slept))
        size = safe_sizeof(value)
        return ExecuteSuccessEvent(value=value, stop=time.time(), nbytes=size, type=type(value), **told)

    async def retry_busy_worker_later(self, worker: str) -> StateMachineEvent:
        await asyncio.sleep(0.15)
        return RetryBusyWorkerEvent(worker=worker, stimulus_id="retry")

    def digest_metric(self, name: Any, value: float) -> None:
        """Nothing is told of how long things took."""


@contextlib.contextmanager
def _asleep(worker: LightWorker) -> Iterator[list[float]]:
    """Within the block work sleeps no time, but finds that it did: filled with the seconds that it was to sleep for."""
    slept: list[float] = []
    clock = time.perf_counter
    with (
        patch.object(time, "sleep", slept.append),
        patch.object(time, "perf_counter", lambda: clock() + sum(slept)),
        patch.object(cluster, "get_worker", lambda: worker),
    ):
        yield slept


async def started(scheduler: str, host: str, names: Collection[str], at_once: int) -> list[LightWorker]:
    """Workers of these names, so many of them started at the same time."""
    pool = await ConnectionPool(limit=CONNECTIONS)
    peers: dict[str, LightWorker] = {}
    versions, workers = get_versions(), [LightWorker(scheduler, host, name, pool, peers) for name in names]
    for first in range(0, len(workers), at_once):
        await asyncio.gather(*(worker.start(versions) for worker in workers[first : first + at_once]))
    return workers
