"""Executors: this process's threads, and workers in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mrt.execution import THREADS, Executor
from mrt.execution.opened import opened
from mrt.execution.options import ClusterConfig


@pytest.fixture(scope="session")
def workers() -> Iterator[Executor]:
    """Two processes, by TLS on 127.0.0.1."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    with opened(ClusterConfig(processes=2, patience=60)) as executor:
        yield executor


@pytest.fixture(params=["threads", "workers"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return THREADS if request.param == "threads" else request.getfixturevalue("workers")
