"""What the tests of damaged and hostile files share: limits of time and memory, and the outcomes that are allowed."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mrt.errors import MRTError


@contextmanager
def bounded(megabytes: int = 64) -> Iterator[None]:
    """Fails where the block hangs or takes much memory."""
    tracemalloc.start()
    start = time.monotonic()
    try:
        yield
        assert time.monotonic() - start < 60  # a hang, on any machine
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
    finally:
        tracemalloc.stop()


def outcome(read: Callable[[], object]) -> None:
    """Reads, or refuses with an MRTError of one line; anything else comes through."""
    try:
        read()
    except MRTError as error:
        assert str(error)
        assert "\n" not in str(error)
