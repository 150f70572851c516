"""Work on several cores at once, by threads: NumPy and TVM let go of the interpreter while they compute."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(function: Callable[[Item], Result], items: Iterable[Item], most: int | None = None) -> Iterator[Result]:
    """What `function` gives for each item, in the order of the items, some of which are worked on at once.

    most: how many at once, if fewer than there are cores; where it is one no thread is started. Items are drawn by the
    caller's thread as they are needed, so that no more than one waits to be begun. What `function` or `items` raise is
    raised in the place of its result, as by `map`.
    """
    count = max(min(cores(), cores() if most is None else most), 1)
    if count == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(count)
    begun: deque[Future[Result]] = deque()
    try:
        for future in _submitted(pool, function, items):
            begun.append(future)
            if len(begun) > count:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Future[Result]]:
    """A future for each item, which is drawn lazily; where drawing fails, the last future raises that error."""
    try:
        for item in items:
            yield pool.submit(function, item)
    except Exception as error:  # whatever it is, the results before it come first
        failed: Future[Result] = Future()
        failed.set_exception(error)
        yield failed


DEEP_STACK = 2**29
"""Bytes of address space, of which only what is used takes memory."""


def on_deep_stack(work: Callable[[], Result]) -> Result:
    """What `work` gives or raises, in a thread with room for libraries that recurse as deep as their data are long."""
    pool, usual = ThreadPoolExecutor(1), threading.stack_size(DEEP_STACK)
    try:
        future = pool.submit(work)
    finally:
        threading.stack_size(usual)
    try:
        return future.result()
    finally:
        pool.shutdown(wait=False)  # whoever interrupts does not wait for the libraries
