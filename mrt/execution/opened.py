"""The executor that options name, for as long as it is needed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mrt.errors import ClusterError
from mrt.execution.executor import Executor
from mrt.execution.options import ClusterConfig
from mrt.execution.threads import THREADS

ANSWER = 30.0
"""Seconds in which a scheduler must answer."""
CLOSING = 3.0
"""Seconds that workers of this machine have to end by themselves."""
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
    with _quiet(), _client(config) as client:
        yield Cluster(client, config.patience)


@contextmanager
def _client(config: ClusterConfig) -> Iterator[Any]:
    from distributed import Client

    if config.address is None:
        with _workers_here(config.processes or 1) as cluster, Client(cluster, set_as_default=False) as client:
            yield client
        return
    try:
        client = Client(config.address, timeout=ANSWER, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"the scheduler {config.address} does not answer ({type(error).__name__}: {error}); start it, or see that "
            f"address and certificates are those that it has"
        ) from error
    with client:
        yield client


@contextmanager
def _workers_here(processes: int) -> Iterator[Any]:
    """Worker processes on this machine. They trust this run alone: their certificates are made for it."""
    from distributed import LocalCluster
    from distributed.security import Security

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
    )
    try:
        yield cluster
    finally:
        cluster.close(timeout=CLOSING)


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
