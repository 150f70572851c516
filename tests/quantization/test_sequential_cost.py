"""Sequential bias correction runs in flat memory and linear time, and leaves no file."""

from __future__ import annotations

import tempfile
import threading
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from mrt.errors import QuantizationError
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.bias_correction import reductions
from mrt.quantization.algorithms.sequential_bias_correction import sequential_corrections
from mrt.symbol import Array, Evaluate, Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from tests.quantization.corrected_networks import (
    BATCH,
    RUNS,
    calibrated,
    convolution,
    data_for,
    options,
    weights,
)
from tests.quantization.networks import chain


class Watching(NumpyRunner):
    """Runs by NumPy, on several threads; remembers the operators of each graph, the runs, and the files that lie in
    `folder` meanwhile."""

    def __init__(self, folder: Path, fails_at: int | None = None) -> None:
        self.folder = folder
        self.operators: list[list[str]] = []
        self.runs = 0
        self.files = 0
        self.fails_at = fails_at
        self.lock = threading.Lock()

    def prepare(self, graph: Graph) -> Evaluate:
        self.operators.append([symbol.name for symbol in graph.operators])

        def evaluate(feeds: Mapping[str, Array]) -> list[Array]:
            with self.lock:
                self.runs += 1
                self.files = max(self.files, len([path for path in self.folder.rglob("*") if path.is_file()]))
                fails = self.runs == self.fails_at
            if fails:
                raise KeyboardInterrupt
            return graph.evaluate(feeds)

        return evaluate


def deep(blocks: int) -> Graph:
    """Residual blocks of two layers: two tensors are alive at any time."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 3, 3)))
    for block in range(blocks):
        inner = x
        for k in (0, 1):
            weight = builder.parameter(f"w{block}_{k}", weights(4, 4, 1, 1) / 2)
            made = Convolution(kernel=(1, 1), num_filter=4, no_bias=True)
            inner = builder.apply(made, [inner, weight], f"layer{block}_{k}")
        x = builder.apply(ElemwiseAdd(), [x, builder.apply(Relu(), [inner], f"relu{block}")], f"total{block}")
    return builder.graph([x])


def test_each_symbol_runs_once_and_each_reduction_at_most_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    graph = deep(12)
    x, runner, config = data_for(graph), Watching(tmp_path), options("sequential")
    sequential_corrections(graph, calibrated(graph, x), config, Samples([x], BATCH, runner))
    assert len(runner.operators) == 24 and runner.runs == 24 * 4
    counts = Counter(name for names in runner.operators for name in names)
    reduced = {symbol.name for symbol in reductions(graph)}
    assert all(number <= (2 if name in reduced else 1) for name, number in counts.items())
    assert 2 * 4 <= runner.files <= 5 * 4


@pytest.mark.parametrize("fails_at", [None, 1, 9])
def test_no_file_stays(fails_at: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    graph, x = RUNS["network"]
    runner, found = Watching(tmp_path, fails_at), calibrated(graph, x)
    try:
        sequential_corrections(graph, found, options("sequential"), Samples([x], BATCH, runner))
        assert fails_at is None
    except KeyboardInterrupt:
        assert runner.runs >= fails_at  # others may have begun
    assert runner.files > 0 and list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    graph, x = RUNS["network"]
    found = calibrated(graph, x)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.open", full)
    with pytest.raises(QuantizationError, match=r"No space left on device; make room, name another folder by TMPDIR"):
        sequential_corrections(graph, found, options("sequential"), Samples([x], BATCH, NumpyRunner()))


def test_memory_does_not_grow_with_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrt.workers.cores", lambda: 1)  # of several, how many chunks meet at their peaks is chance
    graph = chain((1, 8, 24, 24), convolution(8, 8), (Relu(), []), convolution(8, 8), (Relu(), []), convolution(8, 4))
    x = data_for(graph, 8)
    config, found = options("sequential"), calibrated(graph, x)

    def peak(times: int) -> int:
        tracemalloc.start()
        sequential_corrections(graph, found, config, Samples((x for _ in range(times)), BATCH, NumpyRunner()))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(1)
    chunk, more = 4 * 8 * 24 * 24 * 4, (40 - 4) * 2
    assert peak(40) < 1.1 * peak(4) + 100_000 + more * chunk / 20  # names of files, means of channels
