"""Every family of kernels, on every level of the CPU that this machine or an emulator can run."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import pytest
from emulated import emulated
from layers import EMULATED, TARGETS, runnable
from stand_ins import standing_in

from mrt.backend import TvmRunner
from mrt.backend.kernels.generic import crossed_dot, packed_weights, winograd_choice
from mrt.backend.machine import Machine
from mrt.symbol import Evaluate, Graph, Runner


@pytest.fixture(scope="module", autouse=True)
def compiled_anew() -> Iterator[None]:
    """Every kernel is made: tests change how that is done, and a cache would not know."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRT_CACHE", "off")
        yield


@pytest.fixture(autouse=True)
def stand_ins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this CPU lacks is stood in for; without --exhaustive each case is run by one CPU in four."""
    prepare_all, exhaustive = TvmRunner.prepare_all, request.config.getoption("exhaustive")

    def prepare(self: TvmRunner, graphs: Iterable[Graph], size: int = 0) -> list[Evaluate]:
        with standing_in(Machine.of(self.target)) as is_stood_in:
            if is_stood_in and not exhaustive and _turn(request.node.name):
                pytest.skip("a stand-in for a CPU whose turn it is not; --exhaustive has no turns")
            return prepare_all(self, graphs, size)

    monkeypatch.setattr(TvmRunner, "prepare_all", prepare)


def _turn(name: str) -> int:
    """0 for one in four CPUs, which one depends on the test and its other parameters, and where no CPU is named."""
    cpu = next((cpu for cpu in reversed(TARGETS) if cpu in name), None)
    return 0 if cpu is None else (zlib.crc32(name.replace(cpu, "").encode()) + list(TARGETS).index(cpu)) % 4


@pytest.fixture(params=[*TARGETS, *EMULATED])
def runner(request: pytest.FixtureRequest) -> Runner:
    if request.param in EMULATED:
        return emulated(EMULATED[request.param], request.param)
    if request.param not in runnable():
        pytest.skip(f"this machine does not run code for {request.param}")
    return TvmRunner(TARGETS[request.param])


@pytest.fixture
def tiles() -> Iterator[None]:
    """What is compiled for AMX runs."""
    with standing_in(Machine.of(TARGETS["sapphirerapids"])):
        yield


@pytest.fixture
def turn(request: pytest.FixtureRequest) -> int:
    """The number of the runner's CPU: what one of them tries with one kind of data, its neighbours try with others."""
    return [*TARGETS, *EMULATED].index(request.node.callspec.params["runner"])


@pytest.fixture
def always_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are packed wherever that is possible, however small."""
    for name in ("WORTH_PACKING", "SECOND_BYTES"):
        monkeypatch.setattr(packed_weights, name, 0)


@pytest.fixture
def uncrossed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dots are added up as they are."""
    monkeypatch.setattr(crossed_dot, "PAIRS", {})


@pytest.fixture
def direct_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions form all their products, those by 3 x 3 taps, too."""
    monkeypatch.setattr(winograd_choice, "WORTH", 0.0)
