"""Whoever works: results, their order, errors and what is kept are the same."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mrt.errors import DataError
from mrt.execution import THREADS, Executor, Program
from mrt.symbol import Graph, NumpyRunner
from mrt.symbol.operators.linear import FullyConnected
from tests.execution import work
from tests.quantization.networks import chain


def network() -> Graph:
    weight = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    return chain((2, 5), (FullyConnected(num_hidden=4, no_bias=True), [weight]))


def test_results_come_in_the_order_of_the_parts(executor: Executor) -> None:
    assert list(executor.in_order(work.squared, range(30))) == [n * n for n in range(30)]
    assert list(executor.in_order(work.late, iter(range(7)))) == list(range(7))
    assert list(executor.in_order(work.squared, [])) == []


def test_a_program_is_run_where_the_work_is_done(executor: Executor) -> None:
    graph, parts = network(), list(np.random.default_rng(2).normal(size=(5, 2, 5)).astype(np.float32))
    program = Program(graph, NumpyRunner())
    for _ in range(2):
        for part, found in zip(parts, executor.in_order(work.outputs, parts, (program,)), strict=True):
            np.testing.assert_array_equal(found, graph.evaluate({"x": part})[0])


@pytest.mark.parametrize("count", [1, 2, 3, 16, 65])
def test_totals_are_those_of_all_parts(executor: Executor, count: int) -> None:
    done: list[int] = []
    whole = executor.gathered(work.Sum, range(count), done=done.append)
    assert (
        whole == executor.gathered(work.Sum, iter(range(count))) == work.Total(sum(range(count)), tuple(range(count)))
    )
    assert sorted(done) == list(range(count))
    with pytest.raises(ValueError, match="no part"):
        executor.gathered(work.Sum, [])


def test_the_first_part_that_raises_says_what_is_wrong(executor: Executor) -> None:
    results = executor.in_order(work.refuses, range(9))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match=r"^part 3 holds NaN( \(on worker \d\))?$"):
        next(results)


def test_parts_before_one_that_raises_have_results_wherever_it_stands(executor: Executor) -> None:
    """Quick parts go to workers in runs, a part that raises in the middle of one."""
    results = executor.in_order(work.refuses, [0] * 40 + [1, 2, 3, 4, 5, 6])
    assert [next(results) for _ in range(42)] == [0] * 40 + [1, 2]
    with pytest.raises(DataError, match="^part 3 holds NaN"):
        next(results)


def test_workers_of_this_machine_keep_one_core_and_what_memory_they_free(workers: Executor) -> None:
    names = ["TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_"]
    found = list(workers.in_order(work.variable, names))
    assert found == ["1", "1", os.environ.get("MALLOC_TRIM_THRESHOLD_")]


def test_an_error_in_drawing_parts_is_raised(executor: Executor) -> None:
    def parts() -> Iterator[int]:
        yield 1
        raise KeyError("drawn")

    with pytest.raises(KeyError, match="drawn"):
        list(executor.in_order(work.squared, parts()))


def test_what_is_kept_is_a_part_of_later_work(executor: Executor) -> None:
    kept = executor.kept(work.first_state, range(5))
    for steps in (1, 2, 3):
        kept = executor.kept(work.Step(), kept)
        assert len(kept) == 5
        found = list(executor.in_order(work.contents, kept))
        assert found == [(steps, {"new": [n * steps] * 3, "old": [n] * 3}) for n in range(5)]


def test_files_of_what_is_kept_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = THREADS.kept(work.first_state, range(4))
    kept = THREADS.kept(work.Step(), kept)
    gc.collect()
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 4 * 2
    del kept
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_all_workers_work_whatever_dask_takes_the_work_to_last(workers: Executor) -> None:
    for seconds in (0.0, 0.05):  # Dask knows tasks by the function's name: short ones come first
        places = workers.gathered(work.Places, [seconds] * 8).found
    assert len(places) == 2


def test_no_run_of_parts_is_longer_than_a_worker_has_patience_for() -> None:
    cluster = pytest.importorskip("mrt.execution.cluster", reason="Dask is not installed")
    runs = list(cluster._runs(range(100_000), 2))
    assert max(map(len, runs)) <= 256 and [part for run in runs for part in run] == list(range(100_000))
    assert [len(run) for run in cluster._runs(range(100), 2)] == [13] * 7 + [9]
