"""Tuning: the tilings that schedules offer are measured on this machine by MetaSchedule, which keeps what it found.

MetaSchedule's scheduler of tasks runs the search and its database remembers; the strategy, the builder and the runner
are ours: the tilings of a function are few, they are not found by changing a trace, and what is timed are the functions
as they will run, in this process and with its threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule

from mrt.backend.machine import Machine, one_line
from mrt.backend.stack import KERNELS
from mrt.backend.tilings import Scheduled, Scheduler
from mrt.backend.tuning_database import FAILED, Database, workload_of
from mrt.errors import ModelFileError
from mrt.progress import Reporter

TOGETHER = 4
"""Tilings that are measured before the search looks at what came out."""
REPEATS, REPEAT_MILLISECONDS = 5, 4
"""How often a tiling is timed, and how long at least; the least time counts."""


@dataclass(frozen=True)
class Tuning:
    """folder: of the database. trials: how many tilings of a function are measured; with 0 the database must be there.

    report: is told what is measured and what was gained.
    """

    folder: Path
    trials: int
    report: Reporter

    def scheduler(self, emit: Callable[[Scheduler], Any], machine: Machine) -> Scheduler:
        """What chooses the fastest tilings that are known, once those of all functions that `emit` makes were measured.

        Raises ModelFileError for a database that is missing or broken.
        """
        if not self.trials:
            if not self.folder.is_dir():
                raise ModelFileError(f"{self.folder} holds no database of tilings; tune first")
            return Database(self.folder, machine)
        anchors = Anchors()
        emit(anchors)
        database = Database(self.folder, machine)
        searches = [Search(anchor, database, self.trials) for anchor in anchors.found]
        total = sum(search.left for search in searches)
        if total:
            with self.report.progress("tune", total, "tilings") as progress:
                run_searches(searches, machine, progress)
        self.report.line(f"tune: {total} tilings measured; {gained([search.result() for search in searches])}")
        return database


@dataclass(frozen=True, eq=False)
class Anchor:
    """A PrimFunc that is not scheduled, what schedules it, and the tilings that it offers, the rule's first."""

    function: Any
    scheduled: Scheduled
    tilings: tuple[Any, ...]


class Anchors:
    """A scheduler that goes by the rule, and collects what offers more than one tiling."""

    def __init__(self) -> None:
        self.found: list[Anchor] = []

    def __call__(self, function: Any, scheduled: Scheduled) -> Any:
        def noted(tilings: Iterable[Any]) -> Any:
            offered = tuple(tilings)
            if len(offered) > 1:
                self.found.append(Anchor(function, scheduled, offered))
            return offered[0]

        return scheduled(noted)


@dataclass(frozen=True)
class Tuned:
    """What is known of an anchor: the tilings of the rule and the one to use, and their least seconds for one call."""

    rule: Any
    best: Any
    rule_seconds: float
    best_seconds: float


def gained(found: Sequence[Tuned]) -> str:
    """What tuning gave, in a line."""
    better = sum(each.best != each.rule for each in found)
    before, after = (1e6 * sum(getattr(each, name) for each in found) for name in ("rule_seconds", "best_seconds"))
    return (
        f"{better} of {len(found)} kernels are faster than by the rule; "
        f"one call of each takes {after:.1f} µs instead of {before:.1f} µs"
    )


class Search:
    """Which tilings of an anchor are still to be measured: the rule's first, then those near the fastest so far.

    What the database knows counts as measured.
    """

    def __init__(self, anchor: Anchor, database: Database, trials: int) -> None:
        self.anchor, self._database = anchor, database
        self._random = np.random.default_rng(0)
        self._known = set(database.times(anchor.function, anchor.tilings))
        # The rule's is what others are compared with, also where it was another one when they were measured.
        self.left = max(int(anchor.tilings[0] not in self._known), min(trials, len(anchor.tilings)) - len(self._known))
        self._compares = self.left > 0

    def next_batch(self) -> list[Any]:
        """Some tilings to be measured; none when the search is done.

        In the end the rule's and the fastest are measured once more, one after the other.
        """
        if self.left:
            return self._nearest(min(self.left, TOGETHER))
        if not self._compares:
            return []
        self._compares = False
        rule, best = self.anchor.tilings[0], self._fastest()
        return [] if best == rule else [rule, best]

    def note(self, tiling: Any, seconds: Sequence[float]) -> int:
        """Keeps the times of a tiling, none if it failed; gives 1 if it is new, else 0."""
        self._database.add(self.anchor.function, tiling, seconds)
        new = int(tiling not in self._known)
        self._known.add(tiling)
        self.left -= new
        return new

    def result(self) -> Tuned:
        rule = self.anchor.tilings[0]
        times = self._database.times(self.anchor.function, self.anchor.tilings)
        best = self._database.fastest(self.anchor.function, self.anchor.tilings)
        return Tuned(rule, best, times.get(rule, FAILED), times.get(best, FAILED))

    def _fastest(self) -> Any:
        times = self._database.times(self.anchor.function, self.anchor.tilings)
        return min(times, key=lambda tiling: times[tiling], default=self.anchor.tilings[0])

    def _nearest(self, count: int) -> list[Any]:
        """New tilings: those that are least unlike the fastest, and a drawn one, so that far ones are seen too."""
        best = self._fastest()
        new = [tiling for tiling in self.anchor.tilings if tiling not in self._known]
        if self.anchor.tilings[0] in self._known:
            new.sort(key=lambda tiling: _distance(tiling, best))
        if len(new) <= count or count < TOGETHER:
            return new[:count]
        return [*new[: count - 1], new[self._random.integers(count - 1, len(new))]]


