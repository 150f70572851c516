"""Random numbers of tests: they are the same in any order of tests, and others for each test and fixture."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import Draws

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def of_the_module() -> float:
    return RNG.random()


@pytest.fixture
def of_the_test() -> float:
    return RNG.random()


def test_each_draws_its_own(of_the_module: float, of_the_test: float) -> None:
    drawn = RNG.random()
    assert len({of_the_module, of_the_test, drawn}) == 3
    RNG.random(100)
    draws = Draws()
    for reader, value in (
        ("of_the_module", of_the_module),
        ("of_the_test", of_the_test),
        ("test_each_draws_its_own", drawn),
    ):
        draws.begin(__name__, reader)
        assert RNG.random() == value


def test_what_another_test_draws_changes_nothing(of_the_module: float, of_the_test: float) -> None:
    """In whichever order these two run: the fixture of the module is made once, and draws as it would by itself."""
    draws = Draws()
    for reader, value in (("of_the_module", of_the_module), ("of_the_test", of_the_test)):
        draws.begin(__name__, reader)
        assert RNG.random() == value
