"""The benchmark of many workers: results must be equal, efficiency is that of the work, simulated workers share it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loaded import load_benchmark

from mrt.execution import THREADS

pytest.importorskip("distributed", reason="Dask is not installed")
turns = load_benchmark("calibration_turns")
simulated = load_benchmark("simulated_cluster")
light = load_benchmark("light_worker")
scaling = load_benchmark("scaling")


def replies(digests: list[str]) -> dict[int, Any]:
    """A way for each digest, which takes longer and longer."""

    def reply(way: int, task: str, count: int) -> dict[str, Any]:
        calls[way] += 1
        facts = {"cpu_seconds": 2.0, "own_mib": 100.0 * calls[way], "worker_mib": 0.0}
        return {"digest": digests[way], "seconds": float(calls[way]), **facts}

    calls = dict.fromkeys(range(len(digests)), 0)
    return {way: lambda task, count, way=way: reply(way, task, count) for way in calls}


def test_the_least_time_and_the_highest_peak_of_all_turns_count() -> None:
    found = scaling.in_turns(replies(["a", "a"]), "ranges", 8, 3)
    assert {way: (each["seconds"], each["own_mib"]) for way, each in found.items()} == {
        0: (1.0, 300.0),
        1: (1.0, 300.0),
    }


def test_ways_that_find_different_results_end_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="ranges gives 2 different results"):
        scaling.in_turns(replies(["a", "b"]), "ranges", 8, 1)


def test_a_digest_tells_ranges_and_moments_of_other_samples(tmp_path: Path) -> None:
    seeded = load_benchmark("seeded_networks")
    case = turns.save_case(tmp_path / "case", seeded.resnet8(), 6, 16)
    tasks = turns.Tasks(case, THREADS)
    first, again, fewer = (turns.measured(tasks.ranges, count) for count in (6, 6, 5))
    assert first["digest"] == again["digest"] != fewer["digest"]
    assert first["own_mib"] > 50 and first["cpu_seconds"] > 0
    assert tasks.moments(6)["digest"] != tasks.moments(5)["digest"] and tasks.moments(5)["bytes"] > 1e5


def test_the_highest_efficiency_of_so_many_workers_is_projected() -> None:
    best: dict[int, float] = {}
    for seconds in (4.0, 2.5, 8.0):
        took = simulated.Took(seconds, 0.1, 0.2, 0.3)
        cells = scaling.noted(scaling.Projected(10, "ranges", 20, 2.0, took), best).cells()
    assert best == {10: 0.8} and cells[4:7] == ("8.00", "25%", "10.00")


async def by_two_light_workers(parts: int, seconds: float) -> tuple[float, float]:
    """What the sum of so many parts is, each of which sleeps, and how long that took."""
    distributed = pytest.importorskip("distributed")
    local = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    async with distributed.Scheduler(**local) as scheduler:
        await light.started(scheduler.address, "127.0.0.1", ["0", "1"], 2)
        async with distributed.Client(scheduler.address, asynchronous=True, set_as_default=False) as client:
            started = time.perf_counter()
            work = client.map(simulated.Answer(seconds, 8), range(parts), pure=False)
            found = float((await client.submit(np.sum, work)).sum())
            took = time.perf_counter() - started
    return found, took


def test_light_workers_give_results_no_sooner_than_others_would() -> None:
    found, took = asyncio.run(by_two_light_workers(6, 0.1))
    assert found == 8 * sum(range(6))
    assert took >= 0.3  # three on each


@pytest.mark.exhaustive
@pytest.mark.slow
def test_simulated_workers_share_the_work() -> None:
    with simulated.simulated(3) as on:
        one = scaling.gathered(on, "ranges", 30, 0.02, 800, 2)
        other = scaling.answered(on, "results", 6, 0.1)
    assert (one.workers, one.tasks, other.tasks) == (3, 11, 6) and one.ideal == pytest.approx(0.2)
    assert one.took.seconds >= 0.2 and other.took.seconds >= 0.2
    answer = simulated.Answer(0.0, 3)(258)
    np.testing.assert_array_equal(answer, [2, 2, 2])
