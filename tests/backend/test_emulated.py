"""Networks compiled for other machines give the same integers there; an emulator stands for the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import assert_same_values
from emulated import emulated
from hypothesis import HealthCheck, given, settings
from networks import IntegerNetwork
from test_random_graphs import graphs

from mrt.symbol import Graph

NEOVERSE = {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}
RISCV = {"mtriple": "riscv64-linux-gnu", "features": ["m", "a", "f", "d", "c"]}
"""Those of its Linux, whose objects are linked only with such as use its registers of floats alike."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("saved", [False, True], ids=["objects", "library"])
@pytest.mark.parametrize(
    ("target", "cpu"),
    [
        ({**NEOVERSE, "threads": 1}, "neoverse-n1"),
        ({**NEOVERSE, "threads": 2}, "neoverse-n1"),
        ({"mtriple": "aarch64-linux-gnu", "features": ["dotprod"]}, "cortex-a76"),
        ({"mtriple": "aarch64-linux-gnu"}, "cortex-a57"),
        (RISCV, "rv64"),
    ],
    ids=["neoverse-n1", "two threads", "dotprod", "plain aarch64", "riscv64"],
)
def test_a_network_gives_the_same_integers(target: dict[str, Any], cpu: str, saved: bool) -> None:
    network = IntegerNetwork(batch=2)
    feeds = {"image": network.inputs[0].quantize(network.images(2))}
    found = emulated(target, cpu, saved).prepare(network.graph)(feeds)
    assert_same_values(network.graph, found, network.graph.evaluate(feeds))
    assert len(np.unique(found[1])) > 50  # not all saturated


def test_the_emulator_lacks_what_the_cpu_lacks() -> None:
    """Products of bytes, on a CPU that has none."""
    network = IntegerNetwork(batch=1)
    feeds = {"image": network.inputs[0].quantize(network.images(1))}
    with pytest.raises(AssertionError, match="Illegal instruction"):
        emulated(NEOVERSE, "cortex-a57").prepare(network.graph)(feeds)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs(drawn: tuple[Graph, np.ndarray]) -> None:
    graph, fed = drawn
    feeds = {"x": fed}
    assert_same_values(graph, emulated(NEOVERSE, "neoverse-n1").prepare(graph)(feeds), graph.evaluate(feeds))
