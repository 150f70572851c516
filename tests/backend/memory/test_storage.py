"""How tensors lie in memory: laying a parameter down and reading it back by place, borders included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.backend.memory.storage import Storage, Walk
from mrt.symbol import TensorType


@st.composite
def storages(draw: st.DrawFn) -> Storage:
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank)))
    inner = draw(st.integers(0, rank - 1))
    offset = draw(st.sampled_from([0, 128]))
    storage = Storage.with_inner(TensorType(shape, "int8"), inner, shape[inner] + draw(st.integers(0, 5)))
    storage = replace(storage, dtype="uint8" if offset else "int8", offset=offset)
    if draw(st.booleans()):
        widths = st.lists(st.integers(0, 2), min_size=rank, max_size=rank)
        around = [[0 if axis == inner else n for axis, n in enumerate(draw(widths))] for _ in range(2)]
        storage = replace(storage, before=tuple(around[0]), after=tuple(around[1]), bordered=True)
    if draw(st.booleans()):
        begin = [draw(st.integers(0, n - 1)) for n in storage.type.shape]
        cut = tuple(draw(st.integers(1, n - first)) for n, first in zip(storage.type.shape, begin, strict=True))
        storage = storage.part(TensorType(cut, "int8"), begin)
    return storage


@given(storages(), st.integers(0, 2**16))
def test_an_element_is_where_the_storage_says(storage: Storage, seed: int) -> None:
    """Places are asked for as numbers, which TVM's arithmetic on them gives too."""
    value = np.random.default_rng(seed).integers(-128, 128, storage.type.shape).astype(np.int8)
    laid = storage.lay(value, fill=7)
    assert (laid.shape, laid.dtype.name) == (storage.shape, storage.dtype)
    for at in np.ndindex(*storage.type.shape):
        place = tuple(int(i) for i in storage.places(at))
        assert int(laid[place]) == int(value[at]) + storage.offset
    assert (laid == 7).sum() >= laid.size - value.size  # nothing else was written
    if storage.is_readable:
        np.testing.assert_array_equal(storage.reader()(laid), value)


@given(storages())
def test_a_walk_visits_every_element_once(storage: Storage) -> None:
    """Also of two storages of one tensor, of which one has a border."""
    rank = storage.type.rank
    bordered = replace(storage, before=(1,) * rank, after=(0,) * rank, bordered=True)
    for walked in ([storage], [storage, bordered]):
        walk = Walk.over(walked)
        visited = [tuple(int(i) for i in walk.logical(at)) for at in np.ndindex(*walk.shape)]
        inside = [at for at in visited if all(i < n for i, n in zip(at, storage.type.shape, strict=True))]
        assert sorted(inside) == sorted(np.ndindex(*storage.type.shape))


@pytest.mark.parametrize(("inner", "plain"), [(None, True), (1, False), (3, False)])
def test_the_graphs_own_order_is_told_apart(inner: int | None, plain: bool) -> None:
    kind = TensorType((2, 3, 4, 16), "int8")
    storage = Storage.plain(kind) if inner is None else Storage.with_inner(kind, inner)
    assert storage.is_plain is plain
    assert Storage.with_inner(TensorType((5, 16), "int8"), 1).is_plain
    assert not Storage.with_inner(TensorType((5, 17), "int8"), 1).is_plain
