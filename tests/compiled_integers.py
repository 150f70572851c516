"""What the compiler makes of an integer graph, against what the graph means."""

from __future__ import annotations

import numpy as np

from mrt.backend import TvmRunner
from mrt.quantization.integer.integer_graph import IntegerGraph
from tests.matrix import extreme_feeds


def assert_compiled_alike(integer: IntegerGraph) -> None:
    """Bit for bit and dtype for dtype, for inputs all at an end of their ranges, at both, and anywhere inside."""
    run = TvmRunner().prepare(integer.graph)
    for feeds in extreme_feeds(integer):
        for found, meant in zip(run(feeds), integer.graph.evaluate(feeds), strict=True):
            assert found.dtype == meant.dtype
            np.testing.assert_array_equal(found, meant)
