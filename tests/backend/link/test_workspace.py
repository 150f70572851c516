"""Planning memory: tensors that are needed at the same time do not overlap, and none of it is wasted."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from mrt.backend.link.workspace import Lifetime, plan_memory
from mrt.backend.memory.alignment import ALIGNMENT


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetime:
    first = draw(st.integers(0, 20))
    return Lifetime(draw(st.integers(0, 1000)), first, first + draw(st.integers(0, 6)))


@given(st.lists(lifetimes(), max_size=12))
def test_no_two_tensors_share_a_byte_at_one_time(tensors: list[Lifetime]) -> None:
    offsets, size = plan_memory(tensors)
    spans = [(offset, offset + tensor.size) for tensor, offset in zip(tensors, offsets, strict=True)]
    for (a, (begin_a, end_a)), (b, (begin_b, end_b)) in combinations(zip(tensors, spans, strict=True), 2):
        if a.size and b.size and a.first <= b.last and b.first <= a.last:
            assert end_a <= begin_b or end_b <= begin_a
    assert all(end <= size for _, end in spans)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)


def test_tensors_one_after_the_other_share_memory() -> None:
    """A chain of equal tensors, of which each is made of the one before, needs two of them."""
    chain = [Lifetime(1 << 16, step, step + 1) for step in range(100)]
    assert plan_memory(chain)[1] == 2 << 16


def test_a_small_tensor_fills_a_gap() -> None:
    first, last, long, small = Lifetime(640, 0, 1), Lifetime(640, 4, 5), Lifetime(64, 0, 5), Lifetime(500, 2, 3)
    assert plan_memory([first, last, long, small])[1] == 640 + 64


def test_nothing_needs_nothing() -> None:
    assert plan_memory([]) == ([], 0)
