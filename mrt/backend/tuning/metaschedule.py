"""Searches as MetaSchedule runs them: its scheduler of tasks asks each search in turn, and what it gives is measured.

The strategy, the builder and the runner are ours: the tilings of a function are few, they are not found by changing a
trace, and what is timed are the functions as they will run, on the device that will run them and with its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule

from mrt.backend.link.kernel_pipeline import KERNELS
from mrt.backend.machine import Machine, one_line
from mrt.backend.tuning.database import workload_of
from mrt.backend.tuning.search import BATCH, Search
from mrt.errors import MRTError
from mrt.runtime.device import KernelClock
from mrt.symbol import Array

REPEATS, REPEAT_MILLISECONDS = 5, 4
"""How often a tiling is timed, and how long at least; the least time counts."""


def run_searches(
    searches: Sequence[Search], machine: Machine, clock: KernelClock, progress: Callable[[int], None]
) -> None:
    """Runs MetaSchedule until all searches are done. clock: of the device. progress: told how many new tilings were
    measured. Raises what the clock raises for what a user can mend, and RuntimeError for what TVM does."""
    bench, done = _Bench(clock), 0

    def tell(new: int) -> None:
        nonlocal done
        done += new
        progress(done)

    try:
        meta_schedule.tune.tune_tasks(
            tasks=[_task(search, machine.target, tell) for search in searches],
            task_weights=[1.0] * len(searches),
            work_dir="",
            # Each search ends by itself.
            max_trials_global=2 * sum(len(search.tunable.tilings) for search in searches),
            num_trials_per_iter=BATCH,
            builder=_Builder(bench),
            runner=_Runner(bench),
            database=meta_schedule.database.MemoryDatabase(),
            cost_model=meta_schedule.cost_model.RandomModel(),
            measure_callbacks=[],
            task_scheduler="round-robin",
        )
    except Exception as error:  # what callbacks raise comes through TVM as errors of its own
        raise bench.failure or error from None


def _task(search: Search, target: Any, tell: Callable[[int], None]) -> Any:
    """MetaSchedule's TuneContext, whose own constructor first registers all of TVM's intrinsics, for half a minute."""
    make, start = (tvm.get_global_func(f"s_tir.meta_schedule.TuneContext{name}") for name in ("", "Initialize"))
    space = meta_schedule.space_generator.ScheduleFn(lambda plan: plan, [], [], {})
    threads, random_state = 1, 1
    logging = meta_schedule.logging.get_logging_func(meta_schedule.logging.get_logger(__name__))
    module, strategy = workload_of(search.tunable.function), _Strategy(search, tell)
    context = make(module, target, space, strategy, "main", threads, random_state, logging)
    start(context)
    return context


@derived_object
class _Strategy(meta_schedule.search_strategy.PySearchStrategy):  # type: ignore[misc]
    """A `Search` as MetaSchedule runs it."""

    def __init__(self, search: Search, tell: Callable[[int], None]) -> None:
        super().__init__()
        self._search, self._tell = search, tell
        self._batch: list[Any] = []

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def pre_tuning(self, *settings: Any) -> None:
        pass

    def post_tuning(self) -> None:
        pass

    def generate_measure_candidates(self) -> list[Any] | None:
        while batch := self._search.next_batch():
            made = {tiling: candidate for tiling in batch if (candidate := self._candidate(tiling)) is not None}
            self._tell(sum(self._search.note(tiling, []) for tiling in batch if tiling not in made))
            if made:
                self._batch = list(made)
                return list(made.values())
        return None

    def _candidate(self, tiling: Any) -> Any:
        """The function scheduled by a tiling; None where TVM refuses that."""
        try:
            function = self._search.tunable.scheduled(lambda _: tiling).with_attr("global_symbol", "main")
            arguments = meta_schedule.arg_info.ArgInfo.from_prim_func(function)
            return meta_schedule.MeasureCandidate(s_tir.Schedule(tvm.IRModule({"main": function})), arguments)
        except (RuntimeError, ValueError, TypeError):
            return None

    def notify_runner_results(self, candidates: Any, results: Any) -> None:
        times = ([float(seconds) for seconds in result.run_secs or ()] for result in results)
        self._tell(sum(self._search.note(*each) for each in zip(self._batch, times, strict=True)))

    def clone(self) -> Any:
        raise NotImplementedError("a search is run once")


class _Bench:
    """Functions that were built and wait for being timed, by the names that MetaSchedule passes on.

    failure: why one could not be timed, where that is for the user to mend.
    """

    def __init__(self, clock: KernelClock) -> None:
        self._built: dict[str, Any] = {}
        self._count, self._clock = 0, clock
        self.failure: MRTError | None = None

    def put(self, built: Any) -> str:
        self._count += 1
        self._built[str(self._count)] = built
        return str(self._count)

    def seconds(self, name: str, arrays: Sequence[Array]) -> list[float]:
        """The times of a function, which is then forgotten."""
        try:
            return self._clock(self._built.pop(name), arrays, REPEATS, REPEAT_MILLISECONDS)
        except MRTError as error:
            self.failure = error
            raise


@derived_object
class _Builder(meta_schedule.builder.PyBuilder):  # type: ignore[misc]
    """Builds in this process."""

    def __init__(self, bench: _Bench) -> None:
        super().__init__()
        self._bench = bench

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        return [self._built(given) for given in build_inputs]

    def _built(self, given: Any) -> Any:
        try:
            name, reason = self._bench.put(tvm.compile(given.mod, given.target, tir_pipeline=KERNELS)), None
        except Exception as error:  # TVM raises errors of many kinds, built-in ones among them
            name, reason = None, one_line(error)
        return meta_schedule.builder.BuilderResult(name, reason)


@derived_object
class _Runner(meta_schedule.runner.PyRunner):  # type: ignore[misc]
    """Times what was built, where the bench does, with the threads of that process."""

    def __init__(self, bench: _Bench) -> None:
        super().__init__()
        self._bench = bench

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        return [_Timed(self._seconds(given)) for given in runner_inputs]

    def _seconds(self, given: Any) -> list[float]:
        random = np.random.default_rng(0)
        arrays = [_filled(info.as_json(), random) for info in given.args_info]
        return self._bench.seconds(str(given.artifact_path), arrays)


def _filled(info: Sequence[Any], random: np.random.Generator) -> Array:
    """An array of small numbers; info: MetaSchedule's, the kind, the dtype and the shape of an argument."""
    _, dtype, shape = info
    return random.integers(0, 64, [int(length) for length in shape]).astype(str(dtype))


@derived_object
class _Timed(meta_schedule.runner.PyRunnerFuture):  # type: ignore[misc]
    """Times that are there already."""

    def __init__(self, seconds: Sequence[float]) -> None:
        super().__init__()
        self._seconds = seconds

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return meta_schedule.runner.RunnerResult(list(self._seconds), None)
