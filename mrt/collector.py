"""Memory: the collector of cyclic garbage, paused where much is made, and what C keeps of what was freed."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
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


_RELEASES: list[Callable[[], object]] = []


def also_give_back(release: Callable[[], object]) -> None:
    """From here on `give_back_freed` calls this, too. release: lets go of memory that a library keeps for later."""
    _RELEASES.append(release)


def give_back_freed() -> None:
    """Memory that was freed goes back to the system, where C's library can do that (glibc).

    It keeps the gaps between small things that stay, of any size: after all weights of a large network were rounded one
    by one these are several times the weights.
    """
    for release in _RELEASES:
        release()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
