"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from mrt.collector import paused_collector
from tests.draws import Draws
from tests.tiers import exhaustive

# A change passes or fails for what it is, not for the examples of the day. HYPOTHESIS_PROFILE=explore draws new ones.
# No test depends on the speed of the machine: neither a deadline nor the time that drawing an example takes.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("reproducible", derandomize=True, **UNTIMED)
settings.register_profile("explore", derandomize=False, print_blob=True, **UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="run all cases, as `make test-all` does")


def pytest_configure(config: pytest.Config) -> None:
    """Kernels are kept for this run alone, by all of its processes.

    What a test shows of the compiler must not come from a run before it, nor end up in the user's cache. Tests of the
    back end, and those that compare what is compiled twice, have none: see `compiled_anew`.
    """
    if hasattr(config, "workerinput"):
        return  # a process of pytest-xdist has the first one's environment
    folder = tempfile.mkdtemp(prefix="mrt-kernels-")
    os.environ["MRT_CACHE"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Python's collector never goes through what is collected here: a million objects, which all stay."""
    with paused_collector():
        found = yield
    gc.collect()
    gc.freeze()
    return found


DRAWS = pytest.StashKey[Draws]()


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[DRAWS] = Draws()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """What a fixture draws depends on itself alone."""
    if fixturedef.scope != "session":
        request.config.stash[DRAWS].begin(request.module.__name__, fixturedef.argname)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """What a test draws depends on itself alone."""
    if isinstance(item, pytest.Function):
        item.config.stash[DRAWS].begin(item.module.__name__, item.name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --exhaustive what repeats a property at length is left out."""
    if config.getoption("exhaustive"):
        return
    left_out = exhaustive(items)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel comes from the cache: for tests of what is compiled twice."""
    monkeypatch.setenv("MRT_CACHE", "off")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real models and data: the variable MRT_DATA, or `shared/data` beside the checkout."""
    candidates = [os.environ.get("MRT_DATA", ""), str(Path(__file__).parents[2] / "shared" / "data")]
    for candidate in candidates:
        if candidate and (Path(candidate) / "datasets.py").is_file():
            return Path(candidate).resolve()
    pytest.skip("real models and data are absent: set MRT_DATA to their folder")


@pytest.fixture(scope="session")
def load_data(data_folder: Path) -> Callable[[str, str], tuple[np.ndarray, np.ndarray]]:
    """From the name of a trained network and a split, "calibration" or "test", to images and labels that it reads."""
    spec = importlib.util.spec_from_file_location("real_datasets", data_folder / "datasets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    load: Callable[[str, str], tuple[np.ndarray, np.ndarray]] = module.load
    return load


@pytest.fixture
def soon() -> Iterator[None]:
    """A test that takes longer than on any machine fails, since it may wait for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
