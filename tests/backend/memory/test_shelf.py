"""Constants are put one behind the other and are one tensor without a copy; a runner keeps them and no parameters."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from mrt.backend import ONE_THREAD, TvmRunner
from mrt.backend.memory.alignment import ALIGNMENT, Shelf, tensor_of
from mrt.symbol import Graph, TensorType
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.operators.linear import FullyConnected

ARRAYS = (
    np.arange(5, dtype=np.int8),
    np.arange(12, dtype=np.float32).reshape(3, 4).T,
    np.zeros((0, 3), np.float32),
    np.arange(1000, dtype=np.int64),
)


@pytest.mark.parametrize("reserved", [0, 1, 2**16])
def test_tensors_lie_in_the_content_at_their_places(reserved: int) -> None:
    shelf = Shelf()
    shelf.reserve(reserved)
    tensors = [shelf.put(array) for array in ARRAYS]
    elsewhere = tensor_of(ARRAYS[1])
    places = [shelf.place(each) for each in (*tensors, elsewhere, elsewhere)]
    content = np.from_dlpack(shelf.content)
    assert places[-1] == places[-2]
    for place, array in zip(places, (*ARRAYS, ARRAYS[1]), strict=False):
        assert place % ALIGNMENT == 0
        assert content[place : place + array.nbytes].tobytes() == array.tobytes()


def test_what_was_reserved_is_not_copied() -> None:
    shelf = Shelf()
    shelf.reserve(sum(ALIGNMENT + array.nbytes for array in ARRAYS))
    tensors = [shelf.put(array) for array in ARRAYS]
    first = np.from_dlpack(shelf.content).ctypes.data
    filled = [tensor for tensor, array in zip(tensors, ARRAYS, strict=True) if array.size]
    assert [tensor.data_ptr() - first for tensor in filled] == [shelf.place(tensor) for tensor in filled]


def test_the_content_is_never_empty() -> None:
    assert np.from_dlpack(Shelf().content).size


def test_a_compiled_network_keeps_no_parameters() -> None:
    weight = np.eye(64, dtype=np.float32) * 3
    builder = GraphBuilder()
    data = builder.input("x", TensorType((2, 64), "float32"))
    made = builder.apply(FullyConnected(num_hidden=64, no_bias=True), [data, builder.parameter("w", weight)], "y")
    graph: Graph | None = builder.graph([made])
    evaluate = TvmRunner(ONE_THREAD).prepare(graph)
    held = weakref.ref(weight)
    del weight, builder, graph
    gc.collect()
    assert held() is None
    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    assert np.array_equal(evaluate({"x": x})[0], 3 * x)
