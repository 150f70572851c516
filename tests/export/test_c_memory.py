"""The workspace's plan: tensors that are needed at the same time do not meet, and it is no larger than it must."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mrt.export.c.memory import ALIGNMENT, Lifetime, plan_offsets

LIFETIMES = st.builds(
    lambda size, first, length: Lifetime(size, first, first + length),
    st.integers(1, 40),
    st.integers(0, 12),
    st.integers(0, 12),
)


def aligned(size: int) -> int:
    return size + -size % ALIGNMENT


@given(st.lists(LIFETIMES, max_size=24))
def test_what_is_needed_at_once_lies_apart(tensors: list[Lifetime]) -> None:
    offsets, total = plan_offsets(tensors)
    assert len(offsets) == len(tensors) and all(offset % ALIGNMENT == 0 for offset in offsets)
    for step in range(25):
        live = sorted((at, at + t.size) for at, t in zip(offsets, tensors, strict=True) if t.first <= step <= t.last)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(live))
    peak = max((sum(aligned(t.size) for t in tensors if t.first <= s <= t.last) for s in range(25)), default=0)
    assert peak <= total <= sum(aligned(t.size) for t in tensors)
    assert total == max((at + aligned(t.size) for at, t in zip(offsets, tensors, strict=True)), default=0)


@given(st.lists(st.integers(1, 200), min_size=2, max_size=30))
def test_a_chain_needs_its_two_largest_neighbours(sizes: list[int]) -> None:
    tensors = [Lifetime(size, step, step + 1) for step, size in enumerate(sizes)]
    assert plan_offsets(tensors)[1] == max(aligned(a) + aligned(b) for a, b in itertools.pairwise(sizes))


def test_small_tensors_fill_gaps() -> None:
    """One that is kept all the time, and others that come and go around it."""
    tensors = [Lifetime(64, 0, 1), Lifetime(40, 0, 9), Lifetime(64, 3, 4), Lifetime(8, 3, 4), Lifetime(60, 6, 7)]
    assert plan_offsets(tensors)[1] == 112
