"""What the tests of preparation share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mrt.symbol import Graph


@pytest.fixture
def assert_same_outputs() -> Callable[[Graph, Graph], None]:
    """Fails unless two graphs give the same outputs for random inputs, to 1e-5 of the largest value."""

    def check(before: Graph, after: Graph, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        feeds = {s.name: random.normal(size=s.shape).astype(s.dtype) for s in before.inputs}
        assert [(s.name, s.type) for s in before.inputs] == [(s.name, s.type) for s in after.inputs]
        expected, found = before.evaluate(feeds), after.evaluate(feeds)
        assert len(expected) == len(found)
        for a, b in zip(expected, found, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5 * max(1e-3, float(np.abs(a).max())))

    return check
