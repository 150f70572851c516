"""Tuning: every tiling gives the same integers; what was measured is kept, found again, and never believed blindly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import Bundle, op
from rich.console import Console

from mrt.backend import compile_model
from mrt.backend.build import compile_executable
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.schedule.tilings import Choose, schedule_by_rule
from mrt.backend.tuning import tuner
from mrt.backend.tuning.database import FAILED, RECORDS, WORKLOADS, Database
from mrt.backend.tuning.metaschedule import run_searches
from mrt.backend.tuning.search import Search, Tunable, TunableCollector
from mrt.backend.tuning.tuner import Tuner
from mrt.errors import CompilationError, ModelFileError
from mrt.progress import Reporter
from mrt.runtime import THIS_DEVICE, THIS_MACHINE, virtual_machine
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.quantized_tensor import TensorQuantization
from tests.faults import file_size_limit

VNNI, WORDS = {"features": ["-amx-int8"]}, {"mcpu": "x86-64"}
"""This machine without tile registers, and the least that runs here."""


class Network:
    """One convolution of 16 to 32 channels, requantized, on 1x16x8x8."""

    def __init__(self) -> None:
        random, builder = np.random.default_rng(0), GraphBuilder()
        x = builder.input("x", TensorType((1, 16, 8, 8), "uint8"))
        weight = builder.parameter("w", random.integers(-127, 128, (32, 16, 3, 2)).astype(np.int8))
        sums = builder.apply(op("Convolution", kernel=(3, 2), num_filter=32, no_bias=True), [x, weight])
        shifted = builder.apply(op("right_shift"), [sums, builder.parameter("s", np.full((1, 1, 1, 1), 9, np.int8))])
        clipped = builder.apply(op("clip", a_min=-127, a_max=127), [shifted])
        y = builder.apply(op("Cast", dtype="int8"), [clipped], "y")
        self.graph: Graph = builder.graph([y])
        self.inputs = (TensorQuantization("x", x.shape, "uint8", 0.5, 0, 0, 255),)
        self.outputs = (TensorQuantization("y", y.shape, "int8", 0.5, 0, -127, 127),)
        self.feeds = {"x": random.integers(0, 256, x.shape).astype(np.uint8)}
        (self.expected,) = self.graph.evaluate(self.feeds)

    def tunables(self, machine: Machine) -> list[Tunable]:
        found = TunableCollector()
        ModuleBuilder(machine, found).add(self.graph, "main")
        return found.found

    def compiled(self, folder: Path, trials: int, told: StringIO | None = None, target: Any = VNNI) -> Any:
        tuned = Tuner(folder, trials, Reporter(Console(file=told or StringIO())))
        return compile_model(self.graph, self.inputs, self.outputs, None, "0" * 64, target, tuned)

    def check(self, module: Any) -> None:
        np.testing.assert_array_equal(module.run_integer(self.feeds), self.expected)


@pytest.fixture(scope="module")
def network() -> Network:
    return Network()


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine.of(VNNI)


@pytest.fixture(scope="module")
def tunable(network: Network, machine: Machine) -> Tunable:
    (tunable,) = network.tunables(machine)
    return tunable


def choosing(number: int) -> Callable[[Any, Any], Any]:
    """A scheduler by the tiling of a number, counted around."""

    def pick(tilings: Iterable[Any]) -> Any:
        offered = tuple(tilings)
        return offered[number % len(offered)]

    return lambda function, scheduled: scheduled(pick)


@pytest.mark.parametrize(
    ("target", "numbers"),
    [("native", (1, 29)), (VNNI, (7, 53)), (WORDS, (1, 7, 53))],
    ids=["native", "vectors", "words"],
)
def test_any_tiling_gives_the_same_integers(target: Any, numbers: tuple[int, ...]) -> None:
    machine, bundle = Machine.of(target), Bundle()
    data = bundle.hidden("clip", bundle.input(bundle.integers((2, 48, 6, 10), "uint8")), a_min=0.0, a_max=255.0)
    for filters, kernel, attributes in ((64, (1, 1), {}), (32, (3, 2), {"stride": (2, 1)}), (20, (6, 10), {})):
        weight = bundle.parameter(bundle.integers((filters, 48, *kernel), lo=-127))
        bundle.add("Convolution", data, weight, kernel=kernel, num_filter=filters, no_bias=True, **attributes)
    graph = bundle.graph()
    expected = graph.evaluate(bundle.feeds)
    for number in numbers:
        module_builder = ModuleBuilder(machine, choosing(number))
        module_builder.add(graph, "main")
        run = virtual_machine(compile_executable(module_builder.module(), machine))["main"]
        found = [output.numpy() for output in run(*(tvm.runtime.tensor(bundle.feeds[s.name]) for s in graph.inputs))]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_rule_is_offered_first_and_every_tiling_once(tunable: Tunable) -> None:
    assert len(tunable.tilings) > 10
    assert len(set(tunable.tilings)) == len(tunable.tilings)
    tuned = tunable.scheduled(lambda tilings: next(iter(tilings)))
    tvm.ir.assert_structural_equal(tuned, schedule_by_rule(tunable.function, tunable.scheduled))


def test_a_second_compile_measures_nothing(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = StringIO()
    network.check(network.compiled(tmp_path, 2, told))
    assert "4 tilings measured" in told.getvalue()  # of the network in integers, and of that of real values
    files = [(tmp_path / name).read_bytes() for name in (WORKLOADS, RECORDS)]
    monkeypatch.setattr(tuner, "run_searches", lambda *_: pytest.fail("something is measured"))
    again = StringIO()
    network.check(network.compiled(tmp_path, 2, again))
    assert "0 tilings measured; " in again.getvalue()
    network.check(network.compiled(tmp_path, 0))
    assert files == [(tmp_path / name).read_bytes() for name in (WORKLOADS, RECORDS)]


def test_more_trials_measure_what_is_missing(network: Network, tmp_path: Path) -> None:
    network.compiled(tmp_path, 1)
    told = StringIO()
    network.compiled(tmp_path, 3, told)
    assert "4 tilings measured" in told.getvalue()


def test_the_fastest_is_chosen_unless_the_rule_is_hardly_slower(
    tunable: Tunable, machine: Machine, tmp_path: Path
) -> None:
    rule, second, third = tunable.tilings[:3]
    database = Database(tmp_path, machine)
    assert database.fastest(tunable.function, tunable.tilings) == rule
    database.add(tunable.function, rule, [1.2, 1.0, 1.1])
    database.add(tunable.function, second, [0.99])
    assert database.fastest(tunable.function, tunable.tilings) == rule
    database.add(tunable.function, third, [5.0, 0.5])
    for opened in (database, Database(tmp_path, machine)):
        assert opened.times(tunable.function, tunable.tilings) == {rule: 1.0, second: 0.99, third: 0.5}
        assert opened.fastest(tunable.function, tunable.tilings) == third
        assert opened.fastest(tunable.function, tunable.tilings[:2]) == rule
    tvm.ir.assert_structural_equal(database(tunable.function, tunable.scheduled), tunable.scheduled(lambda _: third))
    assert database.tuned == 1


def test_what_was_measured_counts_for_its_machine_only(tunable: Tunable, machine: Machine, tmp_path: Path) -> None:
    Database(tmp_path, machine).add(tunable.function, tunable.tilings[1], [1e-9])
    for target in ({"threads": machine.threads + 1, **VNNI}, {"mcpu": "x86-64"}):
        other = Database(tmp_path, Machine.of(target))
        assert other.times(tunable.function, tunable.tilings) == {}
    newer = Machine.of({"threads": machine.threads, **VNNI})
    assert Database(tmp_path, newer).fastest(tunable.function, tunable.tilings) == tunable.tilings[1]


def test_a_tiling_that_is_not_offered_is_not_used(
    network: Network, tunable: Tunable, machine: Machine, tmp_path: Path
) -> None:
    """A database that was written by hand, or that knows a kernel of another shape, cannot spoil code."""
    database = Database(tmp_path, machine)
    database.add(tunable.function, tunable.tilings[1], [1e-9])
    path = tmp_path / RECORDS
    record = path.read_text()
    assert '"positions":' in record
    path.write_text(record.replace('"positions":', '"positions":1'))
    assert Database(tmp_path, machine).fastest(tunable.function, tunable.tilings) == tunable.tilings[0]
    network.check(network.compiled(tmp_path, 0))


@pytest.mark.parametrize("name", [WORKLOADS, RECORDS])
@pytest.mark.parametrize("line", [b"{", b"1", b"[1, 2]", b"[0, [[], [1], {}, []]]", b"\xff", b"[" * 100_000])
def test_a_broken_database_is_named(network: Network, tmp_path: Path, name: str, line: bytes) -> None:
    (tmp_path / name).write_bytes(line + b"\n")
    with pytest.raises(ModelFileError, match=str(tmp_path)) as caught:
        network.compiled(tmp_path, 0)
    assert "tilings" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_that_was_cut_short_is_dropped(tunable: Tunable, machine: Machine, tmp_path: Path) -> None:
    """As a process leaves it that is killed while it writes; what was measured before counts."""
    Database(tmp_path, machine).add(tunable.function, tunable.tilings[0], [1e-6])
    path = tmp_path / RECORDS
    whole = path.read_text()
    path.write_text(whole + whole[:-20])
    database = Database(tmp_path, machine)
    assert path.read_text() == whole
    assert database.times(tunable.function, tunable.tilings) == {tunable.tilings[0]: 1e-6}
    path.write_text(whole + whole[:-20] + "\n")
    with pytest.raises(ModelFileError, match=f"{RECORDS}:2 .*remove"):
        Database(tmp_path, machine)


def test_a_full_disk_ends_tuning_and_leaves_a_database(network: Network, tmp_path: Path) -> None:
    with file_size_limit(300), pytest.raises(ModelFileError, match=f"{WORKLOADS} cannot be written to the end"):
        network.compiled(tmp_path, 1)
    assert [(tmp_path / name).read_bytes() for name in (WORKLOADS, RECORDS)] == [b"", b""]
    network.check(network.compiled(tmp_path, 0))


def test_a_record_that_does_not_fit_is_none(tunable: Tunable, machine: Machine, tmp_path: Path) -> None:
    first, second = tunable.tilings[:2]
    path, database = tmp_path / RECORDS, Database(tmp_path, machine)
    database.add(tunable.function, first, [1e-6])
    path.write_bytes(path.read_bytes() * (1 + (tmp_path / WORKLOADS).stat().st_size // path.stat().st_size))
    database, held = Database(tmp_path, machine), path.read_bytes()
    with file_size_limit(len(held) + 100), pytest.raises(ModelFileError, match=f"{RECORDS} cannot be written"):
        database.add(tunable.function, second, [1e-7])
    assert path.read_bytes() == held
    for opened in (database, Database(tmp_path, machine)):
        assert opened.times(tunable.function, tunable.tilings) == {first: 1e-6}


def test_a_database_must_be_there_and_can_be_made(network: Network, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="tune first"):
        network.compiled(tmp_path / "none", 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="file"):
        network.compiled(tmp_path / "file" / "below", 1)


@pytest.mark.parametrize("target", [{"mcpu": "x86-64"}, {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}])
def test_nothing_is_measured_for_another_machine(network: Network, tmp_path: Path, target: Any) -> None:
    with pytest.raises(CompilationError, match="mcpu: native is needed"):
        network.compiled(tmp_path, 1, target=target)


@pytest.mark.parametrize("trials", [1, 2, 9, 1000])
def test_a_search_begins_with_the_rule_and_measures_so_many_tilings_once(
    tunable: Tunable, machine: Machine, tmp_path: Path, trials: int
) -> None:
    """Whose times fall with the number of the tiling: where all are measured, the last one is found."""
    database = Database(tmp_path, machine)
    search = Search(tunable, database, trials)
    measured: list[Any] = []
    while batch := search.next_batch():
        for tiling in batch:
            search.note(tiling, [1.0 / (1 + tunable.tilings.index(tiling))])
        measured += batch
    count = min(trials, len(tunable.tilings))
    assert measured[0] == tunable.tilings[0]
    assert len(set(measured)) == count
    assert len(measured) <= count + 2
    assert measured[-1] == max(measured, key=tunable.tilings.index)
    assert Search(tunable, database, trials).next_batch() == []


def test_the_rule_is_measured_though_others_are_known(tunable: Tunable, machine: Machine, tmp_path: Path) -> None:
    database = Database(tmp_path, machine)
    database.add(tunable.function, tunable.tilings[3], [1.0])
    assert Search(tunable, database, 1).next_batch() == [tunable.tilings[0]]


def test_a_tiling_that_cannot_be_scheduled_is_never_chosen(tunable: Tunable, machine: Machine, tmp_path: Path) -> None:
    rule, bad, worse = tunable.tilings[:3]

    def scheduled(choose: Choose) -> Any:
        if choose((rule, bad, worse)) in (bad, worse):
            raise RuntimeError("TVM refuses")
        return tunable.scheduled(lambda _: rule)

    database, done = Database(tmp_path, machine), []
    search = Search(Tunable(tunable.function, scheduled, (rule, bad, worse)), database, 3)
    with THIS_DEVICE.clock(THIS_MACHINE) as clock:
        run_searches([search], machine, clock, done.append)
    assert done[-1] == 3
    assert database.times(tunable.function, (bad, worse)) == {bad: FAILED, worse: FAILED}
    assert search.result().best == rule


def test_records_can_be_read(tunable: Tunable, machine: Machine, tmp_path: Path) -> None:
    """They are JSON that holds the numbers of the tiling by name."""
    Database(tmp_path, machine).add(tunable.function, tunable.tilings[0], [0.25])
    (line,) = (tmp_path / RECORDS).read_text().splitlines()
    _, (((_, (_, (_, tiling), _, _)), _), seconds, target, _) = json.loads(line)
    assert seconds == [0.25]
    assert target["kind"] == "llvm"
    assert tiling["blocks"] == tunable.tilings[0].blocks
