"""Every family of kernels, on every level of the CPU that this machine or an emulator can run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from emulated import emulated
from layers import EMULATED, TARGETS, runnable

from mrt.backend import TvmRunner
from mrt.backend.kernels.generic import crossed_dot, packed_weights, winograd_choice
from mrt.symbol import Runner


@pytest.fixture(scope="module", autouse=True)
def compiled_anew() -> Iterator[None]:
    """Every kernel is made: tests change how that is done, and a cache would not know."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRT_CACHE", "off")
        yield


@pytest.fixture(params=[*TARGETS, *EMULATED])
def runner(request: pytest.FixtureRequest) -> Runner:
    if request.param in EMULATED:
        return emulated(EMULATED[request.param], request.param)
    if request.param not in runnable():
        pytest.skip(f"this machine does not run code for {request.param}")
    return TvmRunner(TARGETS[request.param])


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
