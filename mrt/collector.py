"""The collector of cyclic garbage, paused where much is made of which little is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Python collects no cyclic garbage meanwhile, in any thread; reference counts free memory as ever.

    A collection goes through all objects that there are, and comes due with a number of new ones, such as a graph's and
    those that JSON is read to, which stay.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
