"""The executor that options name, for as long as it is needed."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from mrt.errors import ClusterError, ConfigError
from mrt.execution.executor import Executor
from mrt.execution.options import ClusterConfig
from mrt.execution.threads import THREADS
from mrt.messages import short

ANSWER = 30.0
"""Seconds in which a scheduler must answer."""
CLOSING = 3.0
"""Seconds that workers of this machine have to end by themselves."""
ONE_CORE = {"TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0", "OPENBLAS_NUM_THREADS": "1"}
"""Each worker is one thread, wherever the system puts it: TVM would start as many as there are cores, and pin them."""
OF_WORKERS = {
    # Memory that is freed would go back to the system at once, and be asked for again by the next sample.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
    # A profile of what each worker does, which nobody looks at.
    "distributed.worker.profile.enabled": False,
    # A worker that was killed starts again, which takes a busy machine longer than the 15 seconds after which Dask
    # would end what starts it, and have no worker in its place.
    "distributed.deploy.lost-worker-timeout": "365 d",
}
"""What Dask's own settings are while there are workers of this machine."""
HERE, ANY_PORT = "127.0.0.1", "127.0.0.1:0"
"""What is started on this machine listens there alone."""


@contextmanager
def opened(config: ClusterConfig | None) -> Iterator[Executor]:
    """This process's threads, or a cluster, which is left at the end; processes that were started for it are ended.

    Raises ClusterError where Dask is not installed, the scheduler does not answer, or its workers do not fit.
    """
    if config is None:
        yield THREADS
        return
    try:
        from mrt.execution.cluster import Cluster
    except ImportError as error:
        raise ClusterError(f"a cluster needs Dask ({error}); install it: pip install 'mrt-quantizer[dask]'") from error
    with _quiet():
        if config.address is None:
            with _workers_here(config.processes or 1) as (client, end):
                yield Cluster(client, config.patience, end)
        else:
            with _connected(config.address) as client:
                yield Cluster(client, config.patience)


def executor_of(given: object) -> Executor:
    """The executor that an option says: itself, a Dask client, or None for this process's threads.

    ConfigError for anything else, ClusterError as `opened`.
    """
    if given is None:
        return THREADS
    if callable(getattr(given, "in_order", None)) and callable(getattr(given, "gathered", None)):
        return cast("Executor", given)
    if any(kind.__module__.partition(".")[0] == "distributed" for kind in type(given).__mro__):
        from distributed import Client

        from mrt.execution.cluster import Cluster

        if isinstance(given, Client):
            return Cluster(given)
    raise ConfigError(f"executor is {short(given)}; a distributed.Client of Dask, or None, is needed")


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client of the scheduler there."""
    from distributed import Client

    try:
        _check_certificates(address)
        client = Client(address, timeout=ANSWER, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"the scheduler {address} does not answer ({type(error).__name__}: {error}); start it, or see that address "
            f"and certificates are those that it has"
        ) from error
    with client:
        yield client


def _check_certificates(address: str) -> None:
    """ClusterError where an address needs certificates and none are named; a client would fail, and never close.

    Raises OSError where those that are named cannot be read.
    """
    from distributed.security import Security

    if address.startswith(("tls://", "wss://")) and Security().get_connection_args("client")["ssl_context"] is None:
        raise ClusterError(
            f"the scheduler {address} is reached by TLS, and Dask's configuration names no certificates here; set its "
            f"distributed.comm.tls.ca-file, client.cert and client.key, as docs/cluster.md shows"
        )


@contextmanager
def _workers_here(processes: int) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """A client of worker processes on this machine, and what ends one of them by its address."""
    from distributed import Client

    with _local_cluster(processes) as cluster:

        def end(address: str) -> None:
            for nanny in cluster.workers.values():
                if nanny.worker_address == address:
                    _kill(nanny)

        with Client(cluster, set_as_default=False) as client:
            try:
                yield client, end
            finally:
                # They hold nothing that is needed any more, and may be in the middle of something long.
                for nanny in cluster.workers.values():
                    nanny.close_gracefully()  # so that it starts no other process
                    _kill(nanny)


@contextmanager
def _local_cluster(processes: int) -> Iterator[Any]:
    """A Dask cluster of worker processes, each with what starts it again if it is killed.

    They trust this run alone: their certificates are made for it.
    """
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    with dask.config.set(OF_WORKERS):
        cluster = LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            processes=True,
            host=HERE,
            protocol="tls://",
            security=Security.temporary(),
            dashboard_address=ANY_PORT,
            worker_dashboard_address=ANY_PORT,
            silence_logs=logging.CRITICAL,
            env=ONE_CORE,
        )
        try:
            yield cluster
        finally:
            with suppress(TimeoutError):
                cluster.close(timeout=CLOSING)


def _kill(nanny: Any) -> None:
    """Ends the process that a nanny looks after; one that still starts goes with the nanny."""
    if nanny.pid is not None:
        with suppress(ProcessLookupError):
            os.kill(nanny.pid, signal.SIGKILL)


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own messages are left out: what matters of them is raised."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
