"""Executors: this process's threads, and workers in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from mrt.execution import THREADS, Executor
from mrt.execution.opened import opened
from mrt.execution.options import ClusterConfig


@pytest.fixture(scope="session")
def workers() -> Iterator[Executor]:
    """Two processes, by TLS on 127.0.0.1; a part that ended two of them is given up, by a setting read at the start."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    dask = pytest.importorskip("dask", reason="Dask is not installed")
    with ExitStack() as stack:
        with dask.config.set({"distributed.scheduler.allowed-failures": 1}):
            executor = stack.enter_context(opened(ClusterConfig(processes=2, patience=60)))
        yield executor


@pytest.fixture(params=["threads", "workers"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return THREADS if request.param == "threads" else request.getfixturevalue("workers")
