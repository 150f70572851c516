"""Kernels of a network that is run by itself: from the cache they are the same, and nothing depends on having one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from compiled import op

from mrt.backend import ONE_THREAD, TvmRunner
from mrt.backend.link import kernel_objects, loaded_objects
from mrt.backend.lowering import region
from mrt.errors import CompilationError
from mrt.symbol import Graph, GraphBuilder, TensorType

Forbid = Callable[[], None]


def float_network(seed: int = 0) -> Graph:
    """A convolution, an exponential, a softmax and a product: what vectors and libraries compute."""
    random, builder = np.random.default_rng(seed), GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 9, 9), "float32"))
    weight = builder.parameter("weight", random.standard_normal((20, 3, 3, 3)).astype(np.float32))
    made = builder.apply(op("Convolution", kernel=(3, 3), num_filter=20, no_bias=True), [x, weight])
    flat = builder.apply(op("Flatten"), [builder.apply(op("exp"), [made])])
    dense = builder.parameter("dense", random.standard_normal((10, 980)).astype(np.float32))
    logits = builder.apply(op("FullyConnected", num_hidden=10, no_bias=True), [flat, dense])
    return builder.graph([made, builder.apply(op("softmax", axis=1), [logits])])


def outputs(graph: Graph) -> list[bytes]:
    data = np.random.default_rng(9).standard_normal((1, 3, 9, 9)).astype(np.float32)
    return [array.tobytes() for array in TvmRunner(ONE_THREAD).prepare(graph)({"x": data})]


@pytest.fixture
def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> Forbid:
    """From the call of it on neither are functions scheduled nor is LLVM given any."""

    def forbid() -> None:
        def fail(*_: object) -> None:
            raise AssertionError("compiled")

        monkeypatch.setattr(region, "schedule", fail)
        monkeypatch.setattr(kernel_objects, "as_object", fail)

    return forbid


def test_what_was_compiled_is_loaded_and_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forbid_compiling: Forbid
) -> None:
    without, others = outputs(float_network()), outputs(float_network(5))
    monkeypatch.setenv("MRT_CACHE", str(tmp_path / "cache"))
    assert outputs(float_network()) == without
    forbid_compiling()
    assert outputs(float_network()) == without
    assert outputs(float_network(5)) == others != without


def test_without_a_linker_or_where_nothing_may_be_executed_there_is_no_need_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = outputs(float_network())
    monkeypatch.setenv("MRT_CACHE", str(tmp_path / "cache"))
    statvfs = os.statvfs
    with monkeypatch.context() as mounted:
        mounted.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=statvfs(path).f_flag | os.ST_NOEXEC))
        assert outputs(float_network()) == without

    class NoLinker:
        def command(self) -> str:
            raise CompilationError("there is no C++ compiler")

    monkeypatch.setattr(loaded_objects, "THIS_MACHINE", NoLinker())
    assert outputs(float_network()) == without
    assert not list((tmp_path / "cache").iterdir())
