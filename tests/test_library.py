"""Libraries of compiled code: loaded, they are in memory once."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np

from mrt.backend import compile_model
from mrt.runtime import Library
from mrt.symbol import GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization


def library() -> bytes:
    """Of a network of one operator."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 256), "int8"))
    weight = builder.parameter("weight", np.ones((2048, 256), np.int8))
    record = find_operator("FullyConnected")(num_hidden=2048, no_bias=True)
    graph = builder.graph([builder.apply(record, [x, weight], "y")])
    inputs = [TensorQuantization("x", (1, 256), "int8", 1.0, 0, -127, 127)]
    outputs = [TensorQuantization("y", (1, 2048), "int32", 1.0, 0, -(2**31), 2**31 - 1)]
    return compile_model(graph, inputs, outputs, None, "0" * 64).files["model.so"]


def test_what_is_loaded_holds_no_bytes_of_its_file_and_knows_them(tmp_path: Path) -> None:
    content, path = library(), tmp_path / "model.so"
    path.write_bytes(content)
    Library(content).code  # noqa: B018 (imports what loading needs)
    tracemalloc.start()
    try:
        loaded = Library(path.read_bytes())
        before, _ = tracemalloc.get_traced_memory()
        assert loaded.content == content
        loaded.code  # noqa: B018
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    path.unlink()
    assert held < len(content) / 2 < before
    assert loaded.content == content