def _distance(a: Any, b: Any) -> float:
    """How unlike two tilings are: by how many octaves their numbers differ."""
    if type(a) is not type(b):
        return math.inf
    pairs = zip(asdict(a).values(), asdict(b).values(), strict=True)
    return sum(abs(math.log2((int(x) + 1) / (int(y) + 1))) for x, y in pairs)


def run_searches(searches: Sequence[Search], machine: Machine, progress: Callable[[int], None]) -> None:
    """Runs MetaSchedule until all searches are done. progress: told how many new tilings were measured."""
    bench, done = _Bench(), 0

    def tell(new: int) -> None:
        nonlocal done
        done += new
        progress(done)

    meta_schedule.tune.tune_tasks(
        tasks=[_task(search, machine.target, tell) for search in searches],
        task_weights=[1.0] * len(searches),
        work_dir="",
        # Each search ends by itself.
        max_trials_global=2 * sum(len(search.anchor.tilings) for search in searches),
        num_trials_per_iter=TOGETHER,
        builder=_Builder(bench),
        runner=_Runner(bench),
        database=meta_schedule.database.MemoryDatabase(),
        cost_model=meta_schedule.cost_model.RandomModel(),
        measure_callbacks=[],
        task_scheduler="round-robin",
    )


def _task(search: Search, target: Any, tell: Callable[[int], None]) -> Any:
    """MetaSchedule's TuneContext, whose own constructor first registers all of TVM's intrinsics, for half a minute."""
    make, start = (tvm.get_global_func(f"s_tir.meta_schedule.TuneContext{name}") for name in ("", "Initialize"))
    space = meta_schedule.space_generator.ScheduleFn(lambda plan: plan, [], [], {})
    threads, random_state = 1, 1
    logging = meta_schedule.logging.get_logging_func(meta_schedule.logging.get_logger(__name__))
    module, strategy = workload_of(search.anchor.function), _Strategy(search, tell)
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
            function = self._search.anchor.scheduled(lambda _: tiling).with_attr("global_symbol", "main")
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
    """Functions that were built and wait for being timed, by the names that MetaSchedule passes on."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}
        self._count = 0

    def put(self, built: Any) -> str:
        self._count += 1
        self._built[str(self._count)] = built
        return str(self._count)

    def take(self, name: str) -> Any:
        return self._built.pop(name)


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
    """Times what was built, in this process, with the threads that it has."""

    def __init__(self, bench: _Bench) -> None:
        super().__init__()
        self._bench = bench

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        return [_Timed(self._seconds(given)) for given in runner_inputs]

    def _seconds(self, given: Any) -> list[float]:
        built = self._bench.take(str(given.artifact_path)).jit()
        random = np.random.default_rng(0)
        arguments = [_filled(info.as_json(), random) for info in given.args_info]
        timed = built.time_evaluator("main", tvm.cpu(), number=1, repeat=REPEATS, min_repeat_ms=REPEAT_MILLISECONDS)
        return [float(seconds) for seconds in timed(*arguments).results]


def _filled(info: Sequence[Any], random: np.random.Generator) -> Any:
    """A tensor of small numbers; info: MetaSchedule's, the kind, the dtype and the shape of an argument."""
    _, dtype, shape = info
    return tvm.runtime.tensor(random.integers(0, 64, [int(length) for length in shape]).astype(str(dtype)))


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
